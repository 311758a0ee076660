//! What a step yields for each sequence: a bad one harms no other, candidates and hidden rows are what they say.

use std::sync::Arc;

use program::{
    CacheOptions, CacheType, Candidate, Error, Executor, Model, OutputKind, OutputRows, Outputs,
    Program, Recorder, RowsOut, Sequence, SessionId, Step, StepOut, ValueId, Variation, Wanted,
    WeightSpec,
};
use quant::GgmlType;

use crate::made::{EXACT, all_logits, feed};
use crate::{Made, MemoryWeights, Random, assert_close, assert_same_bits, tiny_config, tiny_model};

/// Not a number in the embeddings of a tiny model.
const BAD_TOKEN: u32 = 5;

/// A tiny model one of whose tokens is not finite.
fn fragile(executor: &dyn Executor, ty: GgmlType) -> Box<dyn Model> {
    let program = tiny_model(&tiny_config("qwen2", 64, false), ty);
    let mut weights = MemoryWeights::random(&program, 4);
    let table = program.weights.iter().find(|w| w.name == "token_embd.weight").expect("it embeds");
    let mut rows: Vec<f32> = (0..97 * 64).map(|i| (i * 31 % 17) as f32 / 8.0 - 1.0).collect();
    rows[BAD_TOKEN as usize * 64 + 9] = f32::INFINITY;
    weights.set(table, &rows);
    Made::with(executor, &program, &weights).tested
}

/// Tokens without the bad one.
fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let all = Random::new(seed).tokens(n, 96);
    all.into_iter().map(|token| token + u32::from(token >= BAD_TOKEN)).collect()
}

fn candidates(k: usize) -> Outputs {
    Outputs { rows: OutputRows::All, what: Wanted::Candidates { k } }
}

const HIDDEN: Outputs = Outputs { rows: OutputRows::All, what: Wanted::Hidden };

fn one(
    model: &dyn Model,
    session: SessionId,
    tokens: &[u32],
    outputs: Outputs,
) -> program::Result<RowsOut> {
    let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
    model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single)
}

/// A new session with `prompt`.
fn opened(model: &dyn Model, options: &CacheOptions, prompt: &[u32]) -> SessionId {
    let session = model.open(options).expect("a session opens");
    feed(model, session, prompt, Outputs::NONE);
    session
}

/// What is wrong, the tokens and what is asked of them, and whether an error says so.
type Case = (&'static str, &'static [u32], Outputs, fn(&Error) -> bool);

/// For every error that concerns one sequence: it has the error, its session goes on as if nothing had been, and the
/// sequences before and after it have the bits they have alone.
pub(super) fn beside(executor: &dyn Executor) {
    for ty in [GgmlType::F32, GgmlType::F16] {
        let model = &*fragile(executor, ty);
        let prompt = tokens(10, 50);
        let small = CacheOptions { capacity: 12, ..EXACT };
        let closed = model.open(&EXACT).expect("a session opens");
        model.close(closed);
        let cases: [Case; 6] = [
            ("unknown session", &[1], Outputs::LAST, |e| matches!(e, Error::Session(_))),
            ("unknown token", &[1, 97], Outputs::LAST, |e| {
                matches!(e, Error::Token { token: 97, vocab_size: 97 })
            }),
            ("full context", &[1, 2, 3], Outputs::NONE, |e| {
                matches!(e, Error::ContextFull { wanted: 13, capacity: 12 })
            }),
            ("numbers that are not finite", &[1, BAD_TOKEN], Outputs::ALL, |e| {
                matches!(e, Error::NonFinite { position: 11 })
            }),
            ("candidates that are not finite", &[1, BAD_TOKEN], candidates(3), |e| {
                matches!(e, Error::NonFinite { position: 11 })
            }),
            ("no candidates", &[1], candidates(0), |e| matches!(e, Error::Operand { .. })),
        ];
        for (what, bad, outputs, is_right) in cases {
            let what = format!("{ty}, {what}");
            let [a, b, c] = [&EXACT, &small, &EXACT].map(|o| opened(model, o, &prompt));
            let bad_session = if what.ends_with("unknown session") { closed } else { b };
            let more = [tokens(4, 51), bad.to_vec(), tokens(3, 52)];
            let asked = [(a, Outputs::LAST), (bad_session, outputs), (c, Outputs::ALL)];
            let sequences: Vec<Sequence<'_>> = more
                .iter()
                .zip(asked)
                .map(|(tokens, (session, outputs))| Sequence {
                    session,
                    tokens,
                    outputs,
                    prompt: None,
                    rows: &[],
                })
                .collect();
            let out = model.step(&Step { sequences: &sequences });
            let out = out.unwrap_or_else(|e| panic!("{what}: the step fails: {e}"));
            let [first, error, last] = <[_; 3]>::try_from(out.sequences).expect("three results");
            let error = error.err();
            assert!(error.as_ref().is_some_and(is_right), "{what}: {error:?}");
            for (session, more, rows, n) in [(a, &more[0], first, 1), (c, &more[2], last, 3)] {
                let rows = rows.unwrap_or_else(|e| panic!("{what}: another fails: {e}"));
                let alone = all_logits(model, &EXACT, &[&prompt[..], more].concat(), 64);
                let what = format!("{what}: the rows of another");
                assert_same_bits(&rows.into_logits().logits, &alone[alone.len() - n * 97..], &what);
                assert_eq!(model.len(session).expect("it is open"), 10 + more.len(), "{what}");
            }
            assert_eq!(model.len(b).expect("it is open"), 10, "{what}: its session's length");
            let found = feed(model, b, &[7, 8], Outputs::ALL);
            let want = all_logits(model, &EXACT, &[&prompt[..], &[7, 8]].concat(), 12);
            assert_same_bits(&found, &want[10 * 97..], &format!("{what}: going on"));
            [a, b, c].into_iter().for_each(|session| model.close(session));
        }
    }
}

