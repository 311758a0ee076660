//! Passes over a model, phase by phase: seconds, bytes that kernels read, bytes that they must read.

use std::time::Instant;

use cpu::Cpu;
use planner::cost::chunks;
use planner::{Cost, CostOptions, Load};
use program::{
    CacheOptions, CacheType, Counted, Model, Node, Outputs, PhaseTime, Prompt, Result, Sequence,
    SessionId, Step, StepOut,
};

use crate::subject::Subject;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Course {
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Steps after it.
    pub(super) steps: usize,
    /// Most tokens of the prompt in a pass.
    pub(super) chunk: usize,
    pub(super) cache: CacheType,
}

/// Kinds of work, as the executor names its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Linear,
    Experts,
    Attention,
    Rest,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] = [Kind::Linear, Kind::Experts, Kind::Attention, Kind::Rest];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Linear => "linear",
            Kind::Experts => "experts",
            Kind::Attention => "attention",
            Kind::Rest => "rest",
        }
    }

    fn of_phase(kind: &str) -> Kind {
        let named = Kind::ALL.into_iter().find(|known| known.name() == kind);
        named.unwrap_or(Kind::Rest)
    }

    fn of_node(node: &Node) -> Kind {
        match node.op.facts().counted {
            Counted::Matrices => Kind::Linear,
            Counted::Experts { .. } => Kind::Experts,
            Counted::Attention { .. }
            | Counted::LatentAttention { .. }
            | Counted::Indexer { .. }
            | Counted::State { .. } => Kind::Attention,
            Counted::Lookup | Counted::Norm | Counted::Elements | Counted::Nothing => Kind::Rest,
        }
    }
}

/// A phase of a pass.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PhaseRead {
    pub(super) kind: Kind,
    pub(super) seconds: f64,
    /// Bytes of matrices that kernels were given.
    pub(super) weights: u64,
    /// Bytes of keys and values that it must read.
    pub(super) cache: u64,
}

impl PhaseRead {
    pub(super) fn bytes(&self) -> u64 {
        self.weights + self.cache
    }
}

/// What must be read in a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Must {
    /// Bytes of matrices if all rows use the same experts.
    pub(super) least: u64,
    /// And if every row uses others, as far as there are any.
    pub(super) most: u64,
    /// Bytes of keys and values.
    pub(super) cache: u64,
}

/// A pass.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Passed {
    pub(super) load: Load,
    /// Seconds from the beginning of the first pass.
    pub(super) start: f64,
    pub(super) seconds: f64,
    pub(super) phases: Vec<PhaseRead>,
    /// `[kind]`.
    pub(super) must: [Must; 4],
}

impl Passed {
    pub(super) fn bytes(&self) -> u64 {
        self.phases.iter().map(PhaseRead::bytes).sum()
    }
}

/// All passes of a course, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Recorded {
    pub(super) prompt: Vec<Passed>,
    pub(super) steps: Vec<Passed>,
}

impl Recorded {
    /// Run a course, after one that is not recorded.
    ///
    /// # Errors
    /// Memory; a model that the executor cannot run.
    pub(super) fn run(subject: &Subject, cpu: &Cpu, course: Course) -> anyhow::Result<Recorded> {
        let model = subject.load(cpu)?;
        let runner = Runner::new(subject, &*model, course)?;
        runner.pass(&Load {
            past: 0,
            tokens: course.chunk.min(course.prompt) as u64,
            outputs: 1,
        })?;
        runner.pass(&Load { past: model.len(runner.session)? as u64, tokens: 1, outputs: 1 })?;
        model.truncate(runner.session, 0)?;
        let begin = Instant::now();
        let timed = |load: Load| -> Result<_> {
            let start = begin.elapsed().as_secs_f64();
            runner.pass(&load)?;
            Ok((load, start, begin.elapsed().as_secs_f64() - start, model.phases()))
        };
        let n = course.prompt as u64;
        let prompt = chunks(0..n, course.chunk as u64).map(timed).collect::<Result<Vec<_>>>()?;
        let steps = (n..n + course.steps as u64).map(|past| Load { past, tokens: 1, outputs: 1 });
        let steps = steps.map(timed).collect::<Result<Vec<_>>>()?;
        model.close(runner.session);
        // counted when all have run: threads with nothing to do between passes would have to be woken for the next
        let passed = |(load, start, seconds, phases): (Load, f64, f64, Vec<PhaseTime>)| {
            let phases = runner.phases(&load, &phases);
            Passed { load, start, seconds, phases, must: runner.must(&load) }
        };
        Ok(Recorded {
            prompt: prompt.into_iter().map(passed).collect(),
            steps: steps.into_iter().map(passed).collect(),
        })
    }

