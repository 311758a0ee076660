//! The computed tables of the roofline article, made again: sections 3.1 to 5.1.5, Qwen1.5 on an RTX 4090.
//!
//! The article counts in binary units ([`Units::Article`]); [`tables`] can also count in decimal ones, which are right.
//! Where the article prints something else than its own formulas give, [`errata`] say what and why. What it says beside
//! its tables is counted in [`beside`].

mod beside;
pub mod errata;
mod value;

use crate::formula::{Head, ModelShape, Roofline, Units, longest_context};

pub use beside::beside;
pub use errata::{Erratum, Remark};
pub use value::ArticleValue;

/// A model of the article.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArticleModel {
    /// As the article calls it, in English.
    pub name: &'static str,
    /// Its dimensions; norms are not counted.
    pub shape: ModelShape,
}

/// Bits of weights that the article plans for. The cache has 16.
pub const WEIGHT_BITS: [u32; 3] = [16, 8, 4];

const fn model(name: &'static str, vocab: u64, dims: [u64; 3], group: u64) -> ArticleModel {
    let [hidden_size, n_layers, intermediate_size] = dims;
    let shape = ModelShape {
        n_layers,
        hidden_size,
        intermediate_size,
        vocab_size: vocab,
        n_heads: hidden_size / 128,
        n_kv_heads: hidden_size / 128 / group,
        head_dim: 128,
        tied_embeddings: false,
        qkv_bias: true,
        norms: false,
        qk_norms: false,
    };
    ArticleModel { name, shape }
}

/// Qwen1.5; 32B and 110B also as they would be if each query head had a key-value head of its own.
pub static FAMILY: [ArticleModel; 10] = [
    model("0.5B", 151_936, [1024, 24, 2816], 1),
    model("1.8B", 151_936, [2048, 24, 5504], 1),
    model("4B", 151_936, [2560, 40, 6912], 1),
    model("7B", 151_936, [4096, 32, 11008], 1),
    model("14B", 152_064, [5120, 40, 13696], 1),
    model("32B without GQA", 152_064, [5120, 64, 27392], 1),
    model("32B", 152_064, [5120, 64, 27392], 5),
    model("72B", 152_064, [8192, 80, 24576], 1),
    model("110B without GQA", 152_064, [8192, 80, 49152], 1),
    model("110B", 152_064, [8192, 80, 49152], 8),
];

impl ArticleModel {
    /// On the article's RTX 4090: 1008 GB/s and 82.58 TFLOP/s in `units`, with weights of `bits` and attention that
    /// reads the cache for every query.
    pub fn roofline(&self, units: Units, bits: u32) -> Roofline {
        let roof = Roofline::new(&self.shape, units.giga(1008.0), units.tera(82.58));
        roof.weight_bits(f64::from(bits))
    }

    /// Positions whose cache, of `cache_bits` an element, fits beside the weights; `None` if these do not fit.
    pub fn longest_context(&self, units: Units, bits: u32, cache_bits: u32) -> Option<u64> {
        let roof = self.roofline(units, bits);
        let cache = self.shape.cache_elements_per_token() as f64 * f64::from(cache_bits) / 8.0;
        longest_context(memory(units), roof.active_bytes(), cache)
    }

    /// Is it in chapters 3 and 4, which leave grouped queries out?
    pub fn is_in_first_chapters(&self) -> bool {
        self.shape.group() == 1.0 && !self.name.contains("GQA")
    }
}

/// Memory of the RTX 4090, in bytes.
pub fn memory(units: Units) -> f64 {
    units.giga(24.0)
}

/// A table of the article.
#[derive(Clone, Debug, PartialEq)]
pub struct ArticleTable {
    /// Number of its section.
    pub section: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What its rows are, the head of the first column: models, machines.
    pub of: &'static str,
    /// Heads of the other columns.
    pub columns: Vec<String>,
    /// What the columns mean.
    pub note: &'static str,
    /// Rows by name.
    pub rows: Vec<(&'static str, Vec<ArticleValue>)>,
}

impl ArticleTable {
    /// What the article prints wrong in a cell of the row of this name; columns are counted after the name.
    pub fn erratum(&self, name: &str, column: usize) -> Option<&'static Erratum> {
        let here =
            |e: &&Erratum| e.section == self.section && e.model == name && e.column == column;
        errata::CELLS.iter().find(here)
    }
}

/// A quantity of a model, which one or more columns show.
type Columns = (Vec<String>, fn(&ArticleModel, Units) -> Vec<ArticleValue>);

