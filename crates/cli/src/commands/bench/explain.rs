//! `bench --explain`: where the time between the limit and the measured speed goes, part by part, and what to do.

use std::fmt::Write as _;

use planner::{CostKind, Prediction, Resource};
use plot::{Axis, Figure, Picture, Unit, Waterfall};
use program::{Program, Reading};
use serde::Serialize;

use super::measure::{Test, Timing};
use crate::ceilings::{Doubt, NOISE};
use crate::limits::{Limits, Share};

/// One test, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Explanation {
    /// Seconds measured, all phases timed.
    measured_seconds: f64,
    /// Least seconds on this machine, everything overlapping.
    limit_seconds: f64,
    bound_by: &'static str,
    /// Absent where it says nothing: of work that is too small, and above 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    /// Why shares of the limit are unreliable, if they are.
    #[serde(skip)]
    doubt: Option<Doubt>,
    /// Whether shares of the limit are unreliable.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    limit_busy: bool,
    /// Seconds to be expected from the rates of our kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_seconds: Option<f64>,
    /// Of the gap, what the limit wins by overlapping parts that run one after another.
    overlap_seconds: f64,
    /// The parts, largest gap first: gaps and overlap add up to the whole gap.
    groups: Vec<Group>,
    /// Tokens of a prompt per pass.
    chunk: u64,
    /// The best of them by the rates of our kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    best_chunk: Option<u64>,
    /// The shortest prompt whose arithmetic takes longer than its reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    inflection: Option<u64>,
    remedies: Vec<String>,
    #[serde(skip)]
    judged: Option<Share>,
    /// What the weights of the layers are, and of the head.
    #[serde(skip)]
    weights: [WeightKind; 2],
    /// Phases, each of which ends at a barrier.
    phases: usize,
    /// Seconds that the threads wait for each other at the end of one, as measured.
    phase_seconds: f64,
    /// A GPU ran it.
    #[serde(skip)]
    on_gpu: bool,
    #[serde(skip)]
    name: String,
    /// Tokens that the time is told for: each of a run of steps, all of a prompt.
    #[serde(skip)]
    per: usize,
}

/// A part of the work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Group {
    name: &'static str,
    measured_seconds: f64,
    /// Its own least time.
    limit_seconds: f64,
    /// What binds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_by: Option<&'static str>,
    gap_seconds: f64,
}

impl Group {
    fn new(name: &'static str, measured: f64, limit: Option<&Prediction>) -> Group {
        // waiting at barriers is a part of its own
        let limit = limit.map(|limit| Prediction { barriers: 0.0, ..*limit });
        let least = limit.as_ref().map_or(0.0, Prediction::limit);
        let bound_by = limit.filter(|_| least > 0.0).map(|limit| limit.binds().name());
        Group {
            name,
            measured_seconds: measured,
            limit_seconds: least,
            bound_by,
            gap_seconds: measured - least,
        }
    }

    /// Of a part that is large enough in `whole` seconds to be judged.
    fn share(&self, whole: f64) -> Option<f64> {
        let counts = self.measured_seconds > SMALL_PART * whole;
        planner::share(self.limit_seconds, self.measured_seconds).filter(|_| counts)
    }
}

/// Parts of the time below which a share says nothing.
const SMALL_PART: f64 = 0.01;

/// Measured seconds and number of phases of each kind.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    seconds: f64,
    phases: usize,
}

/// Which kind a phase belongs to.
fn kind_of(head: &[&str], name: &str, kind: &str) -> CostKind {
    match kind {
        "attention" => CostKind::Attention,
        "conv" | "scan" => CostKind::States,
        "linear" if head.contains(&name) => CostKind::Head,
        "linear" | "experts" => CostKind::Linear,
        "embed" => CostKind::Embed,
        _ => CostKind::Rest,
    }
}

/// Names of the matrices outside of all layers.
fn head(program: &Program) -> Vec<&str> {
    let heads = program.nodes.iter().filter(|node| node.layer.is_none());
    let weights = heads.flat_map(|node| node.op.facts().weights);
    let matrices = weights.filter(|used| used.reading == Reading::Matrix);
    matrices.map(|used| &*program.weight(used.id).name).collect()
}

/// What matrices are made of: advice depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct WeightKind {
    /// The type that takes most bytes.
    ty: &'static str,
    /// Bits that a weight takes on average.
    bits: f64,
    /// Some are in blocks of 256.
    large_blocks: bool,
}

