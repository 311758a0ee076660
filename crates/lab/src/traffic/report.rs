//! What was counted as markdown tables, JSON and a picture.

use std::io::Write;

use comfy_table::{Cell as Field, CellAlignment, Table, presets};
use console::units::{decimal_bytes, short_seconds, thousands, three_figures};
use plot::{Axis, Figure, Lines, Picture, Series, Unit, si};
use serde_json::{Value, json};

use super::passes::{Course, Kind, Must, Passed, Recorded};

/// All that was counted.
pub(super) struct Report {
    pub(super) model: String,
    pub(super) machine: String,
    pub(super) isa: String,
    /// The most that these threads read, of a working set such as this model's, in bytes per second.
    pub(super) bandwidth: Option<f64>,
    /// Other programs ran when it was measured.
    pub(super) busy: bool,
    pub(super) course: Course,
    pub(super) recorded: Recorded,
    /// Another instruction set's name and course.
    pub(super) before: Option<(String, Recorded)>,
}

/// One kind of work in some passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sum {
    pub(super) kind: Kind,
    pub(super) must: Must,
    /// Bytes of matrices that kernels were given.
    pub(super) read: u64,
    pub(super) seconds: f64,
}

impl Sum {
    /// By kind, kinds without any phase left out.
    pub(super) fn of(passes: &[Passed]) -> Vec<Sum> {
        let sum = |kind: Kind| {
            let phases = || {
                passes.iter().flat_map(|pass| &pass.phases).filter(move |phase| phase.kind == kind)
            };
            phases().next()?;
            let must = passes.iter().map(|pass| pass.must[kind as usize]);
            let must = must.fold(Must::default(), |sum, must| Must {
                least: sum.least + must.least,
                most: sum.most + must.most,
                cache: sum.cache + must.cache,
            });
            let read = phases().map(|phase| phase.weights).sum();
            let seconds = phases().map(|phase| phase.seconds).sum();
            Some(Sum { kind, must, read, seconds })
        };
        Kind::ALL.into_iter().filter_map(sum).collect()
    }

    /// Bytes of matrices that had to be read, as far as that is known: of experts not more than were.
    fn due(&self) -> u64 {
        self.read.clamp(self.must.least, self.must.most.max(self.must.least))
    }

    /// How often matrices were read; `None` where there are none.
    pub(super) fn times(&self) -> Option<f64> {
        (self.due() > 0).then(|| self.read as f64 / self.due() as f64)
    }

    /// Bytes per second.
    fn rate(&self) -> f64 {
        (self.read + self.must.cache) as f64 / self.seconds
    }

    /// How often all that is due can have come from memory in this time, at most.
    fn most_from_memory(&self, bandwidth: f64) -> Option<f64> {
        let due = self.due() + self.must.cache;
        (due > 0).then(|| self.seconds * bandwidth / due as f64)
    }
}

const COLUMNS: [&str; 9] = [
    "kind",
    "must read",
    "kernels read",
    "times",
    "cache",
    "time",
    "GB/s",
    "of the ceiling",
    "from memory",
];

impl Report {
    pub(super) fn tables(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        writeln!(out, "{}\n{}", self.model, self.subtitle())?;
        for (title, passes) in self.groups() {
            writeln!(out, "\n{title}\n\n{}", self.table(passes))?;
        }
        writeln!(
            out,
            "\nTimes: kernels read / must read. From memory: what the ceiling lets through in this time, at most,"
        )?;
        Ok(writeln!(
            out,
            "over what must be read; below 1 some of it was in the processor's caches."
        )?)
    }

