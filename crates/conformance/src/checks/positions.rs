//! Tables whose rows are chosen by position, or that have but one.

use std::sync::Arc;

use program::{
    Error, Executor, LinearWeight, Lookup, Outputs, Program, Recorder, Result, Sequence, Step,
    StepOut, ValueId,
};
use quant::GgmlType;

use super::ops::{VOCAB, types, weight};
use super::sessions::{self, Subject};
use crate::made::{EXACT, all_logits, feed, program};
use crate::{Made, Random, assert_close};

/// Positions that the tables here know.
const KNOWN: usize = 67;

/// Rows by token, by position, and one for all.
fn placed(r: &Recorder, ty: GgmlType, [rows, vocab]: [usize; 2], cols: usize) -> Result<ValueId> {
    let x = r.embed(weight(r, "token_embd.weight", GgmlType::F32, vocab, cols))?;
    let by_position =
        r.lookup("positions", weight(r, "places", ty, rows, cols), Lookup::Position)?;
    let only = r.lookup("only", weight(r, "one", ty, 1, cols), Lookup::Only)?;
    let sum = r.add("placed", by_position, x)?;
    r.add("sum", sum, only)
}

pub(super) fn lookup(executor: &dyn Executor) {
    for ty in types() {
        let cols = ty.block_len() * 3;
        let made = Made::new(executor, &program(|r| placed(r, ty, [KNOWN, VOCAB], cols)), 9);
        for (n, chunk) in [(1, 1), (8, 3), (KNOWN, 5), (KNOWN, KNOWN)] {
            let tokens = Random::new(n as u64).tokens(n, VOCAB);
            let found = all_logits(&*made.tested, &EXACT, &tokens, chunk);
            let want = all_logits(&*made.oracle, &EXACT, &tokens, n);
            assert_close(&found, &want, 1e-12, &format!("positions of {ty}, {n} rows"));
        }
        beyond(&made);
    }
}

/// A row that the table does not have is refused, and those that are there stay.
fn beyond(made: &Made) {
    for model in [&made.tested, &made.oracle] {
        let session = model.open(&EXACT).expect("a session opens");
        feed(&**model, session, &[1; KNOWN - 1], Outputs::NONE);
        let (tokens, outputs) = (&[1, 2][..], Outputs::LAST);
        let two = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
        let refused = model.step(&Step { sequences: &[two] }).and_then(StepOut::single);
        let full = Error::ContextFull { wanted: KNOWN + 1, capacity: KNOWN };
        assert_eq!(refused, Err(full), "a position that was not learned");
        assert_eq!(model.len(session), Ok(KNOWN - 1), "a refused step adds rows");
        feed(&**model, session, &[1], Outputs::LAST);
        model.close(session);
    }
}

/// Two matrices over rows that know their positions.
fn model(ty: GgmlType) -> Arc<Program> {
    program(|r| {
        let x = placed(r, GgmlType::F32, [1024, 97], 64)?;
        let matrix = |name| LinearWeight::from(weight(r, name, ty, 97, 64));
        r.add("y", r.linear("a", x, matrix("a"))?, r.linear("b", x, matrix("b"))?)
    })
}

pub(super) fn sessions(executor: &dyn Executor) {
    let subject = Subject { name: "learned positions", types: &[GgmlType::Q8_0], program: &model };
    sessions::chunks_in(executor, &subject);
    sessions::rollback_in(executor, &subject);
    sessions::fork_in(executor, &subject);
    sessions::reuse_in(executor, &subject);
    sessions::together_in(executor, &subject);
}