impl WeightKind {
    /// Of the matrices within layers, or of those outside.
    fn of(program: &Program, layers: bool) -> WeightKind {
        let nodes = program.nodes.iter().filter(|node| node.layer.is_some() == layers);
        let weights = nodes.flat_map(|node| node.op.facts().weights);
        let matrices = weights.filter(|used| used.reading == Reading::Matrix);
        let matrices: Vec<_> = matrices.map(|used| program.weight(used.id)).collect();
        let largest = matrices.iter().max_by_key(|weight| weight.bytes());
        let bytes: u64 = matrices.iter().map(|weight| weight.bytes()).sum();
        let elements: usize = matrices.iter().map(|weight| weight.rows * weight.cols).sum();
        WeightKind {
            ty: largest.map_or("", |weight| weight.ty.name()),
            bits: 8.0 * bytes as f64 / elements.max(1) as f64,
            large_blocks: matrices.iter().any(|weight| weight.ty.block_len() > 32),
        }
    }

    /// What reading less would take.
    fn fewer_bits(self) -> String {
        let WeightKind { ty, bits, .. } = self;
        match bits {
            5.0.. => format!(
                "{ty} has {bits:.1} bits a weight: a type of fewer, such as Q4_K_M, has less to read"
            ),
            _ => format!(
                "{ty} has {bits:.1} bits a weight, and fewer cost quality: a smaller model has less to read"
            ),
        }
    }
}

impl Explanation {
    /// Of a test that was timed phase by phase.
    pub(super) fn new(program: &Program, test: Test, timing: &Timing, limits: &Limits) -> Self {
        let head = head(program);
        let mut spent = [Spent::default(); CostKind::ALL.len()];
        for phase in &timing.phases {
            let spent = &mut spent[kind_of(&head, &phase.name, phase.kind) as usize];
            spent.seconds += phase.elapsed.as_secs_f64();
            spent.phases += usize::from(!phase.elapsed.is_zero());
        }
        let phases = spent.iter().map(|spent| spent.phases).sum();
        let inside: f64 = spent.iter().map(|spent| spent.seconds).sum();
        let measured = timing.wall.as_secs_f64() + timing.sampling.as_secs_f64();
        let limit_of = |kind| limits.of_kind(kind, test.depth, test.n_prompt, test.n_gen);
        let whole = CostKind::ALL.into_iter().map(limit_of);
        let whole = whole.fold(Prediction::default(), |sum, part| sum.plus(&part));

        let mut groups = Vec::new();
        let mut waited = 0.0;
        let mut add = |name, kinds: &[CostKind]| {
            let limit = kinds.iter().map(|kind| limit_of(*kind));
            let limit = limit.fold(Prediction::default(), |sum, part| sum.plus(&part));
            let of = |kind: &CostKind| spent[*kind as usize];
            let seconds: f64 = kinds.iter().map(|kind| of(kind).seconds).sum();
            let phases: usize = kinds.iter().map(|kind| of(kind).phases).sum();
            // no more than half of a part is taken for waiting, nor so much that the rest would beat its limit
            let most = (seconds / 2.0).min((seconds - limit.limit()).max(0.0));
            let waiting = (phases as f64 * limits.phase()).min(most);
            waited += waiting;
            groups.push(Group::new(name, seconds - waiting, Some(&limit)));
        };
        add("weights", &[CostKind::Linear]);
        add("attention", &[CostKind::Attention]);
        add("states", &[CostKind::States]);
        add("head", &[CostKind::Head]);
        add("norms", &[CostKind::Embed, CostKind::Rest]);
        let barriers = whole.barriers;
        groups.push(Group {
            name: "barriers",
            measured_seconds: waited,
            limit_seconds: barriers,
            bound_by: Some(Resource::Barriers.name()),
            gap_seconds: waited - barriers,
        });
        if test.n_gen > 0 {
            groups.push(Group::new("sampling", timing.sampling.as_secs_f64(), None));
        }
        groups.push(Group::new("unaccounted", timing.wall.as_secs_f64() - inside, None));
        // most models have no states, some nothing that attends
        groups.retain(|group: &Group| {
            !["attention", "states"].contains(&group.name)
                || group.measured_seconds + group.limit_seconds > 0.0
        });
        groups.sort_by(|a, b| b.gap_seconds.total_cmp(&a.gap_seconds));
        let limit = whole.limit();
        let judged = limits.judge(&whole, measured);
        let one_by_one: f64 = groups.iter().map(|group| group.limit_seconds).sum();
        let (chunk, best_chunk, inflection) = limits.chunks();
        let expected = limits.expected(test.depth, test.n_prompt, test.n_gen);
        let mut explanation = Explanation {
            measured_seconds: measured,
            limit_seconds: limit,
            bound_by: whole.binds().name(),
            share: judged.and_then(|share| match share {
                Share::Part(part) => Some(part),
                Share::Above => None,
            }),
            doubt: limits.doubt(),
            limit_busy: limits.doubt().is_some(),
            judged,
            weights: [true, false].map(|layers| WeightKind::of(program, layers)),
            phases,
            phase_seconds: limits.phase(),
            on_gpu: limits.on_gpu(),
            expected_seconds: expected,
            overlap_seconds: one_by_one - limit,
            groups,
            chunk,
            best_chunk,
            inflection,
            remedies: Vec::new(),
            name: test.name(),
            per: if test.n_prompt == 0 { test.n_gen } else { 1 },
        };
        explanation.remedies = explanation.find_remedies(test);
        explanation
    }