    fn table(&self, passes: &[Passed]) -> Table {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN).set_header(COLUMNS);
        for sum in Sum::of(passes) {
            let fields = self.fields(&sum).into_iter().enumerate().map(|(i, text)| {
                let left = if i == 0 { CellAlignment::Left } else { CellAlignment::Right };
                Field::new(text).set_alignment(left)
            });
            table.add_row(fields);
        }
        table
    }

    fn fields(&self, sum: &Sum) -> [String; 9] {
        let bytes = |n: u64| if n == 0 { String::new() } else { decimal_bytes(n as f64) };
        let Must { least, most, cache } = sum.must;
        let must = if most > least {
            format!("{} to {}", bytes(least), bytes(most))
        } else {
            bytes(least)
        };
        let rate = sum.rate();
        let reads = rate > 0.0;
        let least = |most: f64| (sum.read + sum.must.cache) as f64 / most;
        let share = self.bandwidth.filter(|_| reads);
        let share = share.and_then(|most| planner::share(least(most), sum.seconds));
        let memory = self.bandwidth.and_then(|most| sum.most_from_memory(most));
        [
            sum.kind.name().to_owned(),
            must,
            bytes(sum.read),
            sum.times().map(|times| format!("{times:.2}")).unwrap_or_default(),
            bytes(cache),
            short_seconds(sum.seconds),
            if reads { three_figures(rate / 1e9) } else { String::new() },
            share.map(|share| format!("{:.0} %", 100.0 * share)).unwrap_or_default(),
            memory.map(|times| format!("{} x at most", three_figures(times))).unwrap_or_default(),
        ]
    }

    pub(super) fn json(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let kinds = |passes: &[Passed]| {
            let kind = |sum: Sum| {
                json!({
                    "kind": sum.kind.name(),
                    "least_weight_bytes": sum.must.least,
                    "most_weight_bytes": sum.must.most,
                    "read_weight_bytes": sum.read,
                    "times": sum.times(),
                    "cache_bytes": sum.must.cache,
                    "seconds": sum.seconds,
                    "most_from_memory": self.bandwidth.and_then(|most| sum.most_from_memory(most)),
                })
            };
            Sum::of(passes).into_iter().map(kind).collect::<Vec<Value>>()
        };
        let pass = |pass: &Passed| {
            json!({
                "past": pass.load.past,
                "tokens": pass.load.tokens,
                "start_seconds": pass.start,
                "seconds": pass.seconds,
                "bytes": pass.bytes(),
            })
        };
        let all = self.recorded.prompt.iter().chain(&self.recorded.steps);
        let report = json!({
            "model": self.model,
            "machine": self.machine,
            "bytes_per_second": self.bandwidth,
            "busy": self.busy,
            "chunk": self.course.chunk,
            "cache_type": self.course.cache.name(),
            "prompt": kinds(&self.recorded.prompt),
            "steps": kinds(&self.recorded.steps),
            "passes": all.map(pass).collect::<Vec<Value>>(),
        });
        serde_json::to_writer_pretty(&mut *out, &report)?;
        Ok(writeln!(out)?)
    }

    /// Bandwidth over the whole course, and within the step of middling time.
    pub(super) fn picture(&self) -> Picture {
        let figure = Figure::new("Bandwidth over time")
            .subtitle(format!("{}; {}", self.model, self.subtitle()))
            .note(
                "Measured: bytes of matrices counted by the executor and bytes of the cache that must be read, over the time \
                 of a pass or phase. Limit: the most that these threads read of so much memory, as measured.",
            );
        figure.panel(self.course_panel()).panel(self.step_panel()).picture()
    }

    fn panel(&self, title: String, read: Axis) -> Lines {
        let chart =
            Lines::new(title).size(760.0, 240.0).x(Axis::linear("time", Unit::Si("s"))).y(read);
        match self.bandwidth {
            Some(most) => chart.mark_y(most, format!("limit: {}", si(most, "B/s"))),
            None => chart,
        }
    }

    fn course_panel(&self) -> Lines {
        let Course { prompt, steps, .. } = self.course;
        let title = format!("A prompt of {} tokens, then {} steps", count(prompt), count(steps));
        let rates = |recorded: &Recorded| {
            let passes = recorded.prompt.iter().chain(&recorded.steps);
            stairs(passes.map(|p| (p.start, p.seconds, p.bytes() as f64 / p.seconds)))
        };
        // steps by kernels of very different speed
        let mut chart = self.panel(title, Axis::log("read", Unit::Si("B/s")));
        let (mut name, colour) = ("measured".to_owned(), 0);
        if let Some((isa, before)) = &self.before {
            chart = chart.series(Series::new(format!("measured, {isa}"), rates(before)).colour(1));
            name = format!("measured, {}", self.isa);
        }
        chart.series(Series::new(name, rates(&self.recorded)).colour(colour))
    }

    fn step_panel(&self) -> Lines {
        let read = || Axis::linear("read", Unit::Si("B/s"));
        let mut steps: Vec<&Passed> = self.recorded.steps.iter().collect();
        steps.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let Some(step) = steps.get(steps.len() / 2) else {
            return self.panel("No step".into(), read());
        };
        let title = format!("Within a step at depth {}", count(step.load.past as usize));
        let mut at = 0.0;
        let mut phases = Vec::new();
        for phase in &step.phases {
            phases.push((phase.kind, (at, phase.seconds, phase.bytes() as f64 / phase.seconds)));
            at += phase.seconds;
        }
        let kinds = Kind::ALL.into_iter().filter(|kind| phases.iter().any(|(of, _)| of == kind));
        let panel = self.panel(title, read());
        kinds.fold(panel, |chart, kind| {
            let own = phases.iter().map(|(of, (start, seconds, rate))| {
                (*start, *seconds, if *of == kind { *rate } else { f64::NAN })
            });
            let name = format!("measured, {}", kind.name());
            chart.series(Series::new(name, stairs(own)).colour(kind as usize))
        })
    }

    fn groups(&self) -> [(String, &[Passed]); 2] {
        let Recorded { prompt, steps } = &self.recorded;
        let n = self.course.prompt;
        let passes =
            if prompt.len() == 1 { "1 pass".into() } else { format!("{} passes", prompt.len()) };
        let first = format!("Prompt of {} tokens in {passes}", count(n));
        let then = format!("{} steps from depth {} on", count(steps.len()), count(n));
        [(first, prompt), (then, steps)]
    }

    fn subtitle(&self) -> String {
        let ceiling = match self.bandwidth {
            Some(most) if self.busy => {
                format!("; reads {} at most, measured while other programs ran", si(most, "B/s"))
            }
            Some(most) => format!("; reads {} at most", si(most, "B/s")),
            None => String::new(),
        };
        format!("{}; cache {}{ceiling}", self.machine, self.course.cache.name())
    }
}

