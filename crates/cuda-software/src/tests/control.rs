//! Control flow, barriers, shuffles, memory spaces and grids.

use super::{Buffer, kernel, run, run_with};
use crate::exec::Options;

/// Address of word `%r12` of buffer 0 in `%d10`; `%r11` is the thread.
const INDEX: &str = "mov.u32 %r11, %tid.x; mov.u32 %r12, %r11; mul.wide.u32 %d9, %r12, 4; add.u64 %d10, %b0, %d9;\n";

/// Result of each of `threads` threads, which is in `%r4`.
fn each(threads: u32, body: &str) -> Vec<u32> {
    let text = kernel(1, &format!("{INDEX} {body} st.global.b32 [%d10], %r4;"));
    let out = run(&text, threads, &[Buffer::Unwritten(threads as usize)]);
    out.unwrap_or_else(|fault| panic!("{}", fault.text)).remove(0)
}

#[test]
fn lanes_leave_loops_one_by_one() {
    let out = each(
        70,
        "mov.b32 %r4, 0; mov.b32 %r5, 0;
         LOOP: setp.ge.u32 %p1, %r5, %r11; @%p1 bra END;
         and.b32 %r6, %r5, 1; setp.eq.u32 %p2, %r6, 0; @%p2 bra EVEN;
         add.u32 %r4, %r4, 100; bra.uni NEXT;
         EVEN: add.u32 %r4, %r4, %r5;
         NEXT: add.u32 %r5, %r5, 1; bra.uni LOOP;
         END:",
    );
    for (n, found) in (0..70_u32).zip(out) {
        let want: u32 = (0..n).map(|i| if i % 2 == 0 { i } else { 100 }).sum();
        assert_eq!(found, want);
    }
}

#[test]
fn lanes_meet_after_branches() {
    // All take part in the shuffle, although they came by four ways.
    let out = each(
        64,
        "and.b32 %r5, %r11, 3; mov.b32 %r4, 1000;
         setp.eq.u32 %p1, %r5, 0; @%p1 bra A; setp.eq.u32 %p1, %r5, 1; @%p1 bra B;
         add.u32 %r4, %r4, 1; bra.uni JOIN;
         B: add.u32 %r4, %r4, 2; bra.uni JOIN;
         A: add.u32 %r4, %r4, 3;
         JOIN: shfl.sync.bfly.b32 %r6, %r4, 1, 0x1f, 0xffffffff; add.u32 %r4, %r4, %r6;",
    );
    for (lane, found) in (0..64_u32).zip(out) {
        assert_eq!(found, if lane % 4 < 2 { 2005 } else { 2002 });
    }
}

#[test]
fn shuffles() {
    let lane =
        |body: &str| each(32, &format!("mov.u32 %r1, %laneid; add.u32 %r2, %r1, 100; {body}"));
    assert_eq!(lane("shfl.sync.bfly.b32 %r4, %r2, 16, 0x1f, 0xffffffff;")[3], 119);
    let up = lane("shfl.sync.up.b32 %r4|%p1, %r2, 3, 0, 0xffffffff; @!%p1 add.u32 %r4, %r4, 1000;");
    assert_eq!((up[2], up[3], up[31]), (1102, 100, 128));
    let down =
        lane("shfl.sync.down.b32 %r4|%p1, %r2, 3, 0x1f, 0xffffffff; @!%p1 add.u32 %r4, %r4, 1000;");
    assert_eq!((down[0], down[28], down[29]), (103, 131, 1129));
    // Segments of 8 lanes.
    let idx = lane("shfl.sync.idx.b32 %r4, %r2, 2, 0x181f, 0xffffffff;");
    assert_eq!((idx[0], idx[9], idx[31]), (102, 110, 126));
    // Half of the lanes.
    let half = lane(
        "mov.b32 %r4, 7; setp.lt.u32 %p1, %r1, 16; @%p1 shfl.sync.bfly.b32 %r4, %r2, 1, 0x1f, 0xffff;",
    );
    assert_eq!((half[0], half[15], half[16]), (101, 114, 7));
}

#[test]
fn votes() {
    let out = each(
        40,
        "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 5;
         vote.sync.ballot.b32 %r4, %p1, 0xffffffff; vote.sync.any.pred %p2, %p1, 0xffffffff;
         vote.sync.all.pred %p3, %p1, 0xffffffff; @%p2 add.u32 %r4, %r4, 100; @%p3 add.u32 %r4, %r4, 1000;",
    );
    assert_eq!((out[0], out[32]), (131, 131));
}