/// Embedding, norm, selection, norm, head: what is needed to see a head at work.
fn headed(vocab_size: usize, width: usize, hidden: bool) -> Arc<Program> {
    let r = Recorder::new();
    let weight = |name: &str, rows, cols| {
        r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
    };
    let record = || -> program::Result<[ValueId; 2]> {
        let x = r.embed(weight("embed", 97, width))?;
        let x = r.rms_norm("norm", x, weight("norm", 1, width), 1e-6)?;
        let x = r.select_rows("rows", x)?;
        let h = r.rms_norm("last_norm", x, weight("last_norm", 1, width), 1e-6)?;
        Ok([h, r.linear("head", h, weight("head", vocab_size, width))?])
    };
    let [h, logits] = record().expect("shapes fit");
    let outputs = [(OutputKind::Logits, logits), (OutputKind::Hidden, h)];
    Arc::new(r.finish(&outputs[..if hidden { 2 } else { 1 }]))
}

/// Candidates are the logits sorted, of equals the lower id first.
pub(super) fn candidates_are_sorted(executor: &dyn Executor) {
    let program = headed(4099, 8, false);
    let mut weights = MemoryWeights::random(&program, 6);
    let head = program.weights.iter().find(|w| w.name == "head").expect("it has a head");
    // many equal rows
    let rows: Vec<f32> = (0..4099 * 8).map(|i| ((i / 8 * 7 % 150 + i % 8) % 23) as f32).collect();
    weights.set(head, &rows);
    let model = &*Made::with(executor, &program, &weights).tested;
    let session = model.open(&EXACT).expect("a session opens");
    let prompt = tokens(5, 60);
    let logits = feed(model, session, &prompt, Outputs::ALL);
    for k in [1, 2, 40, 64, 256, 700, 4099, 5000] {
        model.truncate(session, 0).expect("a shorter session");
        let found = one(model, session, &prompt, candidates(k)).expect("a step").into_candidates();
        assert_eq!(found.k, k.min(4099), "candidates of a row");
        assert_eq!(found.rows().len(), 5, "rows of candidates");
        for (found, logits) in found.rows().zip(logits.chunks_exact(4099)) {
            let mut want: Vec<Candidate> =
                logits.iter().zip(0..).map(|(&logit, token)| Candidate { token, logit }).collect();
            want.sort_by(|a, b| b.logit.total_cmp(&a.logit).then(a.token.cmp(&b.token)));
            assert_eq!(found, &want[..found.len()], "the best {k}");
        }
    }
    // who wants no row gets the same beside one who does
    let none = Outputs { rows: OutputRows::None, ..candidates(5000) };
    let alone = one(model, model.open(&EXACT).expect("a session opens"), &prompt, none);
    let [a, b] = [none, Outputs::ALL].map(|outputs| Sequence {
        session: model.open(&EXACT).expect("a session opens"),
        tokens: &prompt,
        outputs,
        prompt: None,
        rows: &[],
    });
    let beside = model.step(&Step { sequences: &[a, b] }).expect("a step").sequences.swap_remove(0);
    assert_eq!(beside, alone, "no rows of candidates");
}

