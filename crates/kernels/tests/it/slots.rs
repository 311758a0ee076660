//! Every slot's kernels write the bits that its naive kernel writes. Slots are read from the source, so one that is not
//! compared here fails the test.

use std::collections::BTreeSet;
use std::path::Path;

use kernels::attention::{
    ANCHORS, ATTEND, DOTS, ElemType, HeadShape, MASSES, MERGE, PROMISE, Partials, SCORE_SUMS,
    SCORES, Seen,
};
use kernels::latent::{LATENT_ATTEND, LATENT_TILE, LatentShape};
use kernels::linear::QUANTIZE_Q8;
use kernels::probe::{FMA, INT8, READ};
use kernels::rows::{
    ACT, ADD, ADD_PRODUCT, ADD_WEIGHTED, GATED, Gated, LAYER_NORM, NormFn, PEAK, PEAKS, Pairs,
    RMS_NORM, ROTATE, Unary,
};
use kernels::{Isa, Level, Slot};

use crate::support::{Random, compare, isas, sizes};
use crate::{attention, latent, scan};

/// Lengths around those of registers, tiles and blocks.
const LENGTHS: &[usize] =
    sizes(&[1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1023], &[1, 7, 16, 33]);

type Names = Vec<&'static str>;
type Compare = fn() -> Names;

/// The statics in `src` that are slots, and what compares their kernels with naive; it yields the names of those it
/// compared.
const COMPARED: &[(&str, Compare)] = &[
    ("ATTEND", attend),
    ("SCORE_SUMS", score_sums),
    ("SCORES", scores),
    ("MASSES", masses),
    ("MERGE", merge),
    ("PROMISE", promise),
    ("DOTS", dots),
    ("LATENT_ATTEND", latent_attend),
    ("QUANTIZE_Q8", quantize_q8),
    ("LAYER_NORM", layer_norm),
    ("RMS_NORM", rms_norm),
    ("ADD", add),
    ("ADD_PRODUCT", add_product),
    ("SCAN", scan::scan),
    ("SELECTIVE_SCAN", scan::selective),
    ("ADD_WEIGHTED", add_weighted),
    ("ROTATE", rotate),
    ("PEAKS", peaks),
    ("ACT", act),
    ("GATED", gated),
    ("READ", read),
    ("FMA", || rate(&FMA)),
    ("INT8", || rate(&INT8)),
];

#[test]
fn every_kernel_of_every_slot_is_compared_with_naive() {
    let in_source: BTreeSet<String> = slots_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let listed: BTreeSet<String> = COMPARED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(in_source, listed, "slots in src, and slots whose kernels are compared");
    // those take Miri half an hour once more: it runs the same kernels in tests of their own
    let again = |name: &str| ["ATTEND", "SCORE_SUMS", "SCORES", "LATENT_ATTEND"].contains(&name);
    for (name, check) in COMPARED.iter().filter(|(name, _)| !(cfg!(miri) && again(name))) {
        let compared: BTreeSet<_> = check().into_iter().collect();
        let vectors = isas("slots").iter().any(|(_, isa)| *isa != Isa::NONE);
        assert!(!compared.is_empty() || !vectors, "{name}: no kernel beside naive");
        eprintln!("{name}: {compared:?}");
    }
}

/// Names in `static NAME: Slot<..>`, in all files of a folder.
fn slots_of(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).expect("the crate's source") {
        let path = entry.expect("the crate's source").path();
        if path.is_dir() {
            found.extend(slots_of(&path));
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("source is text");
        for (before, _) in text.match_indices(": Slot<").map(|(at, _)| text.split_at(at)) {
            let line = before.lines().next_back().unwrap_or("");
            if let Some((_, name)) = line.split_once("static ") {
                found.insert(name.to_owned());
            }
        }
    }
    found
}

