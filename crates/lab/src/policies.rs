//! `policies`: the time of a step against the length of its context, for each way to read that.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use console::output::{OutputArgs, shown};
use console::{counts, ui};
use plot::{Axis, Lines, Series, Unit};

use crate::product::{Product, ProductArgs, number};

/// Files that are written.
const CSV: &str = "steps.csv";
const PICTURE: &str = "steps.svg";

/// Time steps at some depths, by what they read of the context
///
/// Each round goes over all policies, so that what disturbs the machine disturbs all of them; figures are medians over
/// rounds. Contexts have made-up rows. The machine should have nothing else to do.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight-lab policies model.gguf --out docs/context-memory --force\n  \
                  rooflight-lab policies model.gguf -d 8192,65536 --policy full,infllm --beside llama.cpp=other.csv --out folder\n\n\
                  Writes steps.csv and steps.svg."
)]
pub(super) struct Policies {
    /// A GGUF file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The folder to write into
    #[arg(short, long, value_name = "FOLDER")]
    out: PathBuf,
    /// Positions in the cache
    #[arg(short = 'd', long, value_name = "LIST", value_delimiter = ',', value_parser = counts::tokens,
          default_value = "8192,16384,32768,65536,131072")]
    depths: Vec<usize>,
    /// What is read of them
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "full,window,infllm,quest"
    )]
    policy: Vec<String>,
    /// Steps of a sample
    #[arg(short = 'n', long, value_name = "N", value_parser = counts::tokens, default_value = "16")]
    steps: usize,
    /// Rounds
    #[arg(short, long, value_name = "N", value_parser = counts::tokens, default_value = "3")]
    rounds: usize,
    /// Another program's times: lines of a depth, a comma and the milliseconds of a step
    #[arg(long, value_name = "NAME=FILE", value_parser = beside)]
    beside: Vec<(String, PathBuf)>,
    #[command(flatten)]
    product: ProductArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn beside(text: &str) -> Result<(String, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("expected NAME=FILE")?;
    Ok((name.into(), file.into()))
}

/// Steps of one policy, or of another program: seconds by depth.
#[derive(Clone, Debug, Default, PartialEq)]
struct Line {
    name: String,
    points: Vec<(usize, f64)>,
}

/// What was measured of a model.
struct Page {
    model: String,
    on: String,
    depths: Vec<usize>,
    lines: Vec<Line>,
}

