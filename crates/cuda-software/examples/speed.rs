//! Measures how fast kernels are interpreted, by kind of instruction: `speed`.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::time::Instant;

use cuda_software::*;

/// Name, instructions in the loop, and the loop's body.
const KINDS: [(&str, &str); 9] = [
    (
        "integers",
        "add.u32 %r4, %r4, %r5; xor.b32 %r6, %r4, %r7; shl.b32 %r7, %r6, 3; and.b32 %r5, %r7, 255;",
    ),
    (
        "floats",
        "fma.rn.f32 %r4, %r4, %r5, %r6; mul.rn.f32 %r6, %r4, %r7; add.rn.f32 %r7, %r6, %r5; max.f32 %r5, %r7, %r4;",
    ),
    (
        "ex2",
        "ex2.approx.f32 %r4, %r5; ex2.approx.f32 %r6, %r5; ex2.approx.f32 %r7, %r4; ex2.approx.f32 %r4, %r7;",
    ),
    (
        "guarded",
        "@%p2 add.u32 %r4, %r4, %r5; @%p2 xor.b32 %r6, %r4, %r7; @!%p2 shl.b32 %r7, %r6, 3; @!%p2 and.b32 %r5, %r7, 255;",
    ),
    (
        "global loads",
        "ld.global.b32 %r4, [%d2]; ld.global.b32 %r5, [%d2]; ld.global.b32 %r6, [%d2]; ld.global.b32 %r7, [%d2];",
    ),
    (
        "global v4",
        "ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%d3]; st.global.v4.b32 [%d3], {%r4,%r5,%r6,%r7}; ld.global.v4.b32 {%r4,%r5,%r6,%r7}, [%d3]; st.global.v4.b32 [%d3], {%r4,%r5,%r6,%r7};",
    ),
    (
        "shared",
        "st.shared.b32 [%r8], %r4; ld.shared.b32 %r5, [%r8]; st.shared.b32 [%r8], %r5; ld.shared.b32 %r6, [%r8];",
    ),
    (
        "half conversions",
        "cvt.rn.f16.f32 %h1, %r4; cvt.f32.f16 %r5, %h1; cvt.rn.f16.f32 %h2, %r5; cvt.f32.f16 %r6, %h2;",
    ),
    (
        "wmma",
        "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};",
    ),
];

fn main() {
    let mut context = null_mut();
    assert_eq!(cuInit(0), CUDA_SUCCESS);
    // SAFETY: a pointer to a variable of this function.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) }, CUDA_SUCCESS);
    assert_eq!(cuCtxSetCurrent(context), CUDA_SUCCESS);
    let mut memory = 0;
    // SAFETY: a pointer to a variable of this function.
    assert_eq!(unsafe { cuMemAlloc_v2(&raw mut memory, 1 << 20) }, CUDA_SUCCESS);
    assert_eq!(cuMemsetD8Async(memory, 0, 1 << 20, null_mut()), CUDA_SUCCESS);
    for (name, body) in KINDS {
        let in_body = body.matches(';').count() as f64;
        let rounds = 20_000;
        let seconds = run(body, memory, rounds, 1);
        let threads = 256.0 * 16.0;
        // The loop itself is three instructions.
        let rate = (in_body + 3.0) * f64::from(rounds) * threads / seconds;
        eprintln!("{name:17} {:8.0} M instructions of a thread a second", rate / 1e6);
    }
    let seconds = run("", memory, 1, 10_000) / 10_000.0;
    eprintln!("a launch of 16 blocks of 256 threads that do little: {:.1} us", seconds * 1e6);
}

/// Seconds of launches of 16 blocks of 256 threads.
fn run(body: &str, memory: CUdeviceptr, rounds: u32, launches: u32) -> f64 {
    let zeros: String = (10..18).map(|i| format!("mov.b32 %r{i}, 0;")).collect();
    let sums: String = (0..8).map(|i| format!("mov.b32 %f{i}, 0;")).collect();
    let text = format!(
        ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry main(.param .u64 b0) {{
         .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .b32 %f<8>; .reg .b64 %d<8>; .shared .align 16 .b8 s[1024];
         {zeros} {sums} ld.param.u64 %d0, [b0]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r8, s; add.u32 %r8, %r8, %r1;
         mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1; mov.u32 %r3, %ctaid.x; mad.lo.u32 %r3, %r3, 256, %r0; mad.wide.u32 %d3, %r3, 16, %d0; setp.lt.u32 %p2, %r0, 99;
         mov.b32 %r4, 0; mov.b32 %r5, 0f3F800000; mov.b32 %r6, 1; mov.b32 %r7, 2; mov.b32 %r9, 0;
         LOOP: {body} add.u32 %r9, %r9, 1; setp.lt.u32 %p1, %r9, {rounds}; @%p1 bra LOOP; }}"
    );
    let text = CString::new(text).expect("has no zero");
    let mut module = null_mut();
    // SAFETY: a text with a zero.
    let code = unsafe { cuModuleLoadData(&raw mut module, text.as_ptr().cast()) };
    assert_eq!(code, CUDA_SUCCESS);
    let mut function = null_mut();
    // SAFETY: a pointer to a variable of this function, a text with a zero.
    let code = unsafe { cuModuleGetFunction(&raw mut function, module, c"main".as_ptr()) };
    assert_eq!(code, CUDA_SUCCESS);
    let mut address = memory;
    let mut params = [(&raw mut address).cast::<c_void>()];
    let (params, none) = (params.as_mut_ptr(), null_mut());
    for _ in 0..launches {
        // SAFETY: a pointer to the kernel's only parameter.
        let code =
            unsafe { cuLaunchKernel(function, 16, 1, 1, 256, 1, 1, 0, null_mut(), params, none) };
        assert_eq!(code, CUDA_SUCCESS);
    }
    let start = Instant::now();
    assert_eq!(cuStreamSynchronize(null_mut()), CUDA_SUCCESS);
    start.elapsed().as_secs_f64()
}
