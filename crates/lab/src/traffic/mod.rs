//! `traffic`: what a model's passes read, counted by the executor as they run, beside what they must read; and the
//! bandwidth they reach, over time. Counting is in `passes.rs`, what is shown of it in `report.rs`.

mod passes;
mod report;

use std::io::Write;
use std::path::PathBuf;

use console::args::{IsaArgs, ThreadArgs};
use console::output::OutputArgs;
use console::{args, ceilings, counts, picture, runtime};
use executors::ExecutorOptions;
use kernels::Isa;
use planner::Machine;
use program::CacheType;

use crate::subject::Subject;
use passes::{Course, Recorded};
use report::Report;

/// Count what a model's passes read, and how fast
///
/// A prompt in chunks, then steps. Of each kind of work: the bytes of matrices that it must read, those that kernels were
/// given, counted by the executor as it ran, the cache it reads, and the most that can have come from memory in that time.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight-lab traffic model.gguf\n  \
                  rooflight-lab traffic model.gguf -p 512 --chunk 64 -n 8 --json\n  \
                  rooflight-lab traffic model.gguf --before scalar --plot bandwidth.svg\n\n\
                  Matrices are read once for all rows of a pass: \"times\" is 1.00, a little more for chunks that nothing is wanted of but their \
                  cache. A chunk of more than 512 rows reads them again, from the \
                  processor's caches. Experts are read once each, if any row uses them.")]
pub(super) struct Traffic {
    /// A GGUF file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Tokens of the prompt
    #[arg(short = 'p', long, value_name = "N", value_parser = counts::tokens, default_value = "512")]
    prompt: usize,
    /// Steps of one token after it
    #[arg(short = 'n', long, value_name = "N", value_parser = counts::tokens, default_value = "32")]
    steps: usize,
    /// Most tokens of the prompt in a pass
    #[arg(long, value_name = "N", value_parser = counts::chunk, default_value = "512")]
    chunk: usize,
    /// Type of cached keys and values (-ctk): f32, f16, q8_0
    #[arg(long, value_name = "TYPE", value_parser = args::cache_type, default_value = "f16")]
    cache_type_k: CacheType,
    /// Draw a second course in the chart, by this instruction set at most: scalar, avx2, avx512
    #[arg(long, value_name = "ISA", value_parser = args::isa, requires = "plot")]
    before: Option<Isa>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Draw bandwidth over time into a file, .svg
    #[arg(long, value_name = "FILE", value_parser = picture::path)]
    plot: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    isa: IsaArgs,
}

impl Traffic {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.plot.iter().try_for_each(|path| self.output.check(path))?;
        let subject = Subject::open(&self.model)?;
        let threads = args::threads_to_start(self.threads.count());
        let options = ExecutorOptions { threads, isa: self.isa.isa, ..Default::default() };
        let cpu = options.cpu();
        let known = ceilings::kept_or_measured(runtime(), &cpu);
        let course = Course {
            prompt: self.prompt,
            steps: self.steps,
            chunk: self.chunk,
            cache: self.cache_type_k,
        };
        let recorded = Recorded::run(&subject, &cpu, course)?;
        let before = match self.before {
            Some(isa) => {
                let cpu = ExecutorOptions { isa: Some(isa), ..options.clone() }.cpu();
                Some((cpu.isa().name().to_owned(), Recorded::run(&subject, &cpu, course)?))
            }
            None => None,
        };
        let working_set = recorded.working_set();
        let machine = known
            .as_ref()
            .and_then(|known| Machine::measured(&known.ceilings, cpu.threads(), working_set));
        let report = Report {
            model: subject.title(),
            machine: ceilings::machine(&cpu),
            isa: cpu.isa().name().to_owned(),
            bandwidth: machine.map(|machine| machine.bandwidth),
            busy: known.is_some_and(|known| known.doubt.is_some()),
            course,
            recorded,
            before,
        };
        if let Some(path) = &self.plot {
            picture::write(path, &report.picture(), self.output)?;
        }
        if self.json { report.json(out) } else { report.tables(out) }
    }
}