    /// Bytes that a step goes through again and again.
    pub(super) fn working_set(&self) -> u64 {
        self.steps.last().map_or(0, Passed::bytes)
    }
}

struct Runner<'a> {
    model: &'a dyn Model,
    session: SessionId,
    course: Course,
    cost: Cost,
    /// `[node]`.
    kinds: Vec<Kind>,
}

impl Runner<'_> {
    fn new<'a>(subject: &Subject, model: &'a dyn Model, course: Course) -> Result<Runner<'a>> {
        let Course { prompt, steps, cache, .. } = course;
        // one step more for the course that is not recorded
        let options = CacheOptions::new(cache, cache, prompt + steps + 1);
        let costs = CostOptions { k: cache, v: cache, ..CostOptions::default() };
        let program = &subject.program;
        Ok(Runner {
            model,
            session: model.open(&options)?,
            course,
            cost: Cost::of(program, &costs),
            kinds: program.nodes.iter().map(Kind::of_node).collect(),
        })
    }

    /// Run a pass of made-up tokens. Neighbours differ, so that rows use different experts.
    fn pass(&self, load: &Load) -> Result<()> {
        let vocab = self.model.program().vocab_size().max(1);
        let (start, n) = (load.past as usize, load.tokens as usize);
        let token = |position: usize| u32::try_from((7 * position + 11) % 1000 % vocab);
        let tokens: Vec<u32> = (start..start + n).map(|p| token(p).unwrap_or(0)).collect();
        let outputs = if load.outputs > 0 { Outputs::LAST } else { Outputs::NONE };
        let of_prompt = start < self.course.prompt;
        let prompt = of_prompt.then_some(Prompt { start: 0, len: self.course.prompt });
        let sequence =
            Sequence { session: self.session, tokens: &tokens, outputs, prompt, rows: &[] };
        self.model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single).map(drop)
    }

    /// The phases of a pass.
    fn phases(&self, load: &Load, times: &[PhaseTime]) -> Vec<PhaseRead> {
        let pass = self.cost.pass(load);
        let caches: Vec<(Option<usize>, u64)> = pass
            .ops()
            .map(|(op, work)| (op.layer, work.cache_read_bytes))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        let phase = |phase: &PhaseTime| {
            // `blk.3.attn` reads the cache of layer 3
            let layer = phase.name.strip_prefix("blk.").and_then(|name| name.strip_suffix(".attn"));
            let layer: Option<usize> = layer.and_then(|layer| layer.parse().ok());
            let kind = Kind::of_phase(phase.kind);
            let reads = kind == Kind::Attention && layer.is_some();
            let of_layer = caches.iter().filter(|(of, _)| reads && *of == layer);
            PhaseRead {
                kind,
                seconds: phase.elapsed.as_secs_f64(),
                weights: phase.weight_bytes,
                cache: of_layer.map(|(_, bytes)| bytes).sum(),
            }
        };
        times.iter().map(phase).collect()
    }

    /// What a pass must read.
    fn must(&self, load: &Load) -> [Must; 4] {
        let pass = self.cost.pass(load);
        let mut must = [Must::default(); 4];
        for ((_, work), kind) in pass.ops().zip(&self.kinds) {
            let of = &mut must[*kind as usize];
            // vectors and rows of the embedding are no matrices
            if *kind != Kind::Rest {
                of.least += work.weight_bytes;
                of.most += work.most_weight_bytes;
            }
            of.cache += work.cache_read_bytes;
        }
        must
    }
}