    /// What to do about the three largest gaps that matter, and about constants that are wrong.
    fn find_remedies(&self, test: Test) -> Vec<String> {
        let mut remedies = Vec::new();
        if self.judged == Some(Share::Above) {
            remedies.push(Doubt::Exceeded.message().to_owned());
        }
        remedies.extend(self.doubt.map(|doubt| doubt.message().to_owned()));
        if let Some(expected) = self.expected_seconds.filter(|t| self.measured_seconds > 1.25 * t) {
            remedies.push(format!(
                "all took {:.1} times as long as our kernels should: other programs run, or rooflight machine --refresh is due",
                self.measured_seconds / expected
            ));
        }
        let matters = |group: &&Group| group.gap_seconds > 0.02 * self.measured_seconds;
        for group in self.groups.iter().filter(matters).take(3) {
            let of_time = 100.0 * group.measured_seconds / self.measured_seconds;
            let reached = match (group.share(self.measured_seconds), group.bound_by) {
                (Some(share), Some(bound)) if group.name != "barriers" && self.is_known(share) => {
                    format!(" at {:.0} % of what {bound} allows", 100.0 * share)
                }
                _ => String::new(),
            };
            let verb = if group.name == "weights" { "take" } else { "takes" };
            let verb =
                if ["barriers", "norms", "states"].contains(&group.name) { "take" } else { verb };
            remedies.push(format!(
                "{} {verb} {of_time:.0} % of the time{reached}: {}",
                group.name,
                self.remedy(group, test)
            ));
        }
        remedies
    }

    fn remedy(&self, group: &Group, test: Test) -> String {
        let prompt = test.n_prompt > test.n_gen;
        let [layers, head] = self.weights;
        let floats = [Resource::F32, Resource::F16, Resource::Bf16].map(|r| Some(r.name()));
        let float = floats.contains(&group.bound_by);
        match (group.name, prompt) {
            ("weights", true) if self.best_chunk.is_some_and(|best| best > self.chunk) => {
                format!("-ub {} shares their unpacking", self.best_chunk.unwrap_or(self.chunk))
            }
            ("weights", true) if test.n_prompt < 64 => {
                "few rows share their unpacking; longer prompts come closer".into()
            }
            ("weights", true) if float && !self.on_gpu => {
                format!("{} multiplies in floats: types in blocks (Q8_0, Q4_K) do in 8 bits", layers.ty)
            }
            ("weights", true) if layers.large_blocks && !self.on_gpu => {
                format!("{} is in blocks of 256: those of 32 (Q4_0, Q8_0) unpack faster", layers.ty)
            }
            ("weights", true) if self.on_gpu => {
                "weights are unpacked and multiplied in floats; a prompt that begins as the last one did is not computed again"
                    .into()
            }
            ("weights", true) => {
                "arithmetic in 8 bits: more cores, or a prompt that begins as the last one did".into()
            }
            ("weights", false) => layers.fewer_bits(),
            ("head", false) => head.fewer_bits(),
            ("head", true) => "one row of logits per prompt; longer prompts share it".into(),
            ("attention", true) => {
                "it grows with the square of the length; a prompt that begins as the last one did is not computed again"
                    .into()
            }
            ("attention", false) if test.depth + test.tokens() < 1024 => {
                "short caches are waited for, not streamed; it fades with depth".into()
            }
            ("attention", false) if self.on_gpu => "the past is read whole for each token".into(),
            ("attention", false) => "-ctk q8_0 -ctv q8_0 read about half of f16".into(),
            ("barriers", _) if self.on_gpu => format!(
                "each of {} waits for the one before, {} as measured: they weigh less in larger models",
                self.phases_in_words(),
                crate::units::short_seconds(self.phase_seconds)
            ),
            ("barriers", _) => format!(
                "at the end of each of {} threads wait for the slowest, {} as measured: \
                 fewer threads by -t wait less, other programs make it more",
                self.phases_in_words(),
                crate::units::short_seconds(self.phase_seconds)
            ),
            ("states", true) => {
                "rows change them one after another: it grows with the length and no faster".into()
            }
            ("states", false) => {
                "they are read whole for each token, however short the text".into()
            }
            ("norms", _) => "longer prompts or deeper models make it small".into(),
            ("sampling", _) => "--temp 0, or a smaller --top-k".into(),
            _ if self.on_gpu => {
                "recording, submitting and reading back, and waiting until that is known".into()
            }
            _ => "waking threads, laying out memory, copying logits; -t 1 has none of the first".into(),
        }
    }