impl Policies {
    pub(super) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("making the folder {}", shown(&self.out)))?;
        let names = [CSV, PICTURE].map(|name| self.out.join(name));
        names.iter().try_for_each(|path| self.output.check(path))?;
        let others = self.beside.iter().map(|(name, path)| other(name, path));
        let others = others.collect::<anyhow::Result<Vec<_>>>()?;
        let mut page = self.measure(&self.product.start()?)?;
        page.lines.extend(others);
        self.output.write(&names[0], page.csv().as_bytes())?;
        self.output.write(&names[1], page.picture().as_bytes())?;
        Ok(write!(out, "{}", page.markdown())?)
    }

    fn measure(&self, product: &Product) -> anyhow::Result<Page> {
        let depths = self.depths.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let steps = self.steps.to_string();
        let mut samples = vec![vec![Vec::new(); self.depths.len()]; self.policy.len()];
        let (mut model, mut on) = (String::new(), String::new());
        let bar = ui::count_bar("policies", (self.rounds * self.policy.len()) as u64);
        for _ in 0..self.rounds {
            for (samples, policy) in samples.iter_mut().zip(&self.policy) {
                let flags = ["-p", "0", "-n", &steps, "-d", &depths, "-r", "1"];
                let rows =
                    product.bench(&self.model, &[&flags[..], &["--kv-policy", policy]].concat())?;
                ensure!(rows.len() == samples.len(), "rooflight bench printed {} rows", rows.len());
                for (samples, row) in samples.iter_mut().zip(&rows) {
                    samples.push(1.0 / number(row, "avg_ts")?);
                    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
                    model = text("model_type");
                    on = format!("{}, {} threads", text("cpu_info"), number(row, "n_threads")?);
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        let line = |(name, samples): (&String, Vec<Vec<f64>>)| Line {
            name: name.clone(),
            points: self.depths.iter().copied().zip(samples.into_iter().map(median)).collect(),
        };
        let lines = self.policy.iter().zip(samples).map(line).collect();
        Ok(Page { model, on, depths: self.depths.clone(), lines })
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Times that a file has.
fn other(name: &str, path: &Path) -> anyhow::Result<Line> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", shown(path)))?;
    let points = points(&text)
        .map_err(|line| anyhow!("{} line {line}: expected `depth,milliseconds`", shown(path)))?;
    Ok(Line { name: name.into(), points })
}

/// Depths and seconds, or the number of the line that has neither.
fn points(text: &str) -> Result<Vec<(usize, f64)>, usize> {
    let point = |line: &str| {
        let (depth, time) = line.split_once(',')?;
        let time = time.trim().parse().ok().filter(|time: &f64| *time > 0.0 && time.is_finite())?;
        Some((depth.trim().parse().ok()?, time / 1e3))
    };
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(i, line)| point(line).ok_or(i)).collect()
}

impl Line {
    fn at(&self, depth: usize) -> Option<f64> {
        self.points.iter().find(|point| point.0 == depth).map(|point| point.1)
    }
}

impl Page {
    fn csv(&self) -> String {
        let mut out = String::from("policy,depth,milliseconds\n");
        for line in &self.lines {
            for (depth, seconds) in &line.points {
                let _ = writeln!(out, "{},{depth},{:.3}", line.name, seconds * 1e3);
            }
        }
        out
    }

    /// Milliseconds, and how many times those at the first depth the last ones are.
    fn markdown(&self) -> String {
        let mut out = format!("{}, {}\n\n| ms a step |", self.model, self.on);
        self.depths.iter().for_each(|depth| out += &format!(" {depth} |"));
        out += " last to first |\n|---|";
        self.depths.iter().for_each(|_| out += "---:|");
        out += "---:|\n";
        for line in &self.lines {
            let _ = write!(out, "| {} |", line.name);
            let times: Vec<_> = self.depths.iter().map(|depth| line.at(*depth)).collect();
            for time in &times {
                out += &time.map_or_else(|| " |".into(), |time| format!(" {:.1} |", time * 1e3));
            }
            let ratio = times.last().copied().flatten().zip(times.first().copied().flatten());
            out += &ratio.map_or_else(
                || " |\n".into(),
                |(last, first)| format!(" {:.2}x |\n", last / first),
            );
        }
        out
    }

    fn picture(&self) -> String {
        let mut lines = Lines::new("A step's time against the length of its context")
            .subtitle(format!("{}, {}; medians", self.model, self.on))
            .size(760.0, 380.0)
            .x(Axis::log2("tokens in the context", Unit::Plain("tokens")))
            .y(Axis::log("time of a step", Unit::Si("s")));
        for line in &self.lines {
            let points = line.points.iter().map(|(depth, seconds)| (*depth as f64, *seconds));
            lines = lines.series(Series::new(&*line.name, points).dots());
        }
        lines.picture().svg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_say_what_was_measured() {
        let points = points("8, 40\n\n32,160.5\n").expect("it is read");
        assert_eq!(points, [(8, 0.04), (32, 0.1605)]);
        let other = Line { name: "else".into(), points };
        let ours =
            Line { name: "window".into(), points: vec![(8, 0.01), (16, 0.011), (32, 0.0125)] };
        let page = Page {
            model: "m".into(),
            on: "c, 2 threads".into(),
            depths: vec![8, 16, 32],
            lines: vec![ours, other],
        };
        assert_eq!(
            page.csv(),
            "policy,depth,milliseconds\nwindow,8,10.000\nwindow,16,11.000\nwindow,32,12.500\n\
             else,8,40.000\nelse,32,160.500\n"
        );
        let told = page.markdown();
        assert!(told.contains("| window | 10.0 | 11.0 | 12.5 | 1.25x |"), "{told}");
        assert!(told.contains("| else | 40.0 | | 160.5 | 4.01x |"), "{told}");
        assert!(page.picture().contains("window"));
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for wrong in ["8", "8,x", "-1,3", "8,0", "8,inf"] {
            assert_eq!(points(&format!("4,1\n{wrong}\n")), Err(2), "{wrong}");
        }
        assert!(beside("name").is_err());
    }
}
