//! A model in one type of weights and one type of cache on a machine: counted, or in the article's closed form.

use std::sync::Arc;

use engine::DEFAULT_CHUNK;
use models::{Mixture, ModelConfig};
use planner::formula::{ModelShape, Roofline, Units};
use planner::{Cost, CostOptions, CountedProgram, Estimate, Executed, Load, ModelVariant};
use program::{CacheType, KvPolicy, Program};

use super::subject::Subject;
use super::target::Target;
use crate::Error;

/// Types of weights to compare, most bits first.
const COMPARED: [&str; 7] = ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K"];
/// The same in the article.
const ARTICLE: [Weights; 4] =
    [Weights::Bits(16), Weights::Bits(8), Weights::Bits(6), Weights::Bits(4)];

/// Type of the weights in a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weights {
    /// As a file has them.
    File,
    /// As quantizers mix them.
    Mixture(&'static Mixture),
    /// So many bits for every weight, as the article counts.
    Bits(u32),
}

/// Types of keys and values in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Type of the keys.
    pub k: CacheType,
    /// Type of the values.
    pub v: CacheType,
    /// What of it queries read.
    pub policy: KvPolicy,
}

/// Caches to compare.
pub(super) fn compared_caches(policy: KvPolicy) -> [Cache; 2] {
    [CacheType::F16, CacheType::Q8_0].map(|ty| Cache { k: ty, v: ty, policy })
}

impl Weights {
    /// The type that is asked for, or what the model comes with, or `Q4_K_M`; `w16` in the article's units.
    ///
    /// # Errors
    /// [`Error::Options`] for an unknown name.
    pub(super) fn choose(
        asked: Option<&str>,
        subject: &Subject,
        units: Units,
    ) -> Result<Weights, Error> {
        let unknown = |name: &str, known: &[String]| {
            let name = gguf::escape(name, 40);
            Error::Options(format!("no weight type `{name}`: one of {}", known.join(", ")))
        };
        match (asked, units) {
            (None, Units::Article) => Ok(Weights::Bits(16)),
            (Some(name), Units::Article) => {
                let known = ARTICLE.map(|w| w.name(subject));
                let at = known.iter().position(|known| known.eq_ignore_ascii_case(name));
                at.map(|at| ARTICLE[at]).ok_or_else(|| unknown(name, &known))
            }
            (Some(name), Units::Decimal) => {
                Mixture::from_name(name).map(Weights::Mixture).ok_or_else(|| {
                    let known: Vec<_> =
                        models::MIXTURES.iter().map(|m| m.name().to_owned()).collect();
                    unknown(name, &known)
                })
            }
            (None, Units::Decimal) if subject.file.is_some() => Ok(Weights::File),
            (None, Units::Decimal) => {
                let usual = Mixture::from_name("Q4_K_M").expect("the table has it");
                Ok(Weights::Mixture(subject.mixture.unwrap_or(usual)))
            }
        }
    }

    /// The type that goes by `name`: one of those compared, or what was asked for.
    ///
    /// # Errors
    /// As [`choose`](Self::choose).
    pub(super) fn named(
        name: &str,
        asked: Option<&str>,
        subject: &Subject,
        units: Units,
    ) -> Result<Weights, Error> {
        let compared = Weights::compared(subject, units).into_iter();
        let known = compared.into_iter().find(|weights| weights.name(subject) == name);
        known.map_or_else(|| Weights::choose(asked, subject, units), Ok)
    }

    /// Those to compare, most bits first; a file's own first of all.
    pub(super) fn compared(subject: &Subject, units: Units) -> Vec<Weights> {
        if units == Units::Article {
            return ARTICLE.to_vec();
        }
        let file = subject.file.is_some().then_some(Weights::File);
        let mixtures = COMPARED.iter().filter_map(|name| Mixture::from_name(name));
        file.into_iter().chain(mixtures.map(Weights::Mixture)).collect()
    }

    /// The forward pass with such weights; none in the article's closed form.
    ///
    /// # Errors
    /// A shape that no executor takes.
    pub(super) fn program(self, subject: &Subject) -> anyhow::Result<Option<Arc<Program>>> {
        match self {
            Weights::Mixture(mixture) => subject.program(mixture).map(Some),
            Weights::File => Ok(subject.file.as_ref().map(|(_, program)| Arc::clone(program))),
            Weights::Bits(_) => Ok(None),
        }
    }

