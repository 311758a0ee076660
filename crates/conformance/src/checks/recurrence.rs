//! What recurs: convolutions and scans alone, and in sessions.

use std::sync::Arc;

use program::{Act, ConvWeights, Executor, Outputs, Program, Recorder, Result, ScanKind, ValueId};
use quant::GgmlType;

use super::ops::{check, fed_in_pieces, input, weight};
use super::sessions::{self, Subject};
use crate::made::{EXACT, all_logits, feed, program, prompt_logits};
use crate::{Made, Random, assert_same_bits};

/// A scan, and how wide it is.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: Kind,
    /// Heads, and those of keys.
    heads: [usize; 2],
    key_dim: usize,
    value_dim: usize,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Delta { by_channel: bool, by_turns: bool },
    Linear { by_channel: bool },
    Lightning,
    Ssd,
    Selective,
    Wkv6,
    Wkv7,
}

const KINDS: [Kind; 10] = [
    Kind::Delta { by_channel: false, by_turns: false },
    Kind::Delta { by_channel: false, by_turns: true },
    Kind::Delta { by_channel: true, by_turns: false },
    Kind::Linear { by_channel: false },
    Kind::Linear { by_channel: true },
    Kind::Lightning,
    Kind::Ssd,
    Kind::Selective,
    Kind::Wkv6,
    Kind::Wkv7,
];

impl Kind {
    /// With heads of these widths, as far as such a scan has several.
    fn case(self, n_heads: usize, key_dim: usize, value_dim: usize) -> Case {
        let heads = match self {
            Kind::Selective => [1; 2],
            Kind::Lightning | Kind::Wkv6 | Kind::Wkv7 => [n_heads; 2],
            Kind::Delta { .. } | Kind::Linear { .. } | Kind::Ssd => [n_heads, n_heads / 2],
        };
        Case { kind: self, heads, key_dim, value_dim }
    }
}

impl Case {
    /// A scan of what matrices make of `x`: decays are below 1, and keys no longer than that.
    fn record(self, r: &Recorder, x: ValueId, ty: GgmlType) -> Result<ValueId> {
        let Case { kind, heads: [n, n_keys], key_dim, value_dim } = self;
        let cols = r.shape(x).cols();
        let linear = |name: &str, groups: usize, dim: usize| {
            let y = r.linear(name, x, weight(r, &format!("{name}.weight"), ty, groups * dim, cols));
            r.view(&format!("{name}_heads"), y?, groups)
        };
        let below_zero = |name: &str, groups: usize, dim: usize| {
            r.scale(name, r.act(name, Act::Softplus, linear(name, groups, dim)?)?, -0.3)
        };
        let vector = |name: &str, n: usize| weight(r, name, GgmlType::F32, 1, n);
        let unit = |name: &str| {
            let x = linear(name, n_keys, key_dim)?;
            let x = r.rms_norm(name, x, vector("unit_norm.weight", key_dim), 1e-6)?;
            r.scale(name, x, (key_dim as f32).powf(-0.5))
        };
        let (q, k) = (unit("q")?, unit("k")?);
        let v = linear("v", n, value_dim)?;
        let gate = |by_channel: bool| below_zero("g", n, if by_channel { key_dim } else { 1 });
        let (kind, by_turns, inputs) = match kind {
            Kind::Delta { by_channel, by_turns } => {
                let beta = r.act("beta", Act::Sigmoid, linear("b", n, 1)?)?;
                let (q, k) = (r.scale("long_q", q, 3.0)?, r.scale("long_k", k, 0.2)?);
                let kind = ScanKind::Delta { eps: 1e-6 };
                (kind, by_turns, vec![q, k, v, gate(by_channel)?, beta])
            }
            Kind::Linear { by_channel } => {
                (ScanKind::Linear { scale: 0.3 }, false, vec![q, k, v, gate(by_channel)?])
            }
            Kind::Lightning => (ScanKind::Lightning { factor: 0.7 }, false, vec![q, k, v]),
            Kind::Ssd => {
                // what is below zero is the time, not the rate
                let (a, d) = (vector("a_norm.weight", n), vector("d", n));
                (ScanKind::Ssd { a, d }, false, vec![q, k, v, gate(false)?])
            }
            Kind::Selective => {
                let a = weight(r, "a_norm.weight", GgmlType::F32, value_dim, key_dim);
                let dt = below_zero("dt", 1, value_dim)?;
                let kind = ScanKind::Selective { a, d: vector("d", value_dim) };
                (kind, false, vec![q, k, v, dt])
            }
            Kind::Wkv6 => {
                let kind = ScanKind::Wkv6 { first: vector("first", n * key_dim) };
                (kind, false, vec![q, k, v, gate(true)?])
            }
            Kind::Wkv7 => {
                let erase = r.scale("erase", k, -1.0)?;
                let rate = linear("rate", n, key_dim)?;
                let bonus = r.gated_act("bonus", Act::Sigmoid, rate, k)?;
                (ScanKind::Wkv7, false, vec![q, k, v, gate(true)?, erase, bonus])
            }
        };
        r.scan("scan", kind, by_turns, &inputs)
    }
}

