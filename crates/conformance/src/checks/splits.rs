//! Models cut into parts: however they are placed, the parts together are the whole.

use std::sync::Arc;

use program::{
    CacheOptions, ContextMemory, Error, Executor, KvPolicy, Model, Op, OutputKind, OutputRows,
    Outputs, Parts, Placement, Program, Sequence, SessionId, Step, Wanted,
};
use quant::GgmlType;

use crate::made::EXACT;
use crate::{Family, MemoryWeights, Random, tiny_config, tiny_model};

/// Chunks in which a session is fed, with what each yields.
const CHUNKS: [(usize, Outputs); 4] =
    [(3, Outputs::NONE), (2, Outputs::LAST), (1, Outputs::ALL), (3, Outputs::ALL)];

/// Bits of all that a session yields.
fn bits(model: &dyn Model, session: SessionId, tokens: &[u32]) -> Vec<u32> {
    let mut bits = Vec::new();
    let mut at = 0;
    for (n, outputs) in CHUNKS {
        let tokens = &tokens[at..at + n];
        at += n;
        let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).expect("a step of parts runs");
        let rows = out.single().expect("a sequence of parts runs").into_logits();
        bits.extend(rows.logits.iter().map(|x| x.to_bits()));
    }
    bits
}

/// A tiny model, whole, with what it yields.
struct Case<'a> {
    executor: &'a dyn Executor,
    program: Arc<Program>,
    weights: MemoryWeights,
    tokens: Vec<u32>,
    want: Vec<u32>,
    name: String,
}