/// Hidden rows are the oracle's traced value; with logits beside them they have the same bits as without.
pub(super) fn hidden(executor: &dyn Executor) {
    let program = headed(200, 64, true);
    let value = program.output(OutputKind::Hidden).expect("it was recorded");
    let Made { tested, oracle } = Made::new(executor, &program, 7);
    let model = &*tested;
    let prompt = tokens(9, 61);
    let traced = {
        let session = oracle.open(&EXACT).expect("a session opens");
        let sequence =
            Sequence { session, tokens: &prompt, outputs: HIDDEN, prompt: None, rows: &[] };
        oracle.trace(&Step { sequences: &[sequence] }, &[value]).expect("the oracle traces")
    };
    let open = || model.open(&EXACT).expect("a session opens");
    let found = one(model, open(), &prompt, HIDDEN).expect("a step").into_hidden();
    assert_eq!((found.hidden_size, found.rows().len()), (64, 9), "shape of the hidden rows");
    assert_close(&found.hidden, &traced.values[0].data, 1e-10, "hidden rows");

    let (a, b) = (open(), open());
    let last = Outputs { rows: OutputRows::Last, ..HIDDEN };
    let sequence =
        |session, outputs| Sequence { session, tokens: &prompt, outputs, prompt: None, rows: &[] };
    let step = [sequence(a, Outputs::ALL), sequence(b, last)];
    let out = model.step(&Step { sequences: &step }).expect("a step");
    let [logits, row] = <[_; 2]>::try_from(out.sequences).expect("two results");
    let row = row.expect("hidden rows").into_hidden();
    assert_same_bits(&row.hidden, &found.hidden[8 * 64..], "the last hidden row beside logits");
    let alone = feed(model, open(), &prompt, Outputs::ALL);
    let logits = logits.expect("logits").into_logits().logits;
    assert_same_bits(&logits, &alone, "logits beside hidden rows");

    let without = Made::new(executor, &headed(200, 64, false), 7).tested;
    let session = without.open(&EXACT).expect("a session opens");
    let refused = one(&*without, session, &prompt, HIDDEN).err();
    assert!(
        matches!(&refused, Some(Error::Unsupported(why)) if why.contains("hidden")),
        "hidden rows of a program without: {refused:?}"
    );
    assert_eq!(without.len(session), Ok(0), "length after what was refused");
}

/// Rows that are handed out come beside logits as they do alone, whichever rows have logits, and beside sequences that ask
/// for something else where that is promised to change nothing.
pub(super) fn rows_beside_logits(executor: &dyn Executor) {
    let mut program = (*tiny_model(&tiny_config("qwen2", 64, false), GgmlType::F16)).clone();
    let value = |name: &str| {
        let found = program.values.iter().position(|value| value.name == name);
        ValueId(found.expect("it was recorded") as u32)
    };
    // one of all rows, one of those that are wanted
    let handed = ["blk.1.ffn_residual", "output_norm"].map(value);
    program.outputs.extend(handed.map(|id| (OutputKind::Rows, id)));
    let model = &*Made::new(executor, &Arc::new(program), 8).tested;
    let prompt = tokens(9, 63);
    let open = || model.open(&EXACT).expect("a session opens");
    let of = |rows, what| one(model, open(), &prompt, Outputs { rows, what }).expect("a step");
    for rows in [OutputRows::None, OutputRows::First, OutputRows::Last, OutputRows::All] {
        let RowsOut::Rows(alone) = of(rows, Wanted::Rows) else { panic!("{rows:?}: no rows") };
        let logits = of(rows, Wanted::Logits).into_logits();
        let both = of(rows, Wanted::LogitsAndRows).into_logits_and_rows();
        let step = [Wanted::Logits, Wanted::LogitsAndRows, Wanted::Rows].map(|what| Sequence {
            session: open(),
            tokens: &prompt,
            outputs: Outputs { rows, what },
            prompt: None,
            rows: &[],
        });
        let out = model.step(&Step { sequences: &step }).expect("a step");
        let together = out.sequences[1].clone().expect("a result").into_logits_and_rows();
        let mates = executor.promises().cover(&[Variation::BatchMates]);
        for (logits_too, handed) in [Some(both), mates.then_some(together)].into_iter().flatten() {
            assert_eq!(logits_too.rows().len(), logits.rows().len(), "{rows:?}: rows of logits");
            assert_same_bits(&logits_too.logits, &logits.logits, &format!("{rows:?}: logits"));
            assert_eq!(handed.len(), alone.len(), "{rows:?}: values handed out");
            for (handed, alone) in handed.iter().zip(&alone) {
                assert_same_bits(handed, alone, &format!("{rows:?}: rows handed out"));
            }
        }
        assert_eq!(alone[0].len(), 9 * 64, "{rows:?}: all rows of one value");
        assert_eq!(alone[1].len(), logits.rows().len() * 64, "{rows:?}: wanted rows of another");
    }
}

/// Sessions whose caches are kept in other types go together.
pub(super) fn cache_types(executor: &dyn Executor) {
    let model = &*fragile(executor, GgmlType::Q8_0);
    let prompt = tokens(20, 62);
    let options = CacheType::ALL.map(|ty| CacheOptions::new(ty, ty, 64));
    let options = [options[0], options[1], options[2], options[0]];
    let sessions = options.map(|o| opened(model, &o, &prompt[..12]));
    let sequences = sessions.map(|session| Sequence {
        session,
        tokens: &prompt[12..],
        outputs: Outputs::ALL,
        prompt: None,
        rows: &[],
    });
    let out = model.step(&Step { sequences: &sequences }).expect("caches of several types");
    assert_eq!(out.sequences.len(), 4, "results");
    for (rows, options) in out.sequences.into_iter().zip(options) {
        let alone = all_logits(model, &options, &prompt, 20);
        let rows = rows.expect("it can run").into_logits();
        assert_same_bits(&rows.logits, &alone[12 * 97..], &format!("cache of {:?}", options.k));
    }
}