    /// As people name it.
    pub(super) fn name(self, subject: &Subject) -> String {
        match self {
            Weights::File => {
                subject.file.as_ref().map_or_else(String::new, |(ty, _)| format!("file ({ty})"))
            }
            Weights::Mixture(mixture) => mixture.name().to_owned(),
            Weights::Bits(bits) => format!("w{bits}"),
        }
    }
}

/// `f16`, or `f16/q8_0` where keys and values differ; `kv16` in the article.
pub(super) fn cache_name(cache: Cache, units: Units) -> String {
    let Cache { k, v, .. } = cache;
    match units {
        Units::Article => format!("kv{}", (8.0 * plain_bytes(cache)).round()),
        Units::Decimal if k == v => k.name().to_owned(),
        Units::Decimal => format!("{}/{}", k.name(), v.name()),
    }
}

/// One type of weights with each of these caches, prompts in chunks of so many tokens, or of what
/// was measured to be best.
///
/// # Errors
/// A shape that cannot be planned, or a machine that was not measured.
pub(super) fn variants(
    subject: &Subject,
    weights: Weights,
    caches: &[Cache],
    target: &Target,
    chunk: Option<u64>,
) -> anyhow::Result<Vec<ModelVariant>> {
    let program = weights.program(subject)?;
    let candidate = |&cache: &Cache| {
        let estimate = match (&program, weights) {
            (Some(program), _) => counted(program, cache, target, chunk)?,
            (None, Weights::Bits(bits)) => closed(&subject.config, bits, cache, target)?,
            (None, _) => closed(&subject.config, 16, cache, target)?,
        };
        let (weights, cache) = (weights.name(subject), cache_name(cache, target.units));
        Ok(ModelVariant { weights, cache, estimate })
    };
    caches.iter().map(candidate).collect()
}

fn counted(
    program: &Program,
    cache: Cache,
    target: &Target,
    chunk: Option<u64>,
) -> anyhow::Result<Estimate> {
    let Cache { k, v, policy } = cache;
    let processor_cache = processor_cache().unwrap_or(u64::MAX);
    let options = CostOptions { k, v, policy, processor_cache, ..CostOptions::default() };
    let cost = Cost::of(program, &options);
    let machine = target.machine(cost.total(&Load::step(0)).bytes())?;
    let kernels = target.rates.clone().map(|rates| (Executed::with(program, k, v, &policy), rates));
    let of_cpu = || kernels.as_ref().filter(|_| !target.is_gpu);
    let measured = || of_cpu().and_then(|(executed, rates)| executed.chunk(rates));
    let chunk = chunk.or_else(measured).unwrap_or(DEFAULT_CHUNK as u64);
    Ok(Estimate::Counted(Box::new(CountedProgram { cost, machine, chunk, kernels })))
}

/// The article counts the embedding as a table of its own, and no norms. All its layers are alike: it knows neither
/// experts nor latent attention.
fn closed(c: &ModelConfig, bits: u32, cache: Cache, target: &Target) -> anyhow::Result<Estimate> {
    let layer = c.first_layer();
    let alike = c.layers.iter().all(|other| other.is_like(layer));
    if !alike || layer.latent.is_some() || layer.experts.is_some() {
        let name = &c.architecture;
        let message = format!(
            "the article's closed form is for dense models: {name} needs a type of weights, not a number of bits"
        );
        return Err(Error::Options(message).into());
    }
    let shape = ModelShape {
        n_layers: c.layers.len() as u64,
        hidden_size: c.hidden_size as u64,
        intermediate_size: layer.intermediate_size as u64,
        vocab_size: c.vocab_size as u64,
        n_heads: layer.n_heads as u64,
        n_kv_heads: layer.n_kv_heads as u64,
        head_dim: layer.head_dim as u64,
        tied_embeddings: false,
        qkv_bias: c.architecture == "qwen2",
        norms: false,
        qk_norms: false,
    };
    let roof = target.roofline(&shape)?.weight_bits(f64::from(bits));
    Ok(Estimate::Closed(Roofline { cache_bytes: plain_bytes(cache), ..roof }))
}

/// Bytes per element without scales, keys and values averaged.
fn plain_bytes(cache: Cache) -> f64 {
    let bytes = |ty: CacheType| match ty {
        CacheType::Q8_0 => 1.0,
        other => other.bytes(1) as f64,
    };
    (bytes(cache.k) + bytes(cache.v)) / 2.0
}

/// The processor's largest cache, where the system tells.
fn processor_cache() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").ok()?;
    Some(text.trim().strip_suffix('K')?.parse::<u64>().ok()? * 1024)
}
