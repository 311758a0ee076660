//! `rooflight plan`: what a model takes and how fast it can be at most, before it is there.
//!
//! The library plans; `target` says for which machine, and `text`, `json` and `charts` show the plan.

mod charts;
mod json;
mod list;
mod placement;
#[cfg(any(test, fuzzing))]
mod strangers;
mod target;
mod text;
mod values;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use console::args::SuggestedValues;
use models::Mixture;
use planner::formula::Units;
use planner::goal::Miss;
use rooflight::plan::{PlanGoals, PlanRequest, Subject, Target};

#[cfg(fuzzing)]
pub(crate) use self::strangers::plan_config;
use self::target::TargetArgs;
use crate::args::{self, CacheArgs};
use crate::exit::Failure;
use crate::output::OutputArgs;
use crate::{load, names, picture, runtime, ui, units};

/// Estimate memory and speed of a model before you download it
///
/// Memory, longest context, time to the first token, tokens per second, and what other types of weights and cache would change: on this machine as measured, or on another. Limits are times that no program beats, everything read once; expected times are those of this program, in chunks. `rooflight bench` says how close it comes.
/// Units: GB is 10^9 bytes and GiB 2^30, k tokens are 1024. Exit code 1: it does not fit, or goals cannot be met.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight plan qwen2.5-7b\n  rooflight plan model.gguf -c 32k\n  \
                  rooflight plan llama3.1:70b --type Q4_K_M --device 4090 --memory 48GB\n  \
                  rooflight plan config.json --memory 16GB --bandwidth 67GB/s --flops 2.7T\n  \
                  rooflight plan qwen2.5-7b --ttft 500ms --tps 20 --context 32k\n  \
                  rooflight plan qwen2.5-7b --plot plan.svg\n  rooflight plan qwen3-30b-a3b --device 4090 --memory 12GB --placement\n  \
                  rooflight plan --list"
)]
pub(super) struct Plan {
    /// GGUF file, config.json, or a published name: qwen2.5-7b
    #[arg(value_name = "MODEL")]
    name: Option<OsString>,
    /// The model, instead of the argument [env: ROOFLIGHT_MODEL]
    #[arg(short, long, value_name = "MODEL", conflicts_with = "name")]
    model: Option<OsString>,
    /// List known models, weight types and devices
    #[arg(long)]
    list: bool,
    /// Type of the weights: F16, Q8_0, Q4_K_M
    ///
    /// With the mixture of llama.cpp's quantizer; by default the file's, or Q4_K_M
    #[arg(long = "type", value_name = "TYPE", value_parser = weight_names(), hide_possible_values = true)]
    weights: Option<String>,
    /// Context in tokens: 32k, 0 for the model's
    ///
    /// By default the model's own, at most 8192
    #[arg(short, long, value_name = "N", alias = "ctx-size", value_parser = values::context)]
    context: Option<u64>,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    goals: GoalArgs,
    /// Layers and experts for a card that cannot hold all
    ///
    /// And the options of --executor wgpu for that (cuda takes the same): with --device NAME, --executor wgpu or cuda, beside this machine's processor
    #[arg(long)]
    placement: bool,
    /// Print JSON: bytes, seconds, tokens
    #[arg(long)]
    json: bool,
    /// Draw it: time to the first token, time of a step, memory
    #[arg(long, value_name = "FILE", value_parser = picture::path)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    /// Every table in full
    ///
    /// What steps read and compute, activations that leave the processor's caches
    #[arg(short, long)]
    verbose: bool,
}

/// What is asked for: with one of the first two, the best types of weights and cache that meet it are looked for.
#[derive(clap::Args, Clone, Debug)]
struct GoalArgs {
    /// Goal: most time to the first token: 500ms, 2s
    #[arg(long, value_name = "TIME", value_parser = values::seconds, allow_hyphen_values = true)]
    ttft: Option<f64>,
    /// Goal: least tokens per second with the context full
    #[arg(long, value_name = "N", value_parser = values::positive)]
    tps: Option<f64>,
    /// Tokens of the prompt whose first token --ttft is about; by default 512
    #[arg(long, value_name = "N", visible_alias = "prompt", value_parser = values::tokens, requires = "ttft")]
    prompt_tokens: Option<u64>,
}

