//! What `ptxas` refuses is refused, with a line and a reason.

use super::{Buffer, Numbers, kernel, run_with};
use crate::exec::Options;
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

/// Kernels with every kind of statement.
fn samples() -> [String; 3] {
    [
        kernel(
            2,
            ".shared .align 16 .b8 s_x[512]; .local .align 16 .b8 l_x[64]; mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 7;
             shl.b32 %r7, %r1, 3; mov.u32 %r8, s_x; add.u32 %r8, %r8, %r7; mov.b32 %r5, 1;
             L1: @%p1 bra L2; ld.global.nc.v4.b32 {%r2, %r3, %r4, %r5}, [%b0+16]; st.shared.v2.b32 [%r8], {%r2, %r3};
             L2: bar.sync 0; st.local.b32 [l_x+4], %r5; shfl.sync.bfly.b32 %r6|%p2, %r1, 1, 0x1f, 0xffffffff; @!%p1 bra L3;
             ld.local.b32 %r6, [l_x+4]; st.global.b32 [%b1+8], %r6; L3: ret;",
        ),
        kernel(
            1,
            ".shared .align 32 .b8 s_m[512]; wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, [s_m], 16;
             mad.wide.u32 %d1, %r1, 4, %b0; fma.rn.f32 %r2, %r3, 0f3F800000, %r4; cvt.rzi.s32.f32 %r9, %r2; setp.ltu.and.f32 %p1|%p2, %r1, %r2, !%p3;
             mov.b32 {%h1, %h2}, %r9; bfi.b32 %r1, %r2, %r3, 4, 8; st.global.u16 [%d1], %r9; vote.sync.any.pred %p1, %p2, -1;",
        ),
        "/* c */ .version 6.4 .target sm_75 .address_size 64 .extern .shared .align 16 .b8 dyn[];
         .entry k(.param .u32 a, .param .f32 b) .reqntid 8 .maxntid 8, 1 { .reg .f32 %f<3>; .reg .u64 %x; ld.param.f32 %f0, [b]; add.sat.f32 %f1, %f0, 1.5e-3; }".to_owned(),
    ]
}

/// Characters that mean something.
const MARKS: &[u8] = b" .,;{}[]<>%0139fxrdpub@!|:-+\"/*";

#[test]
fn no_text_makes_the_decoder_panic() {
    let mut numbers = Numbers(11);
    let mut loaded = 0;
    for sample in samples() {
        load(&sample).unwrap_or_else(|e| panic!("{e}"));
        let tokens: Vec<&str> = sample.split_inclusive([' ', ',', ';', '.']).collect();
        for _ in 0..3000 {
            let mut text: Vec<u8> = if numbers.next().is_multiple_of(2) {
                sample.clone().into_bytes()
            } else {
                let mut tokens = tokens.clone();
                let at = numbers.next() as usize % tokens.len();
                tokens[at] = tokens[numbers.next() as usize % tokens.len()];
                tokens.concat().into_bytes()
            };
            for _ in 0..numbers.next() % 3 {
                let at = numbers.next() as usize % text.len();
                text[at] = MARKS[numbers.next() as usize % MARKS.len()];
            }
            loaded += usize::from(load(&String::from_utf8_lossy(&text)).is_ok());
        }
    }
    assert!(loaded > 500, "{loaded}");
}

#[test]
fn no_kernel_that_loads_makes_the_device_panic() {
    let mut numbers = Numbers(12);
    let options = Options { steps: 10_000, threads: 1, ..Options::default() };
    let sample = &samples()[0];
    let body = sample.find("%r7").expect("is there");
    let digits: Vec<usize> =
        (body..sample.len()).filter(|&at| sample.as_bytes()[at].is_ascii_digit()).collect();
    let (mut ran, mut faults) = (0, 0);
    for _ in 0..3000 {
        let mut text = sample.clone().into_bytes();
        for _ in 0..=numbers.next() % 3 {
            let at = digits[numbers.next() as usize % digits.len()];
            text[at] = b"0123456789"[numbers.next() as usize % 10];
        }
        let text = String::from_utf8_lossy(&text);
        let fits = load(&text).is_ok_and(|k| k.len() == 1 && k[0].param_bytes == 16);
        if fits {
            let buffers = [Buffer::Words(vec![3; 64]), Buffer::Unwritten(64)];
            match run_with(&text, [[2, 1, 1], [40, 1, 1]], &buffers, &options) {
                Ok(_) => ran += 1,
                Err(_) => faults += 1,
            }
        }
    }
    assert!(ran > 300 && faults > 300, "{ran} {faults}");
}