impl<'a> Case<'a> {
    fn new(executor: &'a dyn Executor, program: Arc<Program>, name: String) -> Case<'a> {
        let weights = MemoryWeights::random(&program, 5);
        let tokens = Random::new(6).tokens(9, program.vocab_size());
        let whole = executor.load(Arc::clone(&program), &weights, &mut |_| ()).expect("it loads");
        let session = whole.open(&EXACT).expect("it opens");
        let want = bits(&*whole, session, &tokens);
        Case { executor, program, weights, tokens, want, name }
    }

    fn parts(&self, placement: &Placement) -> Parts {
        let devices = [self.executor, self.executor];
        let program = Arc::clone(&self.program);
        Parts::load(program, placement, &devices, &self.weights, &mut |_| ())
            .unwrap_or_else(|e| panic!("{}: its parts do not load: {e}", self.name))
    }

    fn check(&self, placement: &Placement, what: &str) {
        let parts = self.parts(placement);
        let session = parts.open(&EXACT).expect("it opens");
        let found = bits(&parts, session, &self.tokens);
        assert_eq!(found, self.want, "{}, {what}", self.name);
        assert_eq!(parts.len(session).expect("it is open"), self.tokens.len());
    }

    /// Two parts, cut behind every node.
    fn cuts(&self, step: usize) {
        for cut in (1..self.program.nodes.len()).step_by(step) {
            let placement = Placement::by_node(&self.program, |i, _| usize::from(i >= cut));
            self.check(&placement, &format!("cut before node {cut}"));
        }
    }

    /// Every other layer, and experts, on another device.
    fn placements(&self) {
        let layers = Placement::by_layer(&self.program, |layer| layer.map_or(0, |l| l % 2));
        self.check(&layers, "every other layer elsewhere");
        let experts = Placement::by_node(&self.program, |_, node| {
            usize::from(matches!(node.op, Op::Experts { .. }))
        });
        self.check(&experts, "experts elsewhere");
    }
}

fn programs() -> impl Iterator<Item = (String, Arc<Program>)> {
    let names = Family::ALL.into_iter().flat_map(Family::architectures);
    names.flat_map(|name| {
        [false, true].map(|tied| {
            let program = tiny_model(&tiny_config(name, 32, tied), GgmlType::F32);
            (format!("{name}{}", if tied { ", tied" } else { "" }), program)
        })
    })
}

/// Every cut of every tiny model in two, as recorded and with rows selected early.
pub(super) fn every_cut(executor: &dyn Executor) {
    for (name, program) in programs() {
        let narrowed = Arc::new(program::passes::narrow(&program));
        for (program, name) in [(program, name.clone()), (narrowed, format!("{name}, narrowed"))] {
            let case = Case::new(executor, program, name);
            case.cuts(1);
            case.placements();
        }
    }
}

/// A few of them, for executors that take longer to load.
pub(super) fn some_cuts(executor: &dyn Executor) {
    for (name, program) in programs().filter(|(name, _)| !name.ends_with("tied")) {
        let case = Case::new(executor, program, name);
        case.cuts(7);
        case.placements();
    }
}

/// Sessions of parts roll back, fork and fail as those of a whole.
pub(super) fn sessions(executor: &dyn Executor) {
    let program = tiny_model(&tiny_config("qwen2", 32, false), GgmlType::F32);
    let case = Case::new(executor, program, "qwen2".into());
    let parts = case.parts(&Placement::by_layer(&case.program, |layer| layer.map_or(0, |l| l % 2)));
    let session = parts.open(&EXACT).expect("it opens");
    let feed = |session, tokens: &[u32], outputs| {
        let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
        parts.step(&Step { sequences: &[sequence] }).and_then(program::StepOut::single)
    };
    feed(session, &[1, 2, 3], Outputs::NONE).expect("it runs");
    assert!(feed(session, &[1, 9999], Outputs::LAST).is_err(), "a token outside the vocabulary");
    let none = Outputs { rows: OutputRows::Last, what: Wanted::Candidates { k: 0 } };
    assert!(feed(session, &[1, 2], none).is_err(), "what only the last part refuses");
    assert_eq!(parts.len(session).expect("it is open"), 3);
    parts.truncate(session, 0).expect("it truncates");
    assert_eq!(bits(&parts, session, &case.tokens), case.want, "after truncation");
    parts.commit(session, 9).expect("it commits");
    let fork = parts.fork(session, 0).expect("it forks");
    assert_eq!(bits(&parts, fork, &case.tokens), case.want, "in a fork");
    assert!(parts.cache_bytes(session).expect("it is open") > 0);
    parts.close(session);
    assert!(parts.len(session).is_err() && parts.len(fork).is_ok());

    // a choice that serves layers of several parts would have to go from one to the next
    let [alone, several] = [1, 2].map(|layer_step| {
        let memory = ContextMemory { layer_step, ..ContextMemory::suited(1024) };
        parts.open(&CacheOptions { policy: KvPolicy::Memory(memory), ..EXACT })
    });
    assert_eq!(alone.map(|id| parts.close(id)), Ok(()));
    assert!(matches!(several, Err(Error::Unsupported(_))), "{several:?}");

    // one sequence fails, the other is as it is alone
    let [a, b] = [0, 1].map(|_| parts.open(&EXACT).expect("it opens"));
    let sequence = |session, tokens| Sequence {
        session,
        tokens,
        outputs: Outputs::ALL,
        prompt: None,
        rows: &[],
    };
    let both = [sequence(a, &[1, 2]), sequence(b, &[9999])];
    let out = parts.step(&Step { sequences: &both }).expect("the step runs").sequences;
    let [Ok(found), Err(_)] = &out[..] else { panic!("one of two sequences fails: {out:?}") };
    let alone = feed(fork, &[], Outputs::ALL);
    assert!(alone.is_err(), "no tokens");
    parts.truncate(fork, 0).expect("it truncates");
    assert_eq!(found, &feed(fork, &[1, 2], Outputs::ALL).expect("it runs"));
    assert_eq!([a, b].map(|id| parts.len(id).expect("it is open")), [2, 0]);

    let part = program::split(
        &case.program,
        &Placement::by_node(&case.program, |i, _| usize::from(i >= 9)),
    );
    let part = part.expect("it splits").remove(1).program;
    let input = part.value(part.inputs[0]).clone();
    assert!(part.outputs.iter().all(|(kind, _)| *kind != OutputKind::Rows), "it hands nothing on");
    let model = executor.load(Arc::new(part), &case.weights, &mut |_| ()).expect("it loads");
    let session = model.open(&EXACT).expect("it opens");
    let long = vec![0.0; input.shape.cols() + 1];
    for rows in [&[][..], &[&long[..]]] {
        let outputs = Outputs::LAST;
        let sequence = Sequence { session, tokens: &[1], outputs, prompt: None, rows };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(program::StepOut::single);
        assert!(out.is_err(), "rows of a wrong shape");
    }
    assert_eq!(model.len(session).expect("it is open"), 0);
}
