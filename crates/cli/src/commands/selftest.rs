//! `rooflight selftest`: whether an executor computes what it should on this machine, and how fast.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};

use conformance::{Check, Replies, ReplyRules};
use executors::{ExecutorKind, ExecutorOptions, GpuFacts};
use program::{CacheStorage, Executor, KernelShape};
use quant::GgmlType;

use crate::args::{IsaArgs, ThreadArgs};
use crate::ceilings::{self, KeptCeilings};
use crate::exit::Failure;
use crate::tuned::{self, TuneWhen};
use crate::{executor, runtime, ui, units};

/// Check that this machine computes what it should, and how fast
///
/// Small made-up models of every kind that the executor runs are compared with plain loops, number by number; then greedy replies of the bundled model with those of the processor (of the processor: with those of the plain loops). Then what the machine can do at most is measured, and how much of it a step through 256 MiB of weights reaches.
/// The report is Markdown, to be pasted into an issue: it names the processor, the adapter and its driver, and nothing else of the machine.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight selftest --quick\n  rooflight selftest > report.md\n  rooflight selftest --quick --only op/linear\n\nExit code 1 if something differs."
)]
pub(super) struct Selftest {
    /// Executor to test: cpu, wgpu or cuda (GPUs; need a build with that feature) [default: cpu]
    #[arg(
        long,
        value_name = "NAME",
        value_enum,
        default_value_t,
        hide_default_value = true,
        hide_possible_values = true
    )]
    executor: ExecutorKind,
    /// The GPU of --executor wgpu or cuda, by a part of its name; by default a card, else what is built in
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,
    /// Single operations and five replies: seconds instead of minutes; no speed
    #[arg(long)]
    quick: bool,
    /// Only checks with this in their name, such as a report tells of those that failed; no replies
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    isa: IsaArgs,
}

/// Groups of checks, the plain ones first.
const GROUPS: [(&str, &[Check]); 6] = [
    ("operations and dense models", conformance::MEANING),
    ("the same bits", conformance::SAME_BITS),
    ("windows", conformance::WINDOWS),
    ("experts", conformance::EXPERTS),
    ("latent attention", conformance::LATENT),
    ("what recurs", conformance::RECURRENT),
];

/// Replies, and the largest error of logits, normalized and squared, that rounding explains: caches of half floats,
/// activations of 8 bits.
const REPLIES: ReplyRules = ReplyRules { prompts: 50, reply: 24, most_nmse: 5e-3 };
const FEW_REPLIES: ReplyRules = ReplyRules { prompts: 5, reply: 8, ..REPLIES };

/// Types whose speed is told: those that most files have.
const TYPES: [GgmlType; 5] =
    [GgmlType::Q4_0, GgmlType::Q4K, GgmlType::Q6K, GgmlType::Q8_0, GgmlType::F16];

/// What came of a group.
#[derive(Default)]
struct Tally {
    passed: usize,
    /// The executor does not promise what they rest on.
    not_promised: usize,
    /// It does not run such models.
    unsupported: usize,
    /// Names, and what differs.
    failed: Vec<(&'static str, String)>,
    time: Duration,
}

impl Selftest {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.warn();
        let started = self
            .options()
            .start_with(&CacheStorage::default())
            .map_err(|why| executor::not_started(self.executor, why))?;
        let shapes = tuned::apply(runtime(), &started, &BTreeSet::new(), TuneWhen::OnCards);
        let set = |shapes: &[KernelShape]| {
            started.tuning.iter().for_each(|tuning| tuning.set_shapes(shapes));
        };
        // checks are of what nothing is rounded for
        set(&tuned::exact(&shapes));
        let executor = &*started.executor;
        writeln!(out, "# Rooflight self-test\n\n{}", head(executor, started.gpu.as_ref()))?;
        out.flush()?;
        let groups = self.groups()?;
        let n_checks: usize = groups.iter().map(|(_, checks)| checks.len()).sum();
        let bar = ui::count_bar("checking", n_checks as u64);
        let tallies: Vec<Tally> = groups
            .iter()
            .map(|(name, checks)| tally(executor, (name, checks), &|| bar.inc(1)))
            .collect();
        bar.finish_and_clear();
        writeln!(out, "{}", checks_told(&groups, &tallies))?;
        // the rest is as models run on it
        set(&shapes);
        let replies = match self.only {
            Some(_) => Replies::default(),
            None => {
                let (replies, reference) = self.replies(executor)?;
                writeln!(out, "{}", replies_told(&replies, &reference))?;
                replies
            }
        };
        out.flush()?;
        if !self.quick {
            tuned::told(&shapes).iter().try_for_each(|line| writeln!(out, "{line}"))?;
            let kept = ceilings::measure(runtime(), executor).ok();
            writeln!(out, "{}", speed_told(executor, kept.as_ref()))?;
        }
        let failed: usize = tallies.iter().map(|tally| tally.failed.len()).sum();
        match (failed, replies.agree(&self.rules())) {
            (0, true) => Ok(()),
            (failed, agree) => {
                let differ = if agree { "" } else { ", replies differ" };
                Err(Failure::Differs(format!(
                    "{failed} checks failed{differ}; please report the whole of it"
                ))
                .into())
            }
        }
    }

