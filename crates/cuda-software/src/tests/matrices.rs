//! `wmma`.

use super::{Buffer, Numbers, kernel, run};
use crate::exec::{FaultKind, half};

fn registers(first: usize) -> String {
    let names: Vec<String> = (first..first + 8).map(|i| format!("%r{i}")).collect();
    format!("{{{}}}", names.join(","))
}

/// Copies `words` words from buffer `%bN` to shared memory, then waits.
fn fill(buffer: usize, name: &str, words: usize) -> String {
    format!(
        "mov.u32 %r1, %tid.x; mov.u32 %r2, {name};
         F{buffer}: setp.ge.u32 %p1, %r1, {words}; @%p1 bra G{buffer};
         mul.wide.u32 %d1, %r1, 4; add.u64 %d2, %b{buffer}, %d1; ld.global.b32 %r3, [%d2];
         shl.b32 %r4, %r1, 2; add.u32 %r4, %r2, %r4; st.shared.b32 [%r4], %r3; add.u32 %r1, %r1, 32; bra.uni F{buffer};
         G{buffer}:\n"
    )
}

/// `a[m][k]`, `b[k][n]`, `c[m][n]` as small floats.
fn values(seed: u64) -> [[[f32; 16]; 16]; 3] {
    let mut numbers = Numbers(seed);
    let mut value = || half::to_f32(half::from_f32((numbers.next() % 2001) as f32 / 1000.0 - 1.0));
    let mut out = [[[0.0; 16]; 16]; 3];
    out.as_flattened_mut().as_flattened_mut().iter_mut().for_each(|x| *x = value());
    out
}

/// f16 elements with a stride, as words.
fn pack(matrix: &[[f32; 16]; 16], col: bool, stride: usize) -> Vec<u32> {
    let mut halves = vec![0_u32; 16 * stride];
    for (row, values) in matrix.iter().enumerate() {
        for (column, &x) in values.iter().enumerate() {
            let at = if col { column * stride + row } else { row * stride + column };
            halves[at] = half::from_f32(x);
        }
    }
    halves.chunks(2).map(|pair| pair[0] | pair[1] << 16).collect()
}

fn text(a_col: &str, b_col: &str, d_col: &str, mma: &str) -> String {
    kernel(
        4,
        &format!(
            ".shared .align 32 .b8 s_a[768]; .shared .align 32 .b8 s_b[512]; .shared .align 32 .b8 s_c[1024];
             {}{}{} bar.sync 0;
             mov.b32 %r9, 24;
             wmma.load.a.sync.aligned.{a_col}.m16n16k16.shared.f16 {a}, [s_a], %r9;
             mov.u64 %d3, s_b; wmma.load.b.sync.aligned.{b_col}.m16n16k16.shared.f16 {b}, [%d3];
             mov.u32 %r10, s_c; wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {c}, [%r10], 16;
             {mma}
             bar.sync 0;
             wmma.store.d.sync.aligned.{d_col}.m16n16k16.shared.f32 [s_c], {d}, 16;
             bar.sync 0;
             mov.u32 %r1, %tid.x; mov.u32 %r2, s_c;
             W: setp.ge.u32 %p1, %r1, 256; @%p1 bra X; shl.b32 %r4, %r1, 2; add.u32 %r4, %r2, %r4; ld.shared.b32 %r3, [%r4];
             mul.wide.u32 %d1, %r1, 4; add.u64 %d2, %b3, %d1; st.global.b32 [%d2], %r3; add.u32 %r1, %r1, 32; bra.uni W;
             X:",
            fill(0, "s_a", 192),
            fill(1, "s_b", 128),
            fill(2, "s_c", 256),
            a = registers(16),
            b = registers(24),
            c = registers(32),
            d = registers(40),
        ),
    )
}

fn mma(a_col: &str, b_col: &str) -> String {
    format!(
        "wmma.mma.sync.aligned.{a_col}.{b_col}.m16n16k16.f32.f32 {}, {}, {}, {};",
        registers(40),
        registers(16),
        registers(24),
        registers(32)
    )
}

