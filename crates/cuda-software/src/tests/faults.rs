//! Faults: each is found, told apart and described.

use super::{Buffer, kernel, run, run_with};
use crate::exec::{FaultKind, Options, Uninitialized};

/// Runs a kernel that must fail; its description.
fn fails(kind: FaultKind, threads: u32, body: &str, parts: &[&str]) {
    let text = kernel(2, body);
    let buffers = [Buffer::Words((0..64).collect()), Buffer::Unwritten(64)];
    let fault = run(&text, threads, &buffers).expect_err("the kernel is faulty");
    assert_eq!(fault.kind, kind, "{}", fault.text);
    for part in parts.iter().chain(&["kernel `main`, PTX line"]) {
        assert!(fault.text.contains(part), "`{part}` is not in: {}", fault.text);
    }
}

/// Runs a kernel that has no fault.
fn passes(threads: u32, body: &str) -> Vec<Vec<u32>> {
    let text = kernel(2, body);
    let buffers = [Buffer::Words((0..64).collect()), Buffer::Unwritten(64)];
    run(&text, threads, &buffers).unwrap_or_else(|fault| panic!("{}", fault.text))
}

#[test]
fn accesses_outside_allocations() {
    let body = |access: &str| {
        format!("mov.u32 %r1, %tid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %b0, %d1;\n{access}")
    };
    passes(64, &body("ld.global.b32 %r2, [%d1];"));
    fails(
        FaultKind::Address,
        66,
        &body("ld.global.b32 %r2, [%d1];"),
        &[
            "line 10,",
            "block (0, 0, 0), thread (64, 0, 0)",
            "read of 4 bytes",
            "0 bytes beyond allocation 1 (256 bytes",
        ],
    );
    fails(
        FaultKind::Address,
        1,
        &body("st.global.b32 [%d1-4], %r1;"),
        &["write of 4 bytes", "4 bytes before allocation 1"],
    );
    fails(
        FaultKind::Address,
        1,
        &body("ld.global.v4.b32 {%r2,%r3,%r4,%r5}, [%d1+248];"),
        &["16 bytes"],
    );
    fails(
        FaultKind::Address,
        1,
        "mov.u64 %d1, 16; ld.global.b32 %r1, [%d1];",
        &["no allocation was ever there"],
    );
    // An index that wraps around 32 bits.
    fails(
        FaultKind::Address,
        1,
        "mov.b32 %r1, -1; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %b0, %d1; ld.global.b32 %r2, [%d1];",
        &["17179868924 bytes beyond allocation 1"],
    );
}

#[test]
fn misaligned_accesses() {
    fails(
        FaultKind::Alignment,
        1,
        "ld.global.b32 %r1, [%b0+2];",
        &["not aligned", "byte 2 of allocation 1"],
    );
    fails(
        FaultKind::Alignment,
        1,
        "ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%b0+8];",
        &["not aligned"],
    );
    fails(
        FaultKind::Alignment,
        1,
        "mov.b32 %r1, 1; st.global.v2.b32 [%b0+4], {%r1, %r1};",
        &["write of 8"],
    );
    fails(
        FaultKind::Alignment,
        1,
        ".shared .align 4 .b8 s_x[64]; mov.b32 %r1, 1; st.shared.v2.b32 [s_x], {%r1, %r1};",
        &["`s_x`", "the variable is aligned to 4"],
    );
    fails(
        FaultKind::Alignment,
        1,
        ".local .align 8 .b8 l_x[64]; mov.b32 %r1, 1; st.local.b32 [l_x+6], %r1;",
        &["`l_x` at byte 6"],
    );
}

#[test]
fn accesses_outside_variables() {
    let shared = ".shared .align 16 .b8 s_a[64]; .shared .align 16 .b8 s_b[64]; mov.b32 %r1, 1;\n";
    fails(
        FaultKind::Address,
        1,
        &format!("{shared} st.shared.b32 [s_a+64], %r1;"),
        &["`s_a` at byte 64 of 64"],
    );
    fails(
        FaultKind::Address,
        1,
        &format!("{shared} st.shared.b32 [s_b-4], %r1;"),
        &["`s_b` at byte -4 of 64"],
    );
    fails(
        FaultKind::Address,
        1,
        &format!("{shared} mov.u64 %d1, 0; st.shared.b32 [%d1], %r1;"),
        &["in no variable"],
    );
    fails(
        FaultKind::Address,
        1,
        ".local .align 4 .b8 l_a[8]; ld.local.b32 %r1, [l_a+8];",
        &["`l_a` at byte 8 of 8"],
    );
}