    fn rules(&self) -> ReplyRules {
        if self.quick { FEW_REPLIES } else { REPLIES }
    }

    /// The checks that are asked for.
    fn groups(&self) -> anyhow::Result<Vec<(&'static str, Vec<Check>)>> {
        let all = if self.quick { &GROUPS[..1] } else { &GROUPS[..] };
        let wanted = |check: &&Check| {
            let single = !self.quick || check.name.starts_with("op/");
            single && self.only.as_ref().is_none_or(|text| check.name.contains(text))
        };
        let groups = all.iter().map(|(name, checks)| {
            (*name, checks.iter().filter(wanted).copied().collect::<Vec<_>>())
        });
        let groups: Vec<_> = groups.filter(|(_, checks)| !checks.is_empty()).collect();
        match (&self.only, groups.is_empty()) {
            (Some(text), true) => {
                let text = gguf::escape(text, 60);
                Err(Failure::Usage(format!("--only `{text}`: no check is called so")).into())
            }
            _ => Ok(groups),
        }
    }

    /// Say which options have no effect.
    fn warn(&self) {
        if self.executor == ExecutorKind::Auto {
            ui::note(
                "--executor auto: the processor is tested; --executor wgpu or cuda tests a GPU",
            );
        }
        if !self.executor.is_gpu() && self.adapter.is_some() {
            ui::warn("--adapter has no effect: it is no GPU that is tested");
        }
    }

    fn options(&self) -> ExecutorOptions {
        ExecutorOptions {
            kind: self.executor,
            threads: console::args::threads_to_start(self.threads.count()),
            isa: self.isa.isa,
            adapter: self.adapter.clone(),
            ..ExecutorOptions::default()
        }
    }

    /// Replies of the bundled model beside those of another executor, and which that is.
    fn replies(&self, executor: &dyn Executor) -> anyhow::Result<(Replies, String)> {
        let kind = match self.executor {
            ExecutorKind::Wgpu | ExecutorKind::Cuda | ExecutorKind::Interpreter => {
                ExecutorKind::Cpu
            }
            ExecutorKind::Cpu | ExecutorKind::Auto => ExecutorKind::Interpreter,
        };
        let reference = ExecutorOptions { kind, ..self.options() }.start()?;
        let rules = self.rules();
        let bar = ui::count_bar("making replies", rules.prompts as u64);
        let model = demo_model::open()?;
        let replies =
            conformance::replies(&model, executor, &*reference, &rules, &mut || bar.inc(1))?;
        bar.finish_and_clear();
        Ok((replies, reference.describe()))
    }
}

/// What is tested, on what.
fn head(executor: &dyn Executor, gpu: Option<&GpuFacts>) -> String {
    let build = ceilings::BUILD;
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let mut lines = format!(
        "- Rooflight {build}, {os}, {arch}\n- processor: {}\n- tested: {}\n",
        ceilings::cpu_name(),
        executor.describe()
    );
    if let Some(gpu) = gpu {
        let _ = writeln!(lines, "- driver: {}", gpu.driver);
    }
    lines
}

/// Run checks, each on its own: what one finds wrong stops no other.
fn tally(executor: &dyn Executor, (group, checks): (&str, &[Check]), done: &dyn Fn()) -> Tally {
    // every executor runs the first group
    let may_refuse = group != GROUPS[0].0;
    let start = Instant::now();
    let mut tally = Tally::default();
    // checks panic on a difference: it is told in the report, not on the way
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    for check in checks {
        if check.is_for(executor) {
            match panic::catch_unwind(AssertUnwindSafe(|| (check.run)(executor))) {
                Ok(()) => tally.passed += 1,
                Err(why) => match first_line(&*why) {
                    line if may_refuse && line.contains("not supported: ") => {
                        tally.unsupported += 1
                    }
                    line => tally.failed.push((check.name, line)),
                },
            }
        } else {
            tally.not_promised += 1;
        }
        done();
    }
    panic::set_hook(hook);
    tally.time = start.elapsed();
    tally
}

/// What a check said, as far as it fits on a line.
fn first_line(why: &(dyn Any + Send)) -> String {
    let text = why.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| why.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    gguf::escape(&line, 300)
}