#[test]
fn sums_in_shared_memory() {
    let out = each(
        256,
        ".shared .align 16 .b8 s_sums[1024];
         mov.u32 %r1, s_sums; shl.b32 %r2, %r11, 2; add.u32 %r3, %r1, %r2;
         st.shared.b32 [%r3], %r11; mov.b32 %r5, 128;
         LOOP: bar.sync 0; setp.ge.u32 %p1, %r11, %r5; @%p1 bra SKIP;
         shl.b32 %r6, %r5, 2; add.u32 %r7, %r3, %r6; ld.shared.b32 %r8, [%r7]; ld.shared.b32 %r9, [%r3];
         add.u32 %r9, %r9, %r8; st.shared.b32 [%r3], %r9;
         SKIP: shr.u32 %r5, %r5, 1; setp.ne.u32 %p2, %r5, 0; @%p2 bra LOOP;
         bar.sync 0; ld.shared.b32 %r4, [s_sums];",
    );
    assert!(out.iter().all(|&x| x == 255 * 128));
}

#[test]
fn barriers_do_not_wait_for_ended_threads() {
    let text = kernel(
        1,
        &format!(
            ".shared .align 4 .b32 s_x[4]; {INDEX}
             mov.b32 %r5, 9; st.global.b32 [%d10], %r5;
             setp.ge.u32 %p1, %r11, 40; @%p1 ret;
             setp.eq.u32 %p2, %r11, 0; @%p2 st.shared.b32 [s_x+4], %r5;
             bar.sync 0; ld.shared.b32 %r6, [s_x+4]; add.u32 %r6, %r6, 1; st.global.b32 [%d10], %r6;"
        ),
    );
    let out = run(&text, 100, &[Buffer::Unwritten(100)]).expect("runs").remove(0);
    assert!(out[..40].iter().all(|&x| x == 10) && out[40..].iter().all(|&x| x == 9));
}

#[test]
fn vectors_parts_and_offsets() {
    let input: Vec<u32> = (0..64).map(|i| 0x0101_0101 * i + 0x8070_6050).collect();
    let text = kernel(
        2,
        ".shared .align 16 .b8 s_v[512]; .local .align 16 .b8 l_v[64];
         mov.u32 %r11, %tid.x; mul.wide.u32 %d9, %r11, 16; add.u64 %d10, %b0, %d9; add.u64 %d11, %b1, %d9;
         ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%d10];
         shl.b32 %r12, %r11, 4; mov.u32 %r13, s_v; add.u32 %r13, %r13, %r12;
         st.shared.v4.b32 [%r13], {%r4, %r3, %r2, %r1}; ld.shared.v2.b32 {%r5, %r6}, [%r13+8];
         st.local.v2.b32 [l_v+16], {%r5, %r6}; mov.u64 %d1, l_v; ld.local.b32 %r7, [%d1+20];
         cvt.u64.u32 %d2, %r13; ld.shared.u16 %r8, [%d2+2]; ld.shared.s8 %r9, [%r13+0]; ld.shared.b16 %h1, [%r13];
         cvt.u32.u16 %r10, %h1;
         st.global.v4.b32 [%d11], {%r7, %r8, %r9, %r10};",
    );
    let out = run(&text, 16, &[Buffer::Words(input.clone()), Buffer::Unwritten(64)]);
    let out = out.unwrap_or_else(|fault| panic!("{}", fault.text)).remove(1);
    for i in 0..16 {
        let [first, last] = [input[4 * i], input[4 * i + 3]];
        let byte = i32::from(last as i8).cast_unsigned();
        assert_eq!(out[4 * i..][..4], [first, last >> 16, byte, last & 0xffff]);
    }
}

#[test]
fn halves_of_words_in_global_memory() {
    // Neighbours in different blocks write the halves of one word.
    let text = kernel(
        1,
        "mov.u32 %r1, %ctaid.x; cvt.u16.u32 %h1, %r1; mul.wide.u32 %d1, %r1, 2; add.u64 %d1, %b0, %d1;
         st.global.b16 [%d1], %h1; ld.global.u16 %r2, [%d1]; st.global.u16 [%d1], %r2;",
    );
    let sizes = [[4000, 1, 1], [1, 1, 1]];
    let out = run_with(&text, sizes, &[Buffer::Unwritten(2000)], &Options::default());
    for (i, word) in (0..).zip(out.expect("runs").remove(0)) {
        assert_eq!(word, (2 * i) | (2 * i + 1) << 16);
    }
}

#[test]
fn grids_of_three_dimensions() {
    let text = kernel(
        1,
        "mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r4, %r1, %r2, %r3;
         mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r4, %r4, %r2, %r3;
         mov.u32 %r2, %ntid.z; mov.u32 %r3, %tid.z; mad.lo.u32 %r4, %r4, %r2, %r3;
         mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y; mad.lo.u32 %r4, %r4, %r2, %r3;
         mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r4, %r2, %r3;
         mul.wide.u32 %d1, %r4, 4; add.u64 %d1, %b0, %d1; st.global.u32 [%d1], %r4;",
    );
    let sizes = [[3, 4, 5], [5, 3, 7]];
    let n = 60 * 105;
    let out = run_with(&text, sizes, &[Buffer::Unwritten(n)], &Options::default());
    let out = out.expect("runs").remove(0);
    assert!(out.iter().zip(0..).all(|(&x, i)| x == i));
}

