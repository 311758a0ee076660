//! What `ptxas` refuses is refused, with a line and a reason.

use super::kernel;
use crate::ptx::load;

/// A body that is refused; the reason contains `part`.
fn refused(body: &str, part: &str) {
    let error = load(&kernel(1, body)).expect_err(body);
    assert!(error.reason.contains(part), "`{part}` is not in: {error}");
    assert!(error.line >= 4, "{error}");
}

#[test]
fn instructions_and_modifiers_that_are_not_known() {
    refused("frob.u32 %r1, %r2;", "instruction `frob.u32` is not known");
    refused("add.ftz.f32 %r1, %r2, %r3;", "modifier `.ftz` of `add`");
    refused("ex2.approx.ftz.f32 %r1, %r2;", "modifier `.ftz`");
    refused("ex2.f32 %r1, %r2;", "no `.approx`");
    refused("min.NaN.f32 %r1, %r2, %r3;", "modifier `.NaN`");
    refused("fma.f32 %r1, %r2, %r3, %r4;", "no `.rn`");
    refused("div.f32 %r1, %r2, %r3;", "no rounding");
    refused("cvt.s32.f32 %r1, %r2;", "no rounding");
    refused("mul.u32 %r1, %r2, %r3;", ".lo, .hi, .wide");
    refused("add.u7 %r1, %r2, %r3;", "not a type");
    refused("ld.b32 %r1, [%b0];", "state space");
    refused("st.shared.nc.b32 [%r1], %r1;", "`.nc`");
    refused("setp.lo.s32 %p1, %r1, %r2;", "setp.lo");
    refused("setp.lt.b32 %p1, %r1, %r2;", "setp.lt");
    refused("wmma.load.a.sync.aligned.row.m8n8k4.shared.f16 {%r1}, [%r1];", "wmma.load");
    refused("bar.sync 16;", "under 16");
}

#[test]
fn operands_of_other_kinds() {
    refused("add.u32 %r1, %d1, %r2;", "register `%d1` is .b64");
    refused("add.u64 %d1, %d2, %r2;", "register `%r2` is .b32");
    refused("add.u32 %r1, %r2;", "2 operands, not 3");
    refused("add.u32 %r1, %r2, 0f3F800000;", "f32 literal");
    refused("add.f32 %r1, %r2, 1;", "integer is no operand");
    refused("mov.u32 %tid.x, 1;", "cannot be written");
    refused("mov.u32 %r1, %q7;", "`%q7` is not declared");
    refused("selp.b32 %r1, %r2, %r3, %r4;", "instruction wants .pred");
    refused("ld.global.b32 %r1, [%r2];", "no address");
    refused("ld.global.v2.b32 %r1, [%b0];", "not a vector");
    refused("ld.global.v2.b32 {%r1, %r1}, [%b0];", "loaded twice");
    refused("ld.global.v4.b64 {%d1, %d2, %d3, %d4}, [%b0];", "16 bytes");
    refused("mov.u32 %r1, 4294967296;", "does not fit 32 bits");
    refused(".reg .f32 %f<2>; add.u32 %f1, %r1, %r2;", "`%f1` is .f32");
    refused(".reg .b32 %r1;", "declared twice");
    refused("ld.param.u64 %d1, [p9];", "parameter `p9`");
    refused("ld.param.u64 %d1, [p0+4];", "not within parameter");
}

#[test]
fn structure() {
    refused("bra.uni NOWHERE;", "label `NOWHERE` does not exist");
    refused("A: A:", "label `A` exists twice");
    refused(".shared .align 4 .b8 s_x[49153];", "49153 bytes of shared memory");
    refused("add.u32 %r1 %r2, %r3;", "expected `,`");
    refused("mov.b32 %r1, 0f12;", "not a number");
    refused("#", "unexpected character '#'");
    refused(".const .b32 c;", "directive `.const`");
    let text = kernel(1, "");
    let two = format!("{text}{}", &text[text.find(".visible").expect("is there")..]);
    assert!(load(&two).expect_err("two").reason.contains("kernel `main` exists twice"));
    assert!(load(&text[..text.len() - 3]).expect_err("cut").reason.contains("the end of the text"));
    let error = load(&text.replace("6.4", "8.8")).expect_err("too new");
    assert!(error.unsupported_version && error.line == 1);
    assert!(load(&text.replace("6.4", "8.7")).is_ok());
    let error = load(&text.replace("sm_75", "sm_80")).expect_err("too new");
    assert!(error.reason.contains("sm_80") && !error.unsupported_version);
}

#[test]
fn header_comments_and_attributes() {
    let text = "// a comment\n.version 7.8 /* another\none */\n.target sm_61\n.address_size 64\n
        .visible .entry k(.param .u64 a, .param .u32 b, .param .f32 c)\n.reqntid 8, 4, 2\n{
        .reg .b32 %r<3>; .reg .b64 %d0; .local .align 8 .b8 l_x[24]; .pragma \"nounroll\";
        ld.param.u64 %d0, [a]; ld.param.u32 %r0, [b]; ld.param.f32 %r1, [c]; mov.f32 %r2, 1.5; st.global.b32 [%d0], %r0; }";
    let kernels = load(text).unwrap_or_else(|e| panic!("{e}"));
    let k = &kernels[0];
    assert_eq!(k.required_block, Some([8, 4, 2]));
    assert_eq!((k.max_threads, k.param_bytes, k.local_bytes, k.shared_bytes), (64, 16, 24, 0));
    assert!((10..20).contains(&k.registers), "{}", k.registers);
}