#[test]
fn reads_before_writes() {
    fails(
        FaultKind::Uninitialized,
        1,
        "ld.global.b32 %r1, [%b1+12];",
        &["never written", "byte 12 of allocation 2"],
    );
    // Half of a word is written.
    let half = "mov.b32 %r1, 1; st.global.u16 [%b1+4], %r1;";
    fails(
        FaultKind::Uninitialized,
        1,
        &format!("{half} ld.global.b32 %r2, [%b1+4];"),
        &["never written"],
    );
    passes(1, &format!("{half} ld.global.u16 %r2, [%b1+4];"));
    let shared = ".shared .align 16 .b8 s_a[64]; mov.b32 %r1, 1; st.shared.b32 [s_a+8], %r1;";
    passes(1, &format!("{shared} ld.shared.b32 %r2, [s_a+8];"));
    fails(
        FaultKind::Uninitialized,
        1,
        &format!("{shared} ld.shared.v2.b32 {{%r2, %r3}}, [s_a+8];"),
        &["`s_a` at byte 12", "never written in this block"],
    );
    let local = ".local .align 16 .b8 l_a[64]; mov.b32 %r1, 1; st.local.b32 [l_a+8], %r1;";
    passes(33, &format!("{local} ld.local.b32 %r2, [l_a+8];"));
    fails(
        FaultKind::Uninitialized,
        1,
        &format!("{local} ld.local.b32 %r2, [l_a+4];"),
        &["local memory"],
    );
    // Only one thread wrote its own.
    fails(
        FaultKind::Uninitialized,
        2,
        ".local .align 16 .b8 l_a[64]; mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; @%p1 st.local.b32 [l_a], %r1; ld.local.b32 %r2, [l_a];",
        &["thread (1, 0, 0)"],
    );
}

#[test]
fn shared_memory_is_undefined_in_the_next_block() {
    let body = ".shared .align 4 .b32 s_a; .local .align 4 .b32 l_a; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 7;
         @%p1 st.shared.b32 [s_a], %r1; @%p1 st.local.b32 [l_a], %r1;\n";
    for access in ["ld.shared.b32 %r2, [s_a];", "ld.local.b32 %r2, [l_a];"] {
        let text = kernel(0, &format!("{body} {access}"));
        let sizes = [[64, 1, 1], [1, 1, 1]];
        let fault = run_with(&text, sizes, &[], &Options::default()).expect_err("block 7 reads");
        assert_eq!(fault.kind, FaultKind::Uninitialized);
        assert!(fault.text.contains("block (7, 0, 0)"), "{}", fault.text);
    }
}

#[test]
fn checks_can_be_switched_off() {
    let options =
        Options { uninitialized: Uninitialized::Allow, races: false, ..Options::default() };
    let text = kernel(
        1,
        ".shared .align 4 .b32 s_a; ld.global.b32 %r1, [%b0]; ld.shared.b32 %r1, [s_a]; mov.u32 %r1, %tid.x; st.shared.b32 [s_a], %r1;",
    );
    let sizes = [[1, 1, 1], [64, 1, 1]];
    assert!(run_with(&text, sizes, &[Buffer::Unwritten(1)], &options).is_ok());
}

#[test]
fn races_on_shared_memory() {
    let start = ".shared .align 16 .b8 s_a[512]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s_a; add.u32 %r3, %r3, %r2;\n";
    // Different values to one word.
    fails(
        FaultKind::Race,
        64,
        &format!("{start} st.shared.b32 [s_a], %r1;"),
        &["race on `s_a` at byte 0", "writes, then thread"],
    );
    // The same value.
    passes(64, &format!("{start} mov.b32 %r5, 3; st.shared.b32 [s_a], %r5;"));
    // A neighbour's word without a barrier, in the same warp too.
    let neighbour =
        "xor.b32 %r2, %r2, 4; mov.u32 %r4, s_a; add.u32 %r4, %r4, %r2; ld.shared.b32 %r5, [%r4];";
    fails(
        FaultKind::Race,
        64,
        &format!("{start} st.shared.b32 [%r3], %r1; {neighbour}"),
        &["writes, then thread", "reads without a barrier"],
    );
    passes(64, &format!("{start} st.shared.b32 [%r3], %r1; bar.sync 0; {neighbour}"));
    // Shuffles order nothing.
    fails(
        FaultKind::Race,
        32,
        &format!(
            "{start} st.shared.b32 [%r3], %r1; shfl.sync.bfly.b32 %r6, %r1, 1, 0x1f, 0xffffffff; {neighbour}"
        ),
        &["race"],
    );
    // A write after others read.
    fails(
        FaultKind::Race,
        64,
        &format!(
            "{start} st.shared.b32 [%r3], %r1; bar.sync 0; {neighbour} st.shared.b32 [%r3], %r5;"
        ),
        &["reads, then thread"],
    );
    passes(
        64,
        &format!(
            "{start} st.shared.b32 [%r3], %r1; bar.sync 0; {neighbour} bar.sync 0; st.shared.b32 [%r3], %r5;"
        ),
    );
    // Halves of one word are two places.
    passes(
        64,
        ".shared .align 16 .b8 s_h[128]; mov.u32 %r1, %tid.x; cvt.u16.u32 %h1, %r1; shl.b32 %r2, %r1, 1; mov.u32 %r3, s_h; add.u32 %r3, %r3, %r2;
         st.shared.b16 [%r3], %h1; ld.shared.b16 %h2, [%r3];",
    );
}