#[test]
fn the_seed_decides_the_order_of_blocks_and_warps() {
    // The last block and warp that write win.
    let text = kernel(
        1,
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; st.global.b32 [%b0], %r1;
         shr.u32 %r3, %r2, 5; st.global.b32 [%b0+4], %r3;",
    );
    let mut seen = std::collections::HashSet::new();
    for seed in 0..20 {
        let options = Options { seed, threads: 1, global_races: false, ..Options::default() };
        let sizes = [[50, 1, 1], [256, 1, 1]];
        let out = run_with(&text, sizes, &[Buffer::Unwritten(2)], &options);
        let again = run_with(&text, sizes, &[Buffer::Unwritten(2)], &options);
        let out = out.expect("runs").remove(0);
        assert_eq!(out, again.expect("runs").remove(0));
        seen.insert((out[0], out[1]));
    }
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn a_register_that_was_not_written_is_poison() {
    let out = each(32, "mov.b32 %r4, %r60;");
    assert!(out.iter().all(|&x| x == 0x7fa5_5aa5 && f32::from_bits(x).is_nan()));
}

#[test]
fn dynamic_shared_memory_follows_the_rest() {
    let text = ".version 7.0\n.target sm_75\n.address_size 64\n.extern .shared .align 16 .b8 dyn[];
        .visible .entry main(.param .u64 out) { .reg .b32 %r<9>; .reg .b64 %d<2>; .shared .b32 s_a[3];
        ld.param.u64 %d0, [out]; mov.b32 %r1, 5; st.shared.b32 [s_a+8], %r1; st.shared.v4.b32 [dyn+16], {%r1, %r1, %r1, %r1};
        ld.shared.b32 %r2, [dyn+28]; st.global.b32 [%d0], %r2; }";
    let kernels = crate::ptx::load(text).expect("loads");
    let mut memory = crate::device_memory::DeviceMemory::new(4096);
    let out = memory.allocate(4).expect("fits");
    let mut launch = crate::exec::Launch {
        kernel: kernels[0].clone(),
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared: 32,
        params: out.to_le_bytes().to_vec(),
    };
    crate::exec::launch(&launch, &memory, &Options::default(), 0).expect("runs");
    assert_eq!(memory.range(out, 4).expect("is live").0.word(0), 5);
    launch.dynamic_shared = 16;
    let fault =
        crate::exec::launch(&launch, &memory, &Options::default(), 0).expect_err("is short");
    assert!(fault.text.contains("`dyn` at byte 16 of 16"), "{}", fault.text);
}

#[test]
fn values_that_are_alive_keep_their_places() {
    // A new register for each value: few places suffice, and what a loop carries stays.
    let n = 500;
    let mut body = String::from(
        ".reg .b32 %v<1100>; mov.b32 %r4, 0; mov.b32 %r5, 0; mov.b32 %r6, 77; LOOP: mov.b32 %v0, %r5;",
    );
    for i in 0..n {
        // Every tenth value is used again much later.
        let old = i / 100 * 100;
        body.push_str(&format!("mad.lo.u32 %v{}, %v{i}, 3, %v{old};", i + 1));
    }
    body.push_str(&format!(
        "setp.lt.u32 %p1, %r11, 20; @%p1 bra LOW; add.u32 %v1001, %v{n}, 5; bra.uni JOIN; LOW: add.u32 %v1001, %v{n}, %r6;
         JOIN: add.u32 %r4, %r4, %v1001; add.u32 %r5, %r5, 1; setp.le.u32 %p2, %r5, %r11; @%p2 bra LOOP;"
    ));
    let text = kernel(1, &format!("{INDEX} {body} st.global.b32 [%d10], %r4;"));
    let kernels = crate::ptx::load(&text).expect("loads");
    assert!(kernels[0].n_w < 60, "{} places", kernels[0].n_w);
    let out = run(&text, 40, &[Buffer::Unwritten(40)]).expect("runs").remove(0);
    for (thread, found) in (0..40_u32).zip(out) {
        let mut want = 0_u32;
        for round in 0..=thread {
            let mut values = vec![round];
            for i in 0..n {
                let next = values[i].wrapping_mul(3).wrapping_add(values[i / 100 * 100]);
                values.push(next);
            }
            want = want.wrapping_add(values[n]).wrapping_add(if thread < 20 { 77 } else { 5 });
        }
        assert_eq!(found, want, "thread {thread}");
    }
}