    /// Those of what times are told for.
    fn phases_in_words(&self) -> String {
        let of = if self.per > 1 { " a token" } else { "" };
        format!("{} phases{of}", self.phases / self.per.max(1))
    }

    /// Whether this share of a limit is reliable.
    fn is_known(&self, share: f64) -> bool {
        share <= NOISE && self.doubt.is_none()
    }

    fn share_in_words(&self) -> String {
        match self.judged {
            Some(Share::Part(part)) => format!("{:.0} % of limit", 100.0 * part),
            Some(Share::Above) => "faster than the limit that was measured".to_owned(),
            None if self.doubt.is_some() => "limit in doubt".to_owned(),
            None => "too short to judge".to_owned(),
        }
    }

    /// Returns lines for people: a table with bars that fits `columns` columns of a terminal, then what to do.
    pub(super) fn text(&self, columns: Option<usize>) -> String {
        // width of the figures to the left of the bars
        const FIGURES: usize = 57;
        let longest = columns.map_or(22, |columns| columns.saturating_sub(FIGURES).min(22));
        let mut text = String::new();
        let ms = |seconds: f64| 1e3 * seconds / self.per.max(1) as f64;
        let unit = if self.per > 1 { "ms a token" } else { "ms" };
        let expected = self
            .expected_seconds
            .map_or_else(String::new, |seconds| format!(", expected {:.2}", ms(seconds)));
        let _ = writeln!(
            text,
            "{}: {:.2} {unit}{expected}, limit {:.2} ({}): {}",
            self.name,
            ms(self.measured_seconds),
            ms(self.limit_seconds),
            self.bound_by,
            self.share_in_words()
        );
        let _ = writeln!(text, "               measured      limit  of limit        gap");
        let widest = self.groups.iter().map(|group| group.gap_seconds).fold(1e-12, f64::max);
        let bar = |gap: f64| "#".repeat((longest as f64 * gap.max(0.0) / widest).round() as usize);
        for group in &self.groups {
            let share = match group.share(self.measured_seconds) {
                None => "       -".to_owned(),
                Some(share) if share > NOISE || self.doubt.is_some() => "       -".to_owned(),
                Some(share) => format!("{:6.0} %", 100.0 * share.min(1.0)),
            };
            let line = format!(
                "  {:12} {:8.3}   {:8.3}  {share}   {:+8.3}  {}",
                group.name,
                ms(group.measured_seconds),
                ms(group.limit_seconds),
                ms(group.gap_seconds),
                bar(group.gap_seconds)
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        // what no phase shows by itself
        let overlap = format!(
            "  {:12} {:8}   {:8}  {:8}   {:+8.3}  {}",
            "one by one",
            "",
            "",
            "",
            ms(self.overlap_seconds),
            bar(self.overlap_seconds)
        );
        let _ = writeln!(text, "{}", overlap.trim_end());
        let _ = writeln!(
            text,
            "  one by one: parts run one after another, the limit lets them overlap; barriers: {} of {} waiting",
            self.phases_in_words(),
            crate::units::short_seconds(self.phase_seconds)
        );
        for remedy in &self.remedies {
            let _ = writeln!(text, "  -> {remedy}");
        }
        let best = self.best_chunk.map_or_else(String::new, |n| format!(" (measured best: {n})"));
        let inflection = self.inflection.map_or_else(
            || "; reading binds at any length".to_owned(),
            |n| format!("; in theory arithmetic binds from {n} tokens on"),
        );
        let _ = writeln!(text, "  prompts go in chunks of {}{best}{inflection}", self.chunk);
        text
    }
}

/// A waterfall for each test, from the limit to what was measured.
pub(super) fn picture(model: &str, explanations: &[&Explanation]) -> Picture {
    let mut figure = Figure::new("From the limit to what was measured").subtitle(model);
    figure = figure.columns(explanations.len().clamp(1, 2), 620.0);
    for explanation in explanations {
        let each = 1.0 / explanation.per.max(1) as f64;
        let share = explanation.share_in_words();
        let of_limit = format!("{share}, chunks of {}", explanation.chunk);
        let time = if explanation.per > 1 { "time of a token" } else { "time" };
        let mut chart = Waterfall::new(&explanation.name)
            .subtitle(of_limit)
            .values(Axis::linear(time, Unit::Si("s")))
            .total(format!("limit: {}", explanation.bound_by), each * explanation.limit_seconds)
            .step("one by one", each * explanation.overlap_seconds);
        for group in &explanation.groups {
            chart = chart.step(group.name, each * group.gap_seconds);
        }
        figure = figure.panel(chart.total("measured", each * explanation.measured_seconds));
    }
    figure.picture()
}

#[cfg(test)]
mod tests;