#[test]
fn products_in_all_layouts() {
    let [a, b, c] = values(3);
    let mut want = c;
    for (want, a) in want.iter_mut().zip(&a) {
        for (a, b) in a.iter().zip(&b) {
            for (want, b) in want.iter_mut().zip(b) {
                *want += a * b;
            }
        }
    }
    for bits in 0..8 {
        let col = |bit: u32| bits >> bit & 1 == 1;
        let [la, lb, ld] = [0, 1, 2].map(|bit| if col(bit) { "col" } else { "row" });
        let buffers = [
            Buffer::Words(pack(&a, col(0), 24)),
            Buffer::Words(pack(&b, col(1), 16)),
            Buffer::Words(c.as_flattened().iter().map(|x| x.to_bits()).collect()),
            Buffer::Unwritten(256),
        ];
        let out = run(&text(la, lb, ld, &mma(la, lb)), 32, &buffers);
        let out = out.unwrap_or_else(|fault| panic!("{}", fault.text)).remove(3);
        for (m, want) in want.iter().enumerate() {
            for (n, want) in want.iter().enumerate() {
                let at = if col(2) { n * 16 + m } else { m * 16 + n };
                assert_eq!(f32::from_bits(out[at]), *want, "{la} {lb} {ld} ({m}, {n})");
            }
        }
    }
}

#[test]
fn fragments_are_used_as_what_they_are() {
    let [a, b, c] = values(4);
    let buffers = [
        Buffer::Words(pack(&a, false, 24)),
        Buffer::Words(pack(&b, false, 16)),
        Buffer::Words(c.as_flattened().iter().map(|x| x.to_bits()).collect()),
        Buffer::Unwritten(256),
    ];
    // Loaded as rows, multiplied as columns.
    let fault =
        run(&text("row", "row", "row", &mma("row", "col")), 32, &buffers).expect_err("faulty");
    assert!(fault.text.contains("operand B"), "{}", fault.text);
    // `b` as `a`.
    let swapped = format!(
        "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {}, {}, {}, {};",
        registers(40),
        registers(24),
        registers(16),
        registers(32)
    );
    let fault = run(&text("row", "row", "row", &swapped), 32, &buffers).expect_err("faulty");
    assert!(fault.text.contains("operand A"), "{}", fault.text);
    // Half of a warp.
    let guarded =
        format!("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @%p1 {}", mma("row", "row"));
    let fault = run(&text("row", "row", "row", &guarded), 32, &buffers).expect_err("faulty");
    assert_eq!(fault.kind, FaultKind::Divergent, "{}", fault.text);
    // A store that a lane reads without a barrier.
    let racing = text("row", "row", "row", &mma("row", "row"));
    let at = racing.rfind("bar.sync 0;").expect("is there");
    let fault =
        run(&format!("{}{}", &racing[..at], &racing[at + 11..]), 32, &buffers).expect_err("races");
    assert_eq!(fault.kind, FaultKind::Race, "{}", fault.text);
}

#[test]
fn matrices_are_aligned_and_inside() {
    let load = |address: &str, stride: u32| {
        let body = format!(
            ".shared .align 32 .b8 s_a[512]; wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {}, [{address}], {stride};",
            registers(16)
        );
        run(&kernel(0, &body), 32, &[]).expect_err("faulty").kind
    };
    assert_eq!(load("s_a", 16), FaultKind::Uninitialized);
    assert_eq!(load("s_a+16", 16), FaultKind::Alignment);
    assert_eq!(load("s_a", 12), FaultKind::Alignment);
    assert_eq!(load("s_a+512", 16), FaultKind::Address);
}

#[test]
fn matrices_in_global_memory() {
    let [a, ..] = values(9);
    let body = format!(
        "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {}, [%b0], 16; wmma.store.d.sync.aligned.col.m16n16k16.global.f32 [%b1], {}, 16;",
        registers(16),
        registers(16)
    );
    let words: Vec<u32> = a.as_flattened().iter().map(|x| x.to_bits()).collect();
    let out = run(&kernel(2, &body), 32, &[Buffer::Words(words), Buffer::Unwritten(256)]);
    let out = out.unwrap_or_else(|fault| panic!("{}", fault.text)).remove(1);
    for m in 0..16 {
        for n in 0..16 {
            assert_eq!(out[n * 16 + m], a[m][n].to_bits());
        }
    }
}
