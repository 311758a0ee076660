//! Environment variables, read when the context is created.

#![expect(clippy::multiple_unsafe_ops_per_block, reason = "calls of a C API, one after another")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "pointers to variables of the tests")]

use std::ptr::null_mut;

use cuda_software::*;

/// Variables and a kernel's body; the code after it ran with 64 threads, and the first word of
/// its buffer.
fn run(variables: &[(&str, &str)], body: &str) -> (CUresult, u32) {
    for (name, value) in variables {
        // The only thread of this test.
        unsafe { std::env::set_var(format!("ROOFLIGHT_CUDA_SOFTWARE_{name}"), value) };
    }
    let text = format!(
        ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry main(.param .u64 b0) {{
         .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>; .shared .b32 s_a;
         ld.param.u64 %d0, [b0]; mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; {body} }}\0"
    );
    let (mut context, mut module, mut function, mut address) =
        (null_mut(), null_mut(), null_mut(), 0_u64);
    let mut word = 0_u32;
    let code = unsafe {
        assert_eq!(cuInit(0), CUDA_SUCCESS);
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), CUDA_SUCCESS);
        assert_eq!(cuCtxSetCurrent(context), CUDA_SUCCESS);
        assert_eq!(cuModuleLoadData(&raw mut module, text.as_ptr().cast()), CUDA_SUCCESS);
        assert_eq!(cuModuleGetFunction(&raw mut function, module, c"main".as_ptr()), CUDA_SUCCESS);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4), CUDA_SUCCESS);
        let mut params = [(&raw mut address).cast()];
        let (params, none) = (params.as_mut_ptr(), null_mut());
        let code = cuLaunchKernel(function, 50, 1, 1, 64, 1, 1, 0, null_mut(), params, none);
        assert_eq!(code, CUDA_SUCCESS);
        cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4)
    };
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
    for (name, _) in variables {
        unsafe { std::env::remove_var(format!("ROOFLIGHT_CUDA_SOFTWARE_{name}")) };
    }
    (code, word)
}

#[test]
fn variables_change_the_device() {
    let race = "mov.b32 %r2, 5; st.global.b32 [%d0], %r2; st.shared.b32 [s_a], %r0;";
    assert_eq!(run(&[], race).0, CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(run(&[("RACES", "allow")], race).0, CUDA_SUCCESS);

    let in_kernel =
        "setp.eq.u32 %p0, %r1, 3; @%p0 ld.global.b32 %r2, [%d0]; @%p0 st.global.b32 [%d0], %r2;";
    assert_eq!(run(&[("UNINITIALIZED", "check")], in_kernel).0, CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(run(&[("UNINITIALIZED", "kernels")], in_kernel).0, CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(run(&[("UNINITIALIZED", "allow")], in_kernel), (CUDA_SUCCESS, 0));
    assert_eq!(run(&[], "").0, CUDA_ERROR_LAUNCH_FAILED);
    assert_eq!(run(&[("UNINITIALIZED", "kernels")], ""), (CUDA_SUCCESS, 0));

    let long = "mov.b32 %r3, 0; st.global.b32 [%d0], %r3; L: add.u32 %r3, %r3, 1; setp.lt.u32 %p0, %r3, 1000; @%p0 bra L;";
    assert_eq!(run(&[("STEPS", "2000")], long).0, CUDA_ERROR_LAUNCH_TIMEOUT);
    assert_eq!(run(&[("STEPS", "10000")], long).0, CUDA_SUCCESS);

    let last = "st.global.b32 [%d0], %r1;";
    assert_eq!(run(&[], last).0, CUDA_ERROR_LAUNCH_FAILED);
    let seeds = ["1", "2", "3", "4", "5", "6"];
    let winner = |seed| run(&[("SEED", seed), ("THREADS", "1"), ("RACES", "shared")], last).1;
    let winners: std::collections::HashSet<u32> = seeds.into_iter().map(winner).collect();
    assert!(winners.len() > 2, "{winners:?}");

    let mut bytes = 0;
    unsafe { std::env::set_var("ROOFLIGHT_CUDA_SOFTWARE_MEMORY", "4096") };
    assert_eq!(unsafe { cuDeviceTotalMem_v2(&raw mut bytes, 0) }, CUDA_SUCCESS);
    assert_eq!(bytes, 4096);
    let mut context = null_mut();
    let mut address = 0;
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&raw mut context, 0), CUDA_SUCCESS);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4097), CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 4096), CUDA_SUCCESS);
        assert_eq!(cuMemAlloc_v2(&raw mut address, 1), CUDA_ERROR_OUT_OF_MEMORY);
    }
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}
