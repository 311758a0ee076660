//! `bench --explain`: where the time between the limit and the measured speed goes, part by part, and what to do.

use std::fmt::Write as _;

use planner::{CostKind, Prediction, Resource};
use plot::{Axis, Figure, Picture, Unit, Waterfall};
use program::{Program, Reading};
use serde::Serialize;

use super::measure::{Test, Timing};
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
    /// Other programs ran whenever the ceilings were measured.
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
        groups.sort_by(|a, b| b.gap_seconds.total_cmp(&a.gap_seconds));
        let limit = whole.limit();
        let judged = Limits::judge(&whole, measured);
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
            limit_busy: limits.busy(),
            judged,
            weights: [true, false].map(|layers| WeightKind::of(program, layers)),
            phases,
            phase_seconds: limits.phase(),
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
            remedies.push(
                "above the limit: a ceiling was measured too low, rooflight machine --refresh measures it again"
                    .to_owned(),
            );
        }
        if self.limit_busy {
            remedies.push(
                "the ceilings were measured while other programs ran: limits may be lower".into(),
            );
        }
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
                (Some(share), Some(bound)) if group.name != "barriers" => {
                    format!(" at {:.0} % of what {bound} allows", 100.0 * share)
                }
                _ => String::new(),
            };
            let verb = if group.name == "weights" { "take" } else { "takes" };
            let verb =
                if group.name == "barriers" || group.name == "norms" { "take" } else { verb };
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
            ("weights", true) if float => {
                format!("{} multiplies in floats: types in blocks (Q8_0, Q4_K) do in 8 bits", layers.ty)
            }
            ("weights", true) if layers.large_blocks => {
                format!("{} is in blocks of 256: those of 32 (Q4_0, Q8_0) unpack faster", layers.ty)
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
            ("attention", false) => "-ctk q8_0 -ctv q8_0 read about half of f16".into(),
            ("barriers", _) => format!(
                "at the end of each of {} threads wait for the slowest, {} as measured: \
                 fewer threads by -t wait less, other programs make it more",
                self.phases_in_words(),
                crate::units::short_seconds(self.phase_seconds)
            ),
            ("norms", _) => "longer prompts or deeper models make it small".into(),
            ("sampling", _) => "--temp 0, or a smaller --top-k".into(),
            _ => "waking threads, laying out memory, copying logits; -t 1 has none of the first".into(),
        }
    }

    /// Those of what times are told for.
    fn phases_in_words(&self) -> String {
        let of = if self.per > 1 { " a token" } else { "" };
        format!("{} phases{of}", self.phases / self.per.max(1))
    }

    fn share_in_words(&self) -> String {
        let busy = if self.limit_busy { ", measured while busy" } else { "" };
        match self.judged {
            Some(Share::Part(part)) => format!("{:.0} % of limit{busy}", 100.0 * part),
            Some(Share::Above) => format!("above the limit{busy}"),
            None => "too short to judge".to_owned(),
        }
    }

    /// Lines for people: a table with bars, then what to do.
    pub(super) fn text(&self) -> String {
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
        let bar = |gap: f64| "#".repeat((24.0 * gap.max(0.0) / widest).round() as usize);
        for group in &self.groups {
            let share = match group.share(self.measured_seconds) {
                None => "       -".to_owned(),
                Some(share) if share > 1.0 => "  >100 %".to_owned(),
                Some(share) => format!("{:6.0} %", 100.0 * share),
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
mod tests {
    use std::time::Duration;

    use program::{
        CacheOptions, CacheType, Ceilings, ComputeCeiling, Executor as _, Outputs, PhaseTime,
        ReadCeiling, Sequence, Step,
    };

    use super::*;
    use crate::ceilings::KnownCeilings;

    fn explain(test: Test, speed: f64) -> Explanation {
        let gguf = gguf::Gguf::from_bytes(conformance::demo_gguf()).expect("it opens");
        let program = models::load(&gguf).expect("it loads").program;
        let ceilings = Ceilings {
            read: vec![ReadCeiling { threads: 2, working_set: 1 << 30, bytes_per_second: speed }],
            compute: vec![ComputeCeiling {
                threads: 2,
                f32_macs_per_second: speed,
                int8_macs_per_second: speed,
            }],
            barrier: Duration::from_nanos(100),
        };
        let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 512);
        let known = KnownCeilings { ceilings, busy: false };
        let limits = Limits::new(&program, &cache, 64, &known, 2).expect("measured");
        let head = head(&program)[0].to_owned();
        let phase = |name: &str, kind, micros| PhaseTime {
            name: name.to_owned(),
            kind,
            elapsed: Duration::from_micros(micros),
            weight_bytes: 0,
        };
        let phases = vec![
            phase("token_embd.weight", "embed", 1),
            phase("blk.0.attn_q.weight", "linear", 40_000),
            phase("blk.0.attn", "attention", 8_000),
            phase("", "rows", 2),
            phase(&head, "linear", 20_000),
        ];
        let timing = Timing {
            wall: Duration::from_millis(70),
            sampling: Duration::from_micros(if test.n_gen > 0 { 500 } else { 0 }),
            phases,
        };
        Explanation::new(&program, test, &timing, &limits)
    }

    fn group<'a>(explanation: &'a Explanation, name: &str) -> &'a Group {
        explanation.groups.iter().find(|group| group.name == name).expect("every part is there")
    }

    #[test]
    fn parts_and_overlap_add_up_to_the_gap() {
        for test in [
            Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false },
            Test { n_prompt: 130, n_gen: 0, depth: 64, greedy: false },
            Test { n_prompt: 10, n_gen: 2, depth: 7, greedy: false },
        ] {
            for speed in [1e9, 1e12] {
                let explained = explain(test, speed);
                let sampling = if test.n_gen > 0 { 0.0005 } else { 0.0 };
                let gaps: f64 = explained.groups.iter().map(|group| group.gap_seconds).sum();
                let gap = 0.07 + sampling - explained.limit_seconds;
                assert!((gaps + explained.overlap_seconds - gap).abs() < 1e-9, "{explained:?}");
                assert!(explained.overlap_seconds >= -1e-12, "{explained:?}");
                assert!((explained.measured_seconds - 0.07 - sampling).abs() < 1e-12);
                let sorted = explained.groups.windows(2);
                assert!(sorted.into_iter().all(|g| g[0].gap_seconds >= g[1].gap_seconds));
            }
        }
    }

    #[test]
    fn each_phase_is_counted_where_it_belongs() {
        let explained = explain(Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false }, 1e12);
        let measured = |name| group(&explained, name).measured_seconds;
        let near = |seconds: f64, want: f64| assert!((seconds - want).abs() < 1e-6, "{seconds}");
        near(measured("weights"), 0.04);
        near(measured("attention"), 0.008);
        near(measured("head"), 0.02);
        near(measured("unaccounted"), 0.07 - 0.068_003);
        near(measured("sampling"), 0.0005);
        assert_eq!(explained.groups[0].name, "weights", "the largest gap comes first");
        let text = explained.text();
        for part in ["ms a token", "weights take 57 % of the time", "-> ", "####", "1 phases a "] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_picture_names_every_part() {
        let explained = explain(Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false }, 1e12);
        let svg = picture("a model", &[&explained, &explained]).svg();
        for part in ["tg4", "a model", "weights", "attention", "measured", "limit: "] {
            assert!(svg.contains(part), "{part}");
        }
    }

    #[test]
    fn more_than_the_limit_is_never_hidden() {
        let explained = explain(Test { n_prompt: 130, n_gen: 0, depth: 0, greedy: false }, 1e6);
        assert_eq!((explained.share, explained.judged), (None, Some(Share::Above)));
        assert!(explained.remedies[0].contains("measured too low"), "{:?}", explained.remedies);
        assert!(group(&explained, "weights").gap_seconds < 0.0);
        let text = explained.text();
        assert!(text.contains("above the limit") && text.contains(">100 %"), "{text}");
        // and no part is judged that takes no time: 12,991 % of a head
        let small = Group { measured_seconds: 1e-9, ..group(&explained, "head").clone() };
        assert_eq!(small.share(explained.measured_seconds), None);
    }

    /// The demo's weights are in blocks of 32: that these unpack faster is no advice.
    #[test]
    fn advice_is_about_the_types_at_hand() {
        let mut explained =
            explain(Test { n_prompt: 130, n_gen: 0, depth: 0, greedy: false }, 1e12);
        let kind = explained.weights[0];
        assert_eq!((kind.bits, kind.ty), (32.0, "F32"));
        let step = Test { n_prompt: 0, n_gen: 4, depth: 0, greedy: false };
        let read = explained.remedy(group(&explained, "weights"), step);
        assert!(read.starts_with("F32 has 32.0 bits a weight: a type of fewer"), "{read}");
        let few = WeightKind { bits: 2.6, ty: "Q2_K", large_blocks: true };
        assert!(few.fewer_bits().contains("a smaller model"), "a type is no advice any more");
        let weights = group(&explained, "weights").clone();
        let int8 = Group { bound_by: Some("int8"), ..weights };
        let test = Test { n_prompt: 512, n_gen: 0, depth: 0, greedy: false };
        assert!(!kind.large_blocks);
        assert!(explained.remedy(&int8, test).contains("more cores"));
        explained.weights[0] = WeightKind { large_blocks: true, ty: "Q4_K", ..kind };
        assert!(explained.remedy(&int8, test).starts_with("Q4_K is in blocks of 256"));
        let barriers = explained.remedy(group(&explained, "barriers"), test);
        assert!(barriers.contains("each of 5 phases"), "{barriers}");
    }

    /// Of every architecture, shared experts before the head or not.
    #[test]
    fn the_time_of_a_head_is_its_own() {
        let families = conformance::Family::ALL.into_iter();
        for name in families.flat_map(|family| family.architectures()) {
            let program = conformance::tiny_model(
                &conformance::tiny_config(name, 64, false),
                quant::GgmlType::F32,
            );
            let weights = conformance::MemoryWeights::random(&program, 1);
            let cpu = executors::ExecutorOptions { threads: Some(1), ..Default::default() }.cpu();
            let model = cpu.load(std::sync::Arc::clone(&program), &weights, &mut |_| ()).unwrap();
            let cache = CacheOptions::new(CacheType::F16, CacheType::F16, 8);
            let session = model.open(&cache).unwrap();
            let sequence = Sequence {
                session,
                tokens: &[1, 2],
                outputs: Outputs::LAST,
                prompt: None,
                rows: &[],
            };
            model.step(&Step { sequences: &[sequence] }).unwrap().single().unwrap();
            let head = head(&program);
            let phases = model.phases();
            let of_head =
                phases.iter().filter(|p| kind_of(&head, &p.name, p.kind) == CostKind::Head);
            assert_eq!(of_head.count(), 1, "{name}: {phases:?} {head:?}");
        }
    }
}