impl Plan {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.list {
            if !self.json {
                return list::print(out);
            }
            serde_json::to_writer_pretty(&mut *out, &list::json())?;
            return Ok(writeln!(out)?);
        }
        let name = self.name.clone().or_else(|| self.model.clone());
        let name = name.or_else(args::variable).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Failure::Usage("no model: rooflight plan MODEL".into()))?;
        // a short name means the same model here and where it is run
        let short = name.to_str().filter(|_| !Path::new(&name).exists());
        let name = short.and_then(names::spelled_out).map_or(name.clone(), OsString::from);
        // what is on a hub is planned for by its header
        let outline = match Subject::is_known(&name) {
            true => None,
            false => names::outline(Path::new(&name))?,
        };
        let subject = match &outline {
            Some(outline) => Subject::of_outline(runtime(), outline.path(), outline.name())?,
            None => Subject::find(runtime(), &name, &|path| names::here(path).ok())?,
        };
        self.plot.iter().try_for_each(|file| self.output.check(file))?;
        let target = self.target.target()?;
        let report = self.plan(&subject, &target)?;
        if let Some(file) = &self.plot {
            picture::write(file, &charts::picture(&report), self.output)?;
        }
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &json::report(&report))?;
            writeln!(out)?;
        } else {
            text::report(&report, self.verbose, ui::stdout_columns(), out)?;
        }
        match report.goals {
            Some((_, answer)) if !answer.met() => {
                let misses: Vec<_> = answer.misses.iter().map(miss).collect();
                Err(Failure::Goals(misses.join("; ")).into())
            }
            _ => {
                report.misfit.map_or(Ok(()), |misfit| Err(rooflight::Error::NoRoom(misfit).into()))
            }
        }
    }

    /// Converts the options to a request to the library.
    fn request(&self, subject: &Subject) -> anyhow::Result<PlanRequest> {
        self.check(subject)?;
        let GoalArgs { ttft, tps, prompt_tokens } = self.goals.clone();
        let CacheArgs { cache_type_k, cache_type_v, chunk, policy, storage, .. } = &self.cache;
        Ok(PlanRequest {
            weights: self.weights.clone(),
            context: self.context,
            cache: [self.cache.k(), self.cache.v()],
            // types that are given on the command line are fixed
            other_caches: cache_type_k.is_none() && cache_type_v.is_none(),
            policy: policy.policy(subject.config.context_length),
            storage: storage.options(),
            chunk: chunk.map(|chunk| chunk as u64),
            goals: PlanGoals { first_token: ttft, tokens_per_second: tps, prompt: prompt_tokens },
            placement: self.placement,
        })
    }

    fn plan<'a>(
        &self,
        subject: &'a Subject,
        target: &'a Target,
    ) -> anyhow::Result<rooflight::plan::Plan<'a>> {
        let request = self.request(subject)?;
        let context = request.context_for(subject);
        load::check_positions(subject.config.n_positions, context)?;
        self.cache.policy.warnings().iter().for_each(|warning| ui::warn(warning));
        rooflight::policy::check(&request.policy)?;
        load::warn_about_context(&subject.config, context as usize, &request.policy);
        let is_cut = request.chunk.is_some() || subject.config.reads_at_once();
        if is_cut && target.units == Units::Article {
            ui::warn("--chunk has no effect: in the article prompts go through at once");
        }
        rooflight::plan::Plan::of(runtime(), subject, target, &request)
    }

    /// Refuses options about replies for a model that writes none.
    fn check(&self, subject: &Subject) -> Result<(), Failure> {
        let of_replies = [
            ("--ttft", self.goals.ttft.is_some()),
            ("--tps", self.goals.tps.is_some()),
            ("--plot", self.plot.is_some()),
        ];
        match of_replies.iter().find(|(_, given)| *given && subject.config.text.is_some()) {
            Some((option, _)) => Err(Failure::Usage(format!(
                "{option} is about replies: this model reads texts and writes none"
            ))),
            None => Ok(()),
        }
    }
}

/// Parser of `--type`. It accepts any name; the shell completes the known file types.
fn weight_names() -> SuggestedValues<String> {
    let names = models::MIXTURES.iter().map(Mixture::name);
    SuggestedValues::new(names, |name| Ok(name.to_owned()))
}

/// `first token after 1.62 s, 500 ms wanted: 3.24 times as long`.
fn miss(miss: &Miss) -> String {
    use planner::goal::Goal;
    let factor = units::three_figures(miss.factor());
    let seconds = units::short_seconds;
    match miss.goal {
        Goal::FirstToken => {
            let (possible, wanted) = (seconds(miss.possible), seconds(miss.wanted));
            format!(
                "first token after {possible}, {wanted} wanted: that takes {factor} times as long"
            )
        }
        Goal::TokensPerSecond => {
            let (possible, wanted) =
                (units::three_figures(miss.possible), units::three_figures(miss.wanted));
            format!("{possible} tok/s, {wanted} wanted: that is {factor} times as fast")
        }
        Goal::Memory => {
            let need = units::decimal_bytes(miss.possible);
            let room = units::decimal_bytes(miss.wanted.max(0.0));
            format!("{need} of memory, {room} are there")
        }
    }
}

#[cfg(all(test, feature = "hub"))]
mod tests {
    use super::*;

    /// A short name of the hub's table and a published model of the same name are one model.
    #[test]
    fn short_names_mean_one_model() {
        let published = |name: &str| models::find_published(name).and_then(|config| config.name);
        let mut checked = 0;
        for (family, size, repository) in hub::SHORT_NAMES {
            let short = format!("{family}:{size}");
            assert_eq!(names::spelled_out(&short).as_deref(), Some(*repository));
            if let Some(name) = published(&short) {
                assert_eq!(published(repository), Some(name), "{short}");
                checked += 1;
            }
        }
        assert!(checked > 20, "{checked}");
        let with_type = names::spelled_out("deepseek-r1:7b-q8_0");
        let want = "bartowski/DeepSeek-R1-Distill-Qwen-7B-GGUF:Q8_0";
        assert_eq!(with_type.as_deref(), Some(want));
        assert_eq!(names::spelled_out("qwen2.5-7b"), None);
    }
}