/// The naive kernel is the slot's own, whatever else any CPU can run.
#[test]
fn naive_is_naive_though_others_need_nothing_either() {
    assert_eq!(ATTEND.naive().name(), "attend/naive");
    assert_eq!(ATTEND.pick(Isa::NONE).name(), "attend/portable");
    assert_eq!(LATENT_ATTEND.naive().name(), "latent_attend/naive");
    assert_eq!(LATENT_ATTEND.naive().level(), Level::Naive);
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Numbers of many sizes, with both zeros; also what is not finite, if asked.
fn floats(random: &mut Random, n: usize, finite: bool) -> Vec<f32> {
    let mut x = random.floats(n, 6.0);
    for (i, x) in x.iter_mut().enumerate() {
        match i % 23 {
            3 => *x *= 1e-3,
            5 => *x *= 40.0,
            7 => *x = 0.0,
            11 => *x = -0.0,
            13 if !finite => *x = f32::INFINITY,
            _ => {}
        }
    }
    x
}

/// All that a comparison at each of [`LENGTHS`] named.
fn at_lengths(check: impl Fn(usize, &mut Random) -> Names) -> Names {
    LENGTHS.iter().flat_map(|n| check(*n, &mut Random::new(*n as u64))).collect()
}

fn attend() -> Names {
    cases(|what, case| compare(&ATTEND, what, |kernel| bits(&case.run(kernel))))
}

/// What [`ATTEND`] finds beside its outputs.
fn score_sums() -> Names {
    cases(|what, case| {
        let mut attended = case.run(ATTEND.naive());
        let (max, sum) = case.sums(&mut attended);
        let want: Vec<u32> = max.iter().zip(sum).flat_map(|(m, s)| bits(&[*m, *s])).collect();
        compare(&SCORE_SUMS, what, |kernel| {
            let found = case.run_sums(kernel);
            let found = found.iter().flat_map(|of| bits(&[of.max, of.sum])).collect::<Vec<_>>();
            assert_eq!(found, want, "{what}: as attention has them");
            found
        })
    })
}

/// The greatest of what [`ATTEND`] finds beside its outputs.
fn scores() -> Names {
    cases(|what, case| {
        let mut attended = case.run(ATTEND.naive());
        let want = case.sums(&mut attended).0.to_vec();
        compare(&SCORES, what, |kernel| {
            let found = case.run_scores(kernel);
            let greatest = |row: &Vec<f32>| row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(
                found.iter().map(greatest).collect::<Vec<_>>(),
                want,
                "{what}: the greatest"
            );
            found.iter().flat_map(|row| bits(row)).collect::<Vec<_>>()
        })
    })
}

fn masses() -> Names {
    cases(|what, case| compare(&MASSES, what, |kernel| bits(&case.run_masses(kernel))))
}

fn cases(check: impl Fn(&str, &attention::Case) -> Names) -> Names {
    let mut names = Vec::new();
    let dims = sizes(&[(1, 1), (17, 33), (31, 16), (64, 64), (130, 5)][..], &[(9, 5)]);
    for &(key_dim, value_dim) in dims {
        // under Miri the tests of each op read every type
        for &k in &ElemType::ALL[..sizes(ElemType::ALL.len(), 1)] {
            let values = ElemType::ALL.into_iter().zip([false, true, true]);
            for (v, adjusted) in values.take(sizes(ElemType::ALL.len(), 2)) {
                let shape = HeadShape { key_dim, value_dim, k, v };
                let ranges = [(0, 128), (3, 20), (0, 0), (127, 128), (15, 17), (16, 48), (0, 1)];
                let seen = ranges.map(|(from, to)| Seen::new(from, to)).to_vec();
                let case = attention::Case::ranges(shape, seen, key_dim as u64);
                let case = if adjusted { case.adjusted(7.0, 3) } else { case };
                names.extend(check(&format!("{shape:?}, adjusted: {adjusted}"), &case));
            }
        }
    }
    names
}

fn merge() -> Names {
    at_lengths(|n, random| {
        let shape = HeadShape { key_dim: 1, value_dim: n, k: ElemType::F32, v: ElemType::F32 };
        let floats = Partials::floats(4, &shape);
        let [mut first, mut later] = [(); 2].map(|()| random.floats(floats, 3.0));
        // Rows that saw nothing: on both sides, and on either.
        for (memory, rows) in [(&mut first, [0, 1]), (&mut later, [0, 2])] {
            let state = Partials::new(memory, 4, &shape);
            for row in rows {
                (state.max[row], state.sum[row]) = (f32::NEG_INFINITY, 0.0);
            }
        }
        compare(&MERGE, &format!("{n} values"), |kernel| {
            let (mut state, mut later) = (first.clone(), later.clone());
            let block = Partials::new(&mut later, 4, &shape);
            kernel.call(&mut Partials::new(&mut state, 4, &shape), &block);
            bits(&state)
        })
    })
}

fn promise() -> Names {
    at_lengths(|width, random| {
        let anchors = random.floats(width * ANCHORS, 1.0);
        let check = |n: usize| {
            let queries = Random::new(n as u64).floats(n * width, 2.0);
            compare(&PROMISE, &format!("{n} rows of {width}"), |kernel| {
                let mut promises = vec![[9.0; ANCHORS]; n];
                kernel.call(&queries, anchors.as_chunks().0, &mut promises);
                bits(promises.as_flattened())
            })
        };
        [0, 1, 3, 4, 9].into_iter().flat_map(check).collect()
    })
}

fn dots() -> Names {
    at_lengths(|width, random| {
        let vector = random.floats(width, 1.0);
        let check = |n: usize| {
            let queries = Random::new(n as u64).floats(n * width, 2.0);
            compare(&DOTS, &format!("{n} rows of {width}"), |kernel| {
                let mut products = vec![9.0; n];
                kernel.call(&queries, &vector, &mut products);
                bits(&products)
            })
        };
        [0, 1, 3, 4, 9].into_iter().flat_map(check).collect()
    })
}

fn latent_attend() -> Names {
    let mut names = Vec::new();
    for &(rank, rope_dim) in sizes(&[(1, 1), (17, 2), (33, 16), (64, 31)][..], &[(9, 2)]) {
        for &elem in &ElemType::ALL[..sizes(ElemType::ALL.len(), 1)] {
            let all = &[1, LATENT_TILE - 1, LATENT_TILE + 1, 2 * LATENT_TILE + 7][..];
            for &n in sizes(all, &[1, LATENT_TILE + 1]) {
                let shape = LatentShape { rank, rope_dim, elem };
                let visible = (0..19).map(|row| [n, 0, row.min(n), 1][row % 4]).collect();
                let case = latent::Case::new(shape, n, visible, rank as u64);
                let what = format!("{shape:?}, {n} positions");
                names.extend(compare(&LATENT_ATTEND, &what, |kernel| bits(&case.run(kernel))));
            }
        }
    }
    names
}

fn quantize_q8() -> Names {
    let mut names = Vec::new();
    let all = &[(32, 32), (32, 96), (32, 1056), (256, 256), (256, 1280)][..];
    for &(block, cols) in sizes(all, &[(32, 96), (256, 256)]) {
        let mut x = floats(&mut Random::new(cols as u64), cols, false);
        x[..16].fill(f32::MIN_POSITIVE);
        x[cols - 1] = f32::NAN;
        names.extend(compare(&QUANTIZE_Q8, &format!("{cols} by {block}"), |kernel| {
            let mut codes = vec![99; cols];
            let (mut scales, mut sums) = (vec![9.0; cols / 32], vec![9; cols / 16]);
            kernel.call(&x, block, &mut codes, &mut scales, &mut sums);
            let codes = codes.into_iter().map(|code| code as u32);
            codes.chain(bits(&scales)).chain(sums.into_iter().map(|sum| sum as u32)).collect()
        }));
    }
    names
}

fn rms_norm() -> Names {
    norm(&RMS_NORM)
}

fn layer_norm() -> Names {
    norm(&LAYER_NORM)
}

fn norm(slot: &'static Slot<NormFn>) -> Names {
    at_lengths(|n, random| {
        let (x, weight) = (floats(random, n, true), random.floats(n, 2.0));
        compare(slot, &format!("{n}"), |kernel| {
            let mut out = vec![9.0; n];
            kernel.call(&x, &weight, 1e-6, &mut out);
            bits(&out)
        })
    })
}

fn add() -> Names {
    at_lengths(|n, random| {
        let (a, b) = (floats(random, n, false), random.floats(n, 2.0));
        compare(&ADD, &format!("{n}"), |kernel| {
            let mut out = vec![9.0; n];
            kernel.call(&a, &b, &mut out);
            bits(&out)
        })
    })
}

fn add_product() -> Names {
    at_lengths(|n, random| {
        let (a, b) = (floats(random, n, false), random.floats(n, 2.0));
        compare(&ADD_PRODUCT, &format!("{n}"), |kernel| {
            let mut out = vec![9.0; n];
            kernel.call(&a, &b, &mut out);
            bits(&out)
        })
    })
}

fn add_weighted() -> Names {
    [0, 1, 2, 3, 7, 13].into_iter().flat_map(add_weighted_rows).collect()
}

fn add_weighted_rows(n: usize) -> Names {
    let mut random = Random::new(n as u64);
    // A row may be added to again and again, in order.
    let rows: Vec<u32> = (0..n as u32).map(|i| i * 5 % 9).collect();
    let (x, weights) = (floats(&mut random, 16 * n, true), random.floats(n, 2.0));
    let sums = random.floats(16 * 9, 1.0);
    compare(&ADD_WEIGHTED, &format!("{n} rows"), |kernel| {
        let mut sums = sums.clone();
        kernel.call(&x, &rows, &weights, &mut sums);
        bits(&sums)
    })
}

fn rotate() -> Names {
    at_lengths(|n, random| {
        // A head of odd width, of which all pairs rotate, or half of them.
        let (x, angles) = (floats(random, 2 * n + 1, true), random.floats(2 * n, 1.0));
        let (cos, sin) = angles.split_at(n);
        let cases = [n, n / 2]
            .into_iter()
            .flat_map(|pairs| [Pairs::HalfSplit, Pairs::Interleaved].map(|order| (pairs, order)));
        let check = |(pairs, order)| {
            compare(&ROTATE, &format!("{pairs} pairs, {order:?}"), |kernel| {
                let mut x = x.clone();
                kernel.call(&mut x, &cos[..pairs], &sin[..pairs], order);
                bits(&x)
            })
        };
        cases.flat_map(check).collect()
    })
}

fn peaks() -> Names {
    at_lengths(|n, random| {
        let row = floats(random, n, false);
        compare(&PEAKS, &format!("{n}"), |kernel| {
            let mut out = vec![9.0; n.div_ceil(PEAK)];
            kernel.call(&row, &mut out);
            // NaN has many bits, all of one meaning.
            bits(&out).into_iter().zip(&out).map(|(b, x)| if x.is_nan() { 0 } else { b }).collect()
        })
    })
}

fn act() -> Names {
    at_lengths(|n, random| {
        let x = floats(random, n, true);
        let check = |act| {
            compare(&ACT, &format!("{act:?} of {n}"), |kernel| {
                let mut x = x.clone();
                kernel.call(act, &mut x);
                bits(&x)
            })
        };
        crate::rows::UNARY.into_iter().flat_map(check).collect()
    })
}

fn gated() -> Names {
    at_lengths(|n, random| {
        let (gate, up) = (floats(random, n, true), random.floats(n, 3.0));
        let check = |act| {
            compare(&GATED, &format!("{act:?} of {n}"), |kernel| {
                let mut out = vec![9.0; n];
                kernel.call(act, &gate, &up, &mut out);
                bits(&out)
            })
        };
        let [silu, gelu] = [Unary::Silu, Unary::Gelu].map(Gated::Unary);
        crate::rows::gates().into_iter().chain([silu, gelu]).flat_map(check).collect()
    })
}

fn read() -> Names {
    let bytes: Vec<u8> = (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect();
    let lengths = [0, 511, 512, 513, 1024, 5000].into_iter();
    let cases = lengths.flat_map(|n| [(n, false), (n, true)]);
    let check = |(n, ahead)| {
        compare(&READ, &format!("{n} bytes, ahead: {ahead}"), |kernel| {
            let sum = kernel.call(&bytes[..n], ahead);
            vec![sum as u32, (sum >> 32) as u32]
        })
    };
    cases.flat_map(check).collect()
}

/// What a probe of a rate yields is its own count: as many for each round.
fn rate(slot: &'static Slot<kernels::probe::RateFn>) -> Names {
    compare(slot, "rounds", |kernel| {
        let one = kernel.call(1);
        assert!(one > 0, "{} does something", kernel.name());
        [0, 2, 7].map(|rounds| (kernel.call(rounds) == one * rounds as u64).into()).to_vec()
    })
}
