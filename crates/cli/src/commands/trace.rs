//! `trace`: statistics of every node's values in one pass, computed by the reference interpreter.

use std::io::Write;

use anyhow::Context as _;
use executors::{ExecutorKind, ExecutorOptions};
use models::GgufWeights;
use program::{CacheOptions, CacheType, Dump, Outputs, Program, Sequence, Step, ValueId};
use serde_json::{Value, json};

use super::tokenize::parse_ids;
use crate::args::{ContextArgs, ModelArgs};
use crate::exit::Failure;
use crate::rope::RopeArgs;
use crate::similar::nearest;
use crate::{load, ui};

/// Show what each node of a model computes: sums, extremes, NaN
///
/// The reference interpreter runs one pass of the given tokens in plain f32. For each node of the program it prints the name as in `rooflight show --program`, the rows and columns, the sum, least and greatest of the numbers, how many are NaN or infinite, and the first of them.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  rooflight trace model.gguf --tokens '9707 11 1879'\n  \
                        rooflight trace model.gguf --tokens '9707 11' --node blk.0\n  \
                        rooflight trace --tokens 1 --json | jq '.[] | select(.nan > 0)'\n\n\
                        Without a model the bundled one is traced. A node is picked by its name or what its name begins with, up to a dot.")]
pub(super) struct Trace {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids, separated by spaces: rooflight tokenize prints those of a text
    #[arg(long, value_name = "IDS")]
    tokens: String,
    /// Only nodes with this name or prefix: blk.0, blk.3.attn_norm; may be given several times
    #[arg(long, value_name = "NAME")]
    node: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    rope: RopeArgs,
}

/// How many numbers are printed for each node.
const FIRST: usize = 6;

impl Trace {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let tokens = parse_ids(&self.tokens)?;
        if tokens.is_empty() {
            return Err(Failure::Usage("--tokens: expected at least one id".into()).into());
        }
        let mut gguf = load::open_or_bundled(self.model.given().as_deref())?;
        self.rope.apply(&mut gguf)?;
        let loaded = models::load(&gguf).context("reading the model")?;
        let capacity = match self.context.ctx_size {
            Some(_) => self.context.capacity(loaded.config.context_length),
            None => tokens.len(),
        };
        load::check_positions(loaded.program.n_positions(), capacity as u64)?;
        let loaded = loaded.within(&gguf, capacity).context("reading the model")?;
        let wanted = picked(&loaded.program, &self.node)?;
        let options = ExecutorOptions { kind: ExecutorKind::Interpreter, ..Default::default() };
        let executor = options.start()?;
        let bar = ui::bytes_bar("loading", 0);
        let model = executor.load(loaded.program, &GgufWeights(&gguf), &mut |progress| {
            bar.set_length(progress.total);
            bar.set_position(progress.done);
        });
        bar.finish_and_clear();
        let model = model.context("loading the model")?;
        let cache = CacheOptions::new(CacheType::F32, CacheType::F32, capacity);
        let session = model.open(&cache)?;
        let sequences = [Sequence {
            session,
            tokens: &tokens,
            outputs: Outputs::LAST,
            prompt: None,
            rows: &[],
        }];
        let trace = model.trace(&Step { sequences: &sequences }, &wanted)?;
        let figures: Vec<Figures> = trace.values.iter().map(Figures::of).collect();
        if self.json {
            let all: Vec<Value> = figures.iter().map(Figures::to_json).collect();
            return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
        }
        figures.iter().try_for_each(|figures| writeln!(out, "{}", figures.line()))?;
        let bad = figures.iter().find(|figures| figures.nan + figures.infinite > 0);
        if let Some(first) = bad {
            ui::warn(&format!("{} is the first node with numbers that are not finite", first.name));
        }
        Ok(())
    }
}

