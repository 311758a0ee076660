//! The likeliest tokens among those that a mask allows, and logits told beside them: what the interpreter finds, in few bytes.

use std::sync::Arc;

use conformance::Random;
use program::{
    Among, AmongRow, CacheOptions, CacheType, Error, Executor, Model, OutputKind, OutputRows,
    Outputs, Program, Recorder, Result, RowsOut, Sequence, SessionId, Step, Wanted, WeightSource,
    WeightSpec, interpreter::Interpreter, read_memory,
};
use quant::GgmlType;

use crate::open;

const CACHE: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 4096);
/// Three stretches and a bit, and no multiple of 32.
const LOGITS: usize = 3 * 2048 + 77;
const TOKENS: usize = 16;

/// Logits by token: few numbers, so that there are ties everywhere; both zeros among them.
struct Table(Vec<u8>);

impl Table {
    fn new() -> Table {
        let random = &mut Random::new(8);
        let number = |n: u32| if n == 0 { -0.0 } else { n as f32 - 20.0 };
        let numbers = random.tokens(TOKENS * LOGITS, 40).into_iter().map(number);
        Table(numbers.flat_map(f32::to_le_bytes).collect())
    }
}

impl WeightSource for Table {
    fn read(&self, spec: &WeightSpec, first: usize, out: &mut [u8]) -> Result<()> {
        read_memory(&self.0, spec, first, out)
    }
}

fn program() -> Arc<Program> {
    let r = Recorder::new();
    let (rows, cols) = (TOKENS, LOGITS);
    let table = WeightSpec { name: "table".into(), ty: GgmlType::F32, rows, cols, start: 0 };
    let logits = r.embed(r.weight(table)).expect("a table");
    let logits = r.select_rows("rows", logits).expect("they were not selected");
    Arc::new(r.finish(&[(OutputKind::Logits, logits)]))
}

fn load(executor: &dyn Executor) -> (Box<dyn Model>, SessionId) {
    let model = executor.load(program(), &Table::new(), &mut |_| ()).expect("it loads");
    let session = model.open(&CACHE).expect("a session opens");
    (model, session)
}