fn count(n: usize) -> String {
    thousands(n as u64)
}

/// A level from each start for so many seconds.
fn stairs(levels: impl Iterator<Item = (f64, f64, f64)>) -> Vec<(f64, f64)> {
    levels.flat_map(|(start, seconds, level)| [(start, level), (start + seconds, level)]).collect()
}

#[cfg(test)]
mod tests {
    use planner::Load;
    use program::CacheType;

    use super::super::passes::PhaseRead;
    use super::*;

    /// Two matrices of 600 bytes, a cache of 200, experts of 100 each of which 2 to 8 are due, in 10 ms.
    fn passed(start: f64) -> Passed {
        let phase = |kind, weights, cache| PhaseRead { kind, seconds: 0.0025, weights, cache };
        let must = |least, most, cache| Must { least, most, cache };
        Passed {
            load: Load { past: 5, tokens: 4, outputs: 1 },
            start,
            seconds: 0.01,
            phases: vec![
                phase(Kind::Linear, 1200, 0),
                phase(Kind::Attention, 0, 200),
                phase(Kind::Experts, 500, 0),
                phase(Kind::Rest, 0, 0),
            ],
            must: [must(1200, 1200, 0), must(200, 800, 0), must(0, 0, 200), must(0, 0, 0)],
        }
    }

    fn report() -> Report {
        let recorded = Recorded { prompt: vec![passed(0.0)], steps: vec![passed(0.01); 2] };
        Report {
            model: "a model".into(),
            machine: "a CPU".into(),
            isa: "avx2".into(),
            bandwidth: Some(1e6),
            busy: false,
            course: Course { prompt: 4, steps: 2, chunk: 512, cache: CacheType::F16 },
            before: Some(("scalar".into(), recorded.clone())),
            recorded,
        }
    }

    #[test]
    fn sums_by_kind() {
        let sums = Sum::of(&report().recorded.steps);
        let of = |kind| sums.iter().find(|sum| sum.kind == kind).expect("a kind");
        assert_eq!((of(Kind::Linear).read, of(Kind::Linear).times()), (2400, Some(1.0)));
        assert_eq!(of(Kind::Linear).rate(), 2400.0 / 0.005);
        // in 5 ms 5,000 bytes can have come from memory
        assert_eq!(of(Kind::Linear).most_from_memory(1e6), Some(5000.0 / 2400.0));
        assert_eq!(of(Kind::Experts).times(), Some(1.0));
        assert_eq!(
            (of(Kind::Attention).times(), of(Kind::Attention).rate()),
            (None, 400.0 / 0.005)
        );
        let twice = Sum { read: 4800, ..*of(Kind::Linear) };
        assert_eq!(twice.times(), Some(2.0));
        let more = Sum { read: 3200, ..*of(Kind::Experts) };
        assert_eq!(more.times(), Some(2.0));
    }

    #[test]
    fn tables_and_pictures_name_everything() {
        let mut out = Vec::new();
        report().tables(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for want in ["Prompt of 4 tokens in 1 pass", "200 B to 800 B", "2 steps from depth 4 on"] {
            assert!(text.contains(want), "{want}\n{text}");
        }
        let svg = report().picture().svg();
        for want in [
            "limit: 1 MB/s",
            "measured, avx2",
            "measured, scalar",
            "measured, experts",
            "Within a step at depth 5",
        ] {
            assert!(svg.contains(want), "{want}");
        }
        let mut out = Vec::new();
        report().json(&mut out).unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["steps"][0]["read_weight_bytes"], 2400);
        assert_eq!(value["passes"].as_array().unwrap().len(), 3);
    }
}