fn conv(r: &Recorder, x: ValueId, width: usize, bias: bool, act: Option<Act>) -> Result<ValueId> {
    let channels = r.shape(x).cols();
    let taps = weight(r, "taps.weight", GgmlType::F32, channels, width);
    let bias = bias.then(|| weight(r, "taps.bias", GgmlType::F32, 1, channels));
    r.causal_conv("conv", x, ConvWeights { taps, bias }, act)
}

pub(super) fn causal_conv(executor: &dyn Executor) {
    for (channels, width) in [(1, 2), (37, 4), (300, 3), (515, 8)] {
        for (bias, act) in [(false, None), (true, Some(Act::Silu))] {
            check(executor, 1e-11, &format!("{width} taps of {channels}, {act:?}"), |r| {
                conv(r, input(r, channels)?, width, bias, act)
            });
        }
        check(executor, 1e-12, &format!("the row before, of {channels}"), |r| {
            r.row_before("before", input(r, channels)?)
        });
    }
    for (width, step) in [(4, 3), (2, 7), (3, 64)] {
        fed_in_pieces(executor, 1e-11, &format!("{width} taps, {step} rows apart"), |r| {
            let x = input(r, 37)?;
            let taps = weight(r, "taps.weight", GgmlType::F32, 37, width);
            let weights = ConvWeights { taps, bias: None };
            r.spaced_conv("conv", x, weights, step, Some(Act::Silu))
        });
    }
    check(executor, 1e-11, "a part of a row", |r| {
        conv(r, r.slice("part", input(r, 50)?, 9, 31)?, 4, true, None)
    });
}

pub(super) fn scans(executor: &dyn Executor) {
    for kind in KINDS {
        for (n_heads, key_dim, value_dim) in
            [(2, 1, 1), (4, 3, 5), (2, 16, 16), (6, 33, 40), (2, 64, 128)]
        {
            let case = kind.case(n_heads, key_dim, value_dim);
            check(executor, 1e-9, &format!("{case:?}"), |r| {
                case.record(r, input(r, 32)?, GgmlType::F32)
            });
        }
    }
    // inputs that are parts of one value
    check(executor, 1e-9, "parts of a row", |r| {
        let x = conv(r, input(r, 12 + 12 + 20 + 4)?, 4, false, Some(Act::Silu))?;
        let part = |name: &str, start: usize, groups: usize, dim: usize| {
            r.view(name, r.slice(name, x, start, groups * dim)?, groups)
        };
        let (q, k) = (part("q", 0, 2, 6)?, part("k", 12, 2, 6)?);
        let (v, b) = (part("v", 24, 4, 5)?, part("b", 44, 4, 1)?);
        let g = r.scale("g", r.act("g", Act::Softplus, b)?, -1.0)?;
        r.scan("scan", ScanKind::Delta { eps: 1e-6 }, true, &[q, k, v, g, b])
    });
}