#[test]
fn races_between_blocks() {
    let check = |body: &str| {
        let text = kernel(
            2,
            &format!(
                "mov.u32 %r1, %ctaid.x; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %b0, %d1;\n{body}"
            ),
        );
        let buffers = [Buffer::Words((0..64).collect()), Buffer::Unwritten(64)];
        run_with(&text, [[64, 1, 1], [1, 1, 1]], &buffers, &Options::default())
    };
    let fails = |body: &str, part: &str| {
        let fault = check(body).expect_err("races");
        assert_eq!(fault.kind, FaultKind::Race, "{}", fault.text);
        assert!(fault.text.contains(part), "`{part}` is not in {}", fault.text);
    };
    assert!(
        check("ld.global.b32 %r2, [%d1]; add.u32 %r2, %r2, 1; st.global.b32 [%d1], %r2;").is_ok()
    );
    fails("ld.global.b32 %r2, [%b0]; st.global.b32 [%d1], %r2;", "in the same launch");
    // A base that is chosen, and one that is loaded from local memory.
    fails(
        "setp.lt.u32 %p1, %r1, 1; selp.b64 %d2, %b1, %b0, %p1; ld.global.b32 %r2, [%b0]; st.global.b32 [%d2], %r1;",
        "in the same launch",
    );
    fails(
        ".local .b64 l_p; st.local.b64 [l_p], %b0; ld.local.b64 %d3, [l_p]; st.global.b32 [%d3], %r1;",
        "in the same launch",
    );
    fails("st.global.b32 [%b1], %r1;", "wrote in the same launch what this block writes");
    assert!(check("mov.b32 %r2, 7; st.global.b32 [%b1], %r2;").is_ok());
    // By the same thread, but through the cache of constants.
    fails(
        "ld.global.nc.b32 %r2, [%d1]; st.global.b32 [%d1], %r2;",
        "ld.global.nc of what the launch writes",
    );
}

#[test]
fn divergence() {
    let start = "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 7;\n";
    let shuffle = "shfl.sync.bfly.b32 %r2, %r1, 1, 0x1f, 0xffffffff;";
    // Two different shuffles.
    fails(
        FaultKind::Divergent,
        32,
        &format!("{start} @%p1 bra A; {shuffle} bra.uni END;\nA: {shuffle}\nEND:"),
        &["divergent", "0x7f at line", "0xffffff80 at line"],
    );
    // One that some skip.
    fails(
        FaultKind::Divergent,
        32,
        &format!("{start} @%p1 {shuffle}"),
        &["reads lane 7, which takes no part"],
    );
    // Lane 7 reads lane 6, which ended.
    fails(
        FaultKind::Divergent,
        32,
        &format!("{start} @%p1 ret; {shuffle}"),
        &["thread (7, 0, 0)", "reads lane 6, which takes no part"],
    );
    // Lanes that do not exist.
    fails(FaultKind::Divergent, 7, &format!("{start} {shuffle}"), &["reads lane 7"]);
    // A barrier in a branch that a part of the warp takes.
    fails(
        FaultKind::Divergent,
        32,
        &format!("{start} @%p1 bra A; bar.sync 0; bra.uni END;\nA: bar.sync 0;\nEND:"),
        &["divergent"],
    );
    fails(
        FaultKind::Divergent,
        32,
        &format!("{start} shfl.sync.bfly.b32 %r2, %r1, 1, 0x1f, 0xffff;"),
        &["thread (16, 0, 0)", "not in the member mask"],
    );
}

#[test]
fn deadlocks_and_endless_loops() {
    fails(
        FaultKind::Deadlock,
        64,
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; @%p1 bra A;\n bar.sync 0; bra.uni END;\nA: bar.sync 1;\nEND:",
        &["deadlock", "warp 0 at line", "warp 1 at line"],
    );
    let text = kernel(0, "A: bra.uni A;");
    let options = Options { steps: 100_000, ..Options::default() };
    let fault = run_with(&text, [[1; 3]; 2], &[], &options).expect_err("never ends");
    assert_eq!(fault.kind, FaultKind::Endless);
}