fn checks_told(groups: &[(&str, Vec<Check>)], tallies: &[Tally]) -> String {
    let mut told = String::from(
        "## Checks\n\n| | passed | failed | not promised | not supported | s |\n|---|---:|---:|---:|---:|---:|\n",
    );
    for ((name, _), tally) in groups.iter().zip(tallies) {
        let Tally { passed, not_promised, unsupported, failed, time } = tally;
        let (failed, time) = (failed.len(), time.as_secs_f64());
        let _ = writeln!(
            told,
            "| {name} | {passed} | {failed} | {not_promised} | {unsupported} | {time:.1} |"
        );
    }
    let failed = tallies.iter().flat_map(|tally| &tally.failed);
    let lines: String = failed.map(|(name, why)| format!("- `{name}`: {why}\n")).collect();
    if !lines.is_empty() {
        let _ = write!(told, "\n{lines}");
    }
    told
}

fn replies_told(replies: &Replies, reference: &str) -> String {
    let Replies { prompts, near_ties, wrong, nmse } = replies;
    let equal = prompts - near_ties - wrong.len();
    let mut told = format!(
        "## Replies of the bundled model\n\nBeside {reference}: of {prompts} greedy replies {equal} are equal, {near_ties} part where two \
         tokens are nearer to each other than rounding decides (at most a fourth may), {} elsewhere. Error of logits, normalized and \
         squared: at most {nmse:.1e}, {:.0e} allowed.\n",
        wrong.len(),
        REPLIES.most_nmse
    );
    for wrong in wrong.iter().take(5) {
        let _ = writeln!(told, "- {wrong}");
    }
    told
}

/// Ceilings, and what a step through matrices of each type reaches of reading.
fn speed_told(executor: &dyn Executor, kept: Option<&KeptCeilings>) -> String {
    let Some(kept) = kept else { return "## Speed\n\nnot measured\n".to_owned() };
    let trusted = kept.ceilings().filter(|_| kept.doubt().is_none());
    let reading = trusted.and_then(|ceilings| {
        let read = ceilings.read.iter().max_by_key(|read| (read.threads, read.working_set))?;
        Some(read.bytes_per_second)
    });
    let mut told = format!(
        "## Speed\n\n```\n{}\n```\n\nA step of one token through 256 MiB of weights, submission included:\n\n\
         | weights | ms | GB/s | of reading |\n|---|---:|---:|---:|\n",
        kept
    );
    let bar = ui::count_bar("measuring", TYPES.len() as u64);
    for ty in TYPES {
        let name = ty.name();
        let _ = match ceilings::step(executor, ty) {
            Ok((bytes, seconds)) => {
                let rate = bytes as f64 / seconds;
                let part = reading.map(|most| rate / most).filter(|part| *part <= ceilings::NOISE);
                let part =
                    part.map_or_else(String::new, |part| format!("{:.0} %", 100.0 * part.min(1.0)));
                let (ms, rate) = (units::three_figures(1e3 * seconds), rate / 1e9);
                writeln!(told, "| {name} | {ms} | {rate:.1} | {part} |")
            }
            Err(why) => writeln!(told, "| {name} | {why} | | |"),
        };
        bar.inc(1);
    }
    bar.finish_and_clear();
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: Check = Check { name: "right", run: |_| (), relies_on: &[] };
    const WRONG: Check =
        Check { name: "wrong", run: |_| panic!("one\nand the other differ"), relies_on: &[] };
    const REFUSED: Check = Check {
        name: "refused",
        run: |_| panic!("it loads: not supported: op `x`"),
        relies_on: &[],
    };

    /// What one check finds wrong is told, and the others are run.
    #[test]
    fn each_check_stands_for_itself() {
        let done = std::cell::Cell::new(0);
        let checks = [WRONG, REFUSED, RIGHT];
        let executor = ExecutorOptions { kind: ExecutorKind::Interpreter, ..Default::default() };
        let executor = executor.start().expect("it starts");
        let of_all = tally(&*executor, (GROUPS[0].0, &checks), &|| ());
        assert_eq!((of_all.unsupported, of_all.failed.len()), (0, 2), "all run those");
        let tally = tally(&*executor, ("made up", &checks), &|| done.set(done.get() + 1));
        assert_eq!((tally.passed, tally.unsupported, done.get()), (1, 1, 3));
        assert_eq!(tally.failed, [("wrong", "one and the other differ".to_owned())]);
        let told = checks_told(&[("made up", checks.to_vec())], &[tally]);
        assert!(told.contains("| made up | 1 | 1 | 0 | 1 | 0.0 |"), "{told}");
        assert!(told.ends_with("\n- `wrong`: one and the other differ\n"), "{told}");
    }
}