/// Two layers: a convolution and a scan each.
fn model(case: Case, ty: GgmlType) -> Arc<Program> {
    let layer = |r: &Recorder, x: ValueId| {
        let cols = r.shape(x).cols();
        let y = conv(r, x, 4, true, Some(Act::Silu))?;
        let y = case.record(r, y, ty)?;
        let width = r.shape(y).cols();
        let y = r.rms_norm("y", y, weight(r, "y_norm.weight", GgmlType::F32, 1, width), 1e-6)?;
        r.add("sum", x, r.linear("out", y, weight(r, "out.weight", ty, cols, width))?)
    };
    program(|r| {
        let mut x = r.embed(weight(r, "token_embd.weight", GgmlType::F32, 97, 64))?;
        for i in 0..2 {
            r.layer(Some(i));
            x = layer(r, x)?;
            x = r.add("shifted", x, r.row_before("before", x)?)?;
        }
        r.layer(None);
        r.linear("logits", x, weight(r, "logits.weight", ty, 97, 64))
    })
}

fn each(check: impl Fn(&Subject<'_>)) {
    for kind in [KINDS[1], Kind::Selective, Kind::Wkv7] {
        let case = kind.case(4, 16, 32);
        let types = &[GgmlType::Q8_0];
        let program = |ty| model(case, ty);
        check(&Subject { name: &format!("{kind:?}"), types, program: &program });
    }
}

/// Cuts, rollbacks, forks and batches.
pub(super) fn in_sessions(executor: &dyn Executor) {
    each(|subject| {
        sessions::chunks_in(executor, subject);
        sessions::rollback_in(executor, subject);
        sessions::fork_in(executor, subject);
        sessions::together_in(executor, subject);
    });
}

/// Histories drawn at random: steps of many sizes, some committed, some taken back, forks, and ways far back.
pub(super) fn histories(executor: &dyn Executor) {
    const LEN: usize = 320;
    for (seed, kind) in KINDS.into_iter().enumerate() {
        let program = model(kind.case(2, 16, 16), GgmlType::F32);
        let model = Made::new(executor, &program, 4).tested;
        let mut random = Random::new(100 + seed as u64);
        let tokens = random.tokens(LEN, 97);
        let want = all_logits(&*model, &EXACT, &tokens, LEN);
        assert_same_bits(&prompt_logits(&*model, &EXACT, &tokens, 100), &want, "as a prompt");
        let mut session = model.open(&EXACT).expect("a session opens");
        let mut committed = 0;
        for action in 0..100 {
            let below = |random: &mut Random, n: usize| random.bits() as usize % n.max(1);
            let len = model.len(session).expect("it is open");
            let what = format!("{kind:?}, action {action} at {len}, {committed} committed");
            match below(&mut random, 8) {
                0..4 if len < LEN => {
                    let most = [1, 3, 20, 120][below(&mut random, 4)];
                    let n = (1 + below(&mut random, most)).min(LEN - len);
                    let found = feed(&*model, session, &tokens[len..len + n], Outputs::ALL);
                    assert_same_bits(&found, &want[len * 97..(len + n) * 97], &what);
                }
                // others take their places for a while
                4 if len + 30 < LEN => {
                    let n = 1 + below(&mut random, 30);
                    feed(&*model, session, &tokens[..n], Outputs::LAST);
                    assert_eq!(model.truncate(session, len).expect("it is open"), len, "{what}");
                }
                5 => {
                    committed = committed.max(len - below(&mut random, len - committed + 1));
                    model.commit(session, committed).expect("it holds that many");
                }
                6 => {
                    let back = if below(&mut random, 3) == 0 { len } else { len - committed };
                    let to = len - below(&mut random, back + 1);
                    let reached = model.truncate(session, to).expect("it holds more");
                    assert!(reached == to || reached < committed, "{what}: {reached} of {to}");
                    committed = committed.min(reached);
                }
                _ => {
                    let fork = model.fork(session, len).expect("it holds that many");
                    assert_eq!(model.len(fork).expect("it is open"), len, "{what}");
                    let other = std::mem::replace(&mut session, fork);
                    feed(&*model, other, &tokens[..7], Outputs::NONE);
                    model.close(other);
                }
            }
        }
        model.close(session);
    }
}