/// Returns the values of the named nodes in program order; all nodes if no name is given.
///
/// # Errors
/// [`Failure::Usage`] if no node matches a name.
fn picked(program: &Program, names: &[String]) -> Result<Vec<ValueId>, Failure> {
    let name = |id: ValueId| &*program.value(id).name;
    let all: Vec<ValueId> = program.nodes.iter().map(|node| node.output).collect();
    let matches = |wanted: &str, found: &str| {
        found.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for wanted in names {
        if !all.iter().any(|id| matches(wanted, name(*id))) {
            // a name can be a node's full name or a prefix of it up to a dot
            let beginnings = |name: &str| -> Vec<String> {
                let ends = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
                ends.map(|end| name[..end].to_owned()).collect()
            };
            let known: Vec<String> = all.iter().flat_map(|id| beginnings(name(*id))).collect();
            let near = nearest(wanted, known.iter().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!(", did you mean {near}?"));
            return Err(Failure::Usage(format!(
                "--node {}: the program has no such node{near}; rooflight show --program lists them",
                gguf::escape(wanted.as_str(), 60)
            )));
        }
    }
    let is_picked =
        |id: &ValueId| names.is_empty() || names.iter().any(|wanted| matches(wanted, name(*id)));
    Ok(all.into_iter().filter(is_picked).collect())
}

/// Statistics of the values of one node.
#[derive(Clone, Debug, PartialEq)]
struct Figures {
    name: String,
    rows: usize,
    columns: usize,
    /// Sum of the finite numbers.
    sum: f64,
    least: Option<f32>,
    greatest: Option<f32>,
    nan: usize,
    infinite: usize,
    first: Vec<f32>,
}

impl Figures {
    fn of(dump: &Dump) -> Figures {
        let finite = || dump.data.iter().copied().filter(|x| x.is_finite());
        Figures {
            name: dump.name.clone(),
            rows: dump.data.len() / dump.cols.max(1),
            columns: dump.cols,
            sum: finite().map(f64::from).sum(),
            least: finite().reduce(f32::min),
            greatest: finite().reduce(f32::max),
            nan: dump.data.iter().filter(|x| x.is_nan()).count(),
            infinite: dump.data.iter().filter(|x| x.is_infinite()).count(),
            first: dump.data.iter().copied().take(FIRST).collect(),
        }
    }

    /// Returns name and statistics on one line, and the first numbers on a second line.
    fn line(&self) -> String {
        let Figures { name, rows, columns, sum, nan, infinite, .. } = self;
        let number = |x: Option<f32>| x.map_or_else(|| "-".to_owned(), |x| format!("{x:.5}"));
        let (least, greatest) = (number(self.least), number(self.greatest));
        let bad = match (nan, infinite) {
            (0, 0) => String::new(),
            (nan, infinite) => format!("  NaN {nan}, infinite {infinite}"),
        };
        let first: Vec<String> = self.first.iter().map(|x| format!("{x:.5}")).collect();
        let more = if self.rows * self.columns > FIRST { " ..." } else { "" };
        format!(
            "{name} [{rows}, {columns}]  sum {sum:.5}  min {least}  max {greatest}{bad}\n    {}{more}",
            first.join(" ")
        )
    }

    fn to_json(&self) -> Value {
        // JSON cannot represent NaN and infinity as numbers
        let number = |x: &f32| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
        json!({
            "name": self.name,
            "shape": [self.rows, self.columns],
            "sum": self.sum,
            "min": self.least,
            "max": self.greatest,
            "nan": self.nan,
            "infinite": self.infinite,
            "first": self.first.iter().map(number).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_leave_out_what_is_not_finite() {
        let data = vec![1.0, f32::NAN, -3.0, f32::INFINITY, 0.5, 2.0, 4.0, 8.0];
        let dump = Dump { name: "blk.0.norm".into(), cols: 4, data };
        let figures = Figures::of(&dump);
        assert_eq!((figures.rows, figures.columns, figures.sum), (2, 4, 12.5));
        assert_eq!((figures.least, figures.greatest), (Some(-3.0), Some(8.0)));
        assert_eq!((figures.nan, figures.infinite), (1, 1));
        let line = figures.line();
        assert!(line.contains("NaN 1, infinite 1") && line.ends_with("..."), "{line}");
        let told = figures.to_json();
        assert_eq!(told["first"][1], "NaN");
        assert_eq!(told["first"].as_array().map(Vec::len), Some(FIRST));
        let empty = Figures::of(&Dump { name: "x".into(), cols: 4, data: Vec::new() });
        assert!(empty.line().contains("min -"), "{}", empty.line());
    }

    #[test]
    fn nodes_are_picked_by_name() {
        let config = conformance::tiny_config("qwen2", 64, false);
        let program = conformance::tiny_model(&config, quant::GgmlType::F32);
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            picked(&program, &names).map(|ids| ids.len())
        };
        assert_eq!(count(&[]).expect("all"), program.nodes.len());
        let first = &program.value(program.nodes[0].output).name;
        assert_eq!(count(&[first]).expect("one"), 1);
        let block = count(&["blk.0"]).expect("a block");
        assert!(block > 1 && block < program.nodes.len());
        let error = count(&["blk.99"]).expect_err("there are fewer").to_string();
        assert!(error.contains("--node blk.99") && error.contains("show --program"), "{error}");
        let error = count(&["bkl.0"]).expect_err("a slip").to_string();
        assert!(error.contains("did you mean blk.0?"), "{error}");
    }
}