/// What rows of `tokens` yield among these, `k` each.
fn rows(
    (model, session): &(Box<dyn Model>, SessionId),
    tokens: &[u32],
    k: usize,
    among: &[Among<'_>],
) -> Result<Vec<AmongRow>> {
    let outputs = Outputs { rows: OutputRows::All, what: Wanted::Candidates { k } };
    let sequence = Sequence { session: *session, tokens, outputs, prompt: None, rows: &[] };
    let step = Step { sequences: &[sequence] };
    match model.step_among(&step, &[among], &|| true)?.single()? {
        RowsOut::Among(rows) => Ok(rows),
        other => panic!("not what was asked for: {other:?}"),
    }
}

/// Bits of tokens, each set with this probability.
fn mask(random: &mut Random, share: f64) -> Vec<u32> {
    let bits = random.tokens(LOGITS, 1000);
    let bit = |token: &u32| f64::from(*token) < 1000.0 * share;
    let word = |bits: &[u32]| (0..).zip(bits).map(|(i, b)| u32::from(bit(b)) << i).sum();
    bits.chunks(32).map(word).collect()
}

#[test]
fn masks_and_told_logits_are_the_interpreters() {
    let Some(device) = open() else { return };
    let (tested, oracle) = (load(&device), load(&Interpreter));
    assert_eq!(tested.0.most_candidates(), 257);
    let random = &mut Random::new(4);
    let masks: Vec<Vec<u32>> =
        [0.5, 0.003, 0.999, 0.0, 1.0].map(|share| mask(random, share)).into();
    // the last one ends before the tokens do, and leaves fewer than are asked for
    let few = vec![0, 0b101, 1 << 31];
    let told: Vec<u32> = random.tokens(70, LOGITS);
    let allowed: Vec<Option<&[u32]>> =
        [None].into_iter().chain(masks.iter().chain([&few]).map(|mask| Some(&mask[..]))).collect();
    for k in [1, 2, 41, 257] {
        for (i, allowed) in allowed.iter().enumerate() {
            for told in [&[][..], &told[..1], &told] {
                let among = [Among { allowed: *allowed, told }];
                let before = device.counts();
                let found = rows(&tested, &[i as u32], k, &among).expect("a step");
                let after = device.counts();
                let read = after.bytes_read - before.bytes_read;
                assert_eq!(found, rows(&oracle, &[i as u32], k, &among).expect("a step"));
                // few of each stretch are read as they are
                let joined = k > 128;
                let lists = if joined { 1 } else { 4 };
                // a row is looked up and selected, its stretches are searched, and joined
                let dispatches = 3 + u64::from(joined) + u64::from(!told.is_empty());
                assert_eq!(after.dispatches - before.dispatches, dispatches, "mask {i}, {k}");
                assert_eq!(read as usize, 8 * k * lists + 4 * told.len(), "mask {i}, {k}: bytes");
                let n = (0..LOGITS as u32).filter(|token| among[0].allows(*token)).count();
                assert_eq!(found[0].candidates.len(), k.min(n), "mask {i}");
            }
        }
        // a mask and a list for each row of a step, and one without
        let among: Vec<_> = allowed
            .iter()
            .zip(0..)
            .map(|(&allowed, n)| Among { allowed, told: &told[..n] })
            .collect();
        let found = rows(&tested, &[9, 8, 7, 6, 5, 4, 3], k, &among).expect("a step");
        assert_eq!(found, rows(&oracle, &[9, 8, 7, 6, 5, 4, 3], k, &among).expect("a step"));
    }
    // sequences that want different ones of a step
    let other = tested.0.open(&CACHE).expect("a session opens");
    for (few, many) in [(2, 41), (1, 200)] {
        let of = |session, tokens, k| Sequence {
            session,
            tokens,
            outputs: Outputs { rows: OutputRows::All, what: Wanted::Candidates { k } },
            prompt: None,
            rows: &[],
        };
        let step = [of(tested.1, &[5], few), of(other, &[6, 7], many)];
        let found = tested.0.step(&Step { sequences: &step }).expect("a step").sequences;
        for ((found, tokens), k) in found.into_iter().zip([&[5][..], &[6, 7]]).zip([few, many]) {
            let want = tokens.iter().flat_map(|token| {
                let want = rows(&oracle, &[*token], k, &[Among::default()]).expect("a step");
                want.into_iter().flat_map(|row| row.candidates)
            });
            let found = found.expect("a sequence").into_candidates().candidates;
            assert_eq!(found, want.collect::<Vec<_>>(), "{k} of {few} and {many}");
        }
    }
    // more than the device finds
    let among = [Among { allowed: Some(&masks[0]), told: &told }];
    let found = rows(&tested, &[2], 300, &among).expect("a step");
    assert_eq!(found, rows(&oracle, &[2], 300, &among).expect("a step"));
}

#[test]
fn what_is_asked_among_has_to_fit() {
    let Some(device) = open() else { return };
    let models = [load(&device), load(&Interpreter)];
    for of in &models {
        let beyond = [Among { allowed: None, told: &[LOGITS as u32] }];
        let refused = rows(of, &[1], 4, &beyond).err();
        assert!(matches!(refused, Some(Error::Token { .. })), "{refused:?}");
        let refused = rows(of, &[1, 2], 4, &[Among::default()]).err();
        assert!(matches!(refused, Some(Error::Operand { .. })), "{refused:?}");
        assert_eq!(of.0.len(of.1), Ok(0), "a refused step adds no rows");
    }
}

/// A number that is none is told, whatever a mask leaves out.
#[test]
fn what_is_no_number_is_found_behind_a_mask() {
    let Some(device) = open() else { return };
    let mut table = Table::new();
    let at = 4 * (3 * LOGITS + 4000);
    table.0[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let model = device.load(program(), &table, &mut |_| ()).expect("it loads");
    let session = model.open(&CACHE).expect("a session opens");
    let among = [Among { allowed: Some(&[0b11]), told: &[7] }];
    let of = (model, session);
    // joined by the host, and by the device
    for (k, position) in [(2, 1), (200, 2)] {
        assert!(rows(&of, &[2], k, &among).is_ok());
        assert_eq!(rows(&of, &[3], k, &among).err(), Some(Error::NonFinite { position }));
    }
}