/// All tables that the article computes, in its order.
pub fn tables(units: Units) -> Vec<ArticleTable> {
    let table = |section, title, groups: &[&Columns]| {
        // Chapter 5 has all models.
        let all = section >= "5";
        let models = FAMILY.iter().filter(|m| all || m.is_in_first_chapters());
        let row = |m: &ArticleModel| {
            (m.name, groups.iter().flat_map(|(_, values)| values(m, units)).collect())
        };
        ArticleTable {
            section,
            title,
            of: "model",
            note: note(section),
            columns: groups.iter().flat_map(|(names, _)| names.clone()).collect(),
            rows: models.map(row).collect(),
        }
    };
    let (active, cache) = (named(&["active"], active), named(&["cache per token"], cache));
    let (dims, sizes) = (named(&["hidden_size", "n_layers"], dims), named(&SIZES, sizes));
    let group = named(&["group"], group);
    let few = named(&["w16kv16", "w8kv16", "w4kv16"], few_contexts);
    let many = named(&["w16kv16", "w8kv16", "w4kv16", "w6kv16", "w4kv8"], many_contexts);
    let turns: Columns = (turn_names(), turns);
    let steps: Columns = (step_names(), steps);
    let parts = named(&["layers", "head", "active", "total"], parts);
    vec![
        table("3.1", "Parameters", &[&sizes, &parts]),
        table("3.2", "Elements of the cache per token", &[&dims, &cache]),
        table("3.3", "Tokens of cache in the memory of an RTX 4090", &[&active, &cache, &few]),
        table("4.3", "Inflections of the prefill", &[&turns]),
        table("4.4", "Steps: latency(n) = (n - 1) / W + B", &[&steps]),
        table("5.1.1", "Parameters, with GQA", &[&sizes, &group, &parts]),
        table("5.1.2", "Elements of the cache per token, with GQA", &[&dims, &group, &cache]),
        table(
            "5.1.3",
            "Tokens of cache in the memory of an RTX 4090, with GQA",
            &[&active, &cache, &many],
        ),
        table("5.1.4", "Inflections of the prefill, with GQA", &[&turns]),
        table("5.1.5", "Steps, with GQA", &[&steps]),
    ]
}

/// What the columns of a section's tables mean.
fn note(section: &str) -> &'static str {
    match section {
        "3.1" | "5.1.1" => "Without norms. Active: layers and head. Total: active and embedding.",
        "3.2" | "5.1.2" => "Keys and values: 2 n_layers hidden_size / group.",
        "3.3" | "5.1.3" => {
            "Beside the active parameters alone; w: bits of a weight, kv: bits of an element of the cache."
        }
        "4.3" | "5.1.4" => {
            "Prompt lengths: up to the first, reading the weights binds; up to the second, arithmetic; beyond it, reading \
             the cache. Rough: every token passes the head; exact: the last one does."
        }
        _ => {
            "W: tokens of depth that make a step a millisecond longer. B: the first step, which reads the weights."
        }
    }
}

fn named(names: &[&str], values: fn(&ArticleModel, Units) -> Vec<ArticleValue>) -> Columns {
    (names.iter().map(|name| (*name).to_owned()).collect(), values)
}

const SIZES: [&str; 4] = ["vocab_size", "hidden_size", "n_layers", "intermediate_size"];

fn sizes(m: &ArticleModel, _: Units) -> Vec<ArticleValue> {
    let s = &m.shape;
    [s.vocab_size, s.hidden_size, s.n_layers, s.intermediate_size].map(ArticleValue::Count).to_vec()
}

fn dims(m: &ArticleModel, _: Units) -> Vec<ArticleValue> {
    vec![ArticleValue::Count(m.shape.hidden_size), ArticleValue::Count(m.shape.n_layers)]
}

fn group(m: &ArticleModel, _: Units) -> Vec<ArticleValue> {
    vec![ArticleValue::Count(m.shape.group() as u64)]
}

fn parts(m: &ArticleModel, units: Units) -> Vec<ArticleValue> {
    let p = m.shape.parameters();
    [p.layers, p.head, p.active(), p.total()]
        .map(|n| ArticleValue::Giga(n as f64 / units.giga(1.0)))
        .to_vec()
}

fn active(m: &ArticleModel, units: Units) -> Vec<ArticleValue> {
    vec![ArticleValue::Giga(m.shape.parameters().active() as f64 / units.giga(1.0))]
}

fn cache(m: &ArticleModel, units: Units) -> Vec<ArticleValue> {
    vec![ArticleValue::Mega(m.shape.cache_elements_per_token() as f64 / units.mega(1.0))]
}

fn few_contexts(m: &ArticleModel, units: Units) -> Vec<ArticleValue> {
    WEIGHT_BITS.map(|bits| ArticleValue::Tokens(m.longest_context(units, bits, 16))).to_vec()
}

fn many_contexts(m: &ArticleModel, units: Units) -> Vec<ArticleValue> {
    let types = [(16, 16), (8, 16), (4, 16), (6, 16), (4, 8)];
    types.map(|(w, kv)| ArticleValue::Tokens(m.longest_context(units, w, kv))).to_vec()
}

/// Each width of weights with the head for every token ("rough") and for the last one ("exact").
fn turns(m: &ArticleModel, units: Units) -> Vec<ArticleValue> {
    let roofs = WEIGHT_BITS.map(|bits| m.roofline(units, bits));
    let heads = [Head::EveryToken, Head::LastToken];
    roofs
        .iter()
        .flat_map(|roof| heads.map(|head| ArticleValue::Turns(roof.inflections(head))))
        .collect()
}

fn turn_names() -> Vec<String> {
    let names = |bits: u32| ["rough", "exact"].map(|head| format!("w{bits}kv16 {head}"));
    WEIGHT_BITS.into_iter().flat_map(names).collect()
}

fn steps(m: &ArticleModel, units: Units) -> Vec<ArticleValue> {
    let roofs = WEIGHT_BITS.map(|bits| m.roofline(units, bits));
    let values = |roof: &Roofline| {
        [
            ArticleValue::PerMillisecond(roof.tokens_per_millisecond()),
            ArticleValue::Milliseconds(roof.first_step_milliseconds()),
        ]
    };
    roofs.iter().flat_map(values).collect()
}

fn step_names() -> Vec<String> {
    WEIGHT_BITS
        .into_iter()
        .flat_map(|bits| ["W", "B"].map(|x| format!("w{bits}kv16 {x}")))
        .collect()
}
