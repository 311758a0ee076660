//! Floats.

use super::{check, check_float, check2, predicate};
use crate::exec::half;

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

#[test]
fn arithmetic() {
    check_float("add.f32 %r4, %r1, %r2;", |a, b, _| a + b);
    check_float("add.rn.f32 %r4, %r1, 0f3F800000;", |a, _, _| a + 1.0);
    check_float("sub.rn.f32 %r4, %r1, %r2;", |a, b, _| a - b);
    check_float("mul.rn.f32 %r4, %r1, %r2;", |a, b, _| a * b);
    check_float("div.rn.f32 %r4, %r1, %r2;", |a, b, _| a / b);
    check_float("fma.rn.f32 %r4, %r1, %r2, %r3;", f32::mul_add);
    check_float("rcp.rn.f32 %r4, %r1;", |a, _, _| 1.0 / a);
    check_float("sqrt.rn.f32 %r4, %r1;", |a, _, _| a.sqrt());
    check("abs.f32 %r4, %r1;", |a, _, _| a & 0x7fff_ffff);
    check("neg.f32 %r4, %r1;", |a, _, _| a ^ 0x8000_0000);
    check("copysign.f32 %r4, %r1, %r2;", |a, b, _| f(b).copysign(f(a)).to_bits());
    check("add.sat.f32 %r4, %r1, %r2;", |a, b, _| {
        let sum = f(a) + f(b);
        if sum.is_nan() { 0 } else { (sum.clamp(0.0, 1.0) + 0.0).to_bits() }
    });
}

#[test]
fn functions_are_rounded_f64() {
    let wide = |f: fn(f64) -> f64| move |a: f32, _: f32, _: f32| f(f64::from(a)) as f32;
    check_float("ex2.approx.f32 %r4, %r1;", wide(f64::exp2));
    check_float("lg2.approx.f32 %r4, %r1;", wide(f64::log2));
    check_float("sin.approx.f32 %r4, %r1;", wide(f64::sin));
    check_float("cos.approx.f32 %r4, %r1;", wide(f64::cos));
    check_float("rsqrt.approx.f32 %r4, %r1;", wide(|a| 1.0 / a.sqrt()));
}

#[test]
fn least_and_greatest() {
    let pick = |a: u32, b: u32, less: bool| {
        let (x, y) = (f(a), f(b));
        if x.is_nan() && y.is_nan() {
            return 0x7fff_ffff;
        }
        if x.is_nan() || y.is_nan() {
            return if x.is_nan() { b } else { a };
        }
        let first = match x.partial_cmp(&y) {
            Some(std::cmp::Ordering::Equal) => x.is_sign_negative() == less,
            order => (order == Some(std::cmp::Ordering::Less)) == less,
        };
        if first { a } else { b }
    };
    check("min.f32 %r4, %r1, %r2;", |a, b, _| pick(a, b, true));
    check("max.f32 %r4, %r1, %r2;", |a, b, _| pick(a, b, false));
}

#[test]
fn comparisons() {
    for (name, want) in [
        ("eq", (|a, b| a == b) as fn(f32, f32) -> bool),
        ("ne", |a, b| (a < b) | (a > b)),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
        ("num", |a, b| !a.is_nan() && !b.is_nan()),
    ] {
        let code = predicate(&format!("setp.{name}.f32 %p1, %r1, %r2;"));
        check(&code, |a, b, _| u32::from(want(f(a), f(b))));
        let unordered = if name == "num" { "nan".to_owned() } else { format!("{name}u") };
        let code = predicate(&format!("setp.{unordered}.f32 %p1, %r1, %r2;"));
        check(&code, |a, b, _| {
            let nan = f(a).is_nan() || f(b).is_nan();
            u32::from(nan || (name != "num" && want(f(a), f(b))))
        });
    }
}

#[test]
fn conversions() {
    check("cvt.rn.f32.u32 %r4, %r1;", |a, _, _| (a as f32).to_bits());
    check("cvt.rn.f32.s32 %r4, %r1;", |a, _, _| (a.cast_signed() as f32).to_bits());
    check("cvt.rn.f32.s8 %r4, %r1;", |a, _, _| f32::from(a as i8).to_bits());
    check("cvt.u64.u32 %d1, %r1; cvt.rn.f32.u64 %r4, %d1;", |a, _, _| {
        (u64::from(a) as f32).to_bits()
    });
    for (name, round) in [
        ("rni", f32::round_ties_even as fn(f32) -> f32),
        ("rzi", f32::trunc),
        ("rmi", f32::floor),
        ("rpi", f32::ceil),
    ] {
        check(&format!("cvt.{name}.s32.f32 %r4, %r1;"), |a, _, _| {
            (round(f(a)) as i32).cast_unsigned()
        });
        check(&format!("cvt.{name}.u32.f32 %r4, %r1;"), |a, _, _| round(f(a)) as u32);
        check(&format!("cvt.{name}.s8.f32 %r4, %r1;"), |a, _, _| {
            i32::from(round(f(a)) as i8).cast_unsigned()
        });
        check_float(&format!("cvt.{name}.f32.f32 %r4, %r1;"), |a, _, _| round(a));
    }
    check2("cvt.rzi.s64.f32 %d1, %r1; mov.b64 {%r4, %r5}, %d1;", |a, _, _| {
        let x = f(a) as i64;
        [x as u32, (x >> 32) as u32]
    });
}

#[test]
fn halves() {
    let unpack = "cvt.rn.f16.f32 %h1, %r1; cvt.rn.f16.f32 %h2, %r2; cvt.rn.f16.f32 %h3, %r3;";
    let binary = |op: &str| format!("{unpack} {op} %h4, %h1, %h2; cvt.f32.f16 %r4, %h4;");
    let h = |x: f32| half::to_f32(half::from_f32(x));
    let round = |x: f64| half::to_f32(half::from_f64(x));
    check_float("cvt.rn.f16.f32 %h1, %r1; cvt.f32.f16 %r4, %h1;", |a, _, _| h(a));
    check_float(&binary("add.rn.f16"), |a, b, _| round(f64::from(h(a)) + f64::from(h(b))));
    check_float(&binary("sub.f16"), |a, b, _| round(f64::from(h(a)) - f64::from(h(b))));
    check_float(&binary("mul.rn.f16"), |a, b, _| round(f64::from(h(a)) * f64::from(h(b))));
    check_float(
        &format!("{unpack} fma.rn.f16 %h4, %h1, %h2, %h3; cvt.f32.f16 %r4, %h4;"),
        |a, b, c| round(f64::from(h(a)) * f64::from(h(b)) + f64::from(h(c))),
    );
    check_float(&binary("min.f16"), |a, b, _| {
        let (a, b) = (h(a), h(b));
        if a == 0.0 && b == 0.0 { if a.is_sign_negative() { a } else { b } } else { a.min(b) }
    });
    check_float(
        &format!(
            "{unpack} neg.f16 %h4, %h1; abs.f16 %h5, %h4; neg.f16 %h4, %h5; cvt.f32.f16 %r4, %h4;"
        ),
        |a, _, _| -h(a).abs(),
    );
    check(
        &format!(
            "{unpack} setp.ltu.f16 %p1, %h1, %h2; selp.b16 %h5, %h1, %h2, %p1; cvt.u32.u16 %r4, %h5;"
        ),
        |a, b, _| {
            let (a, b) = (f(a), f(b));
            half::from_f32(if h(a) >= h(b) { b } else { a })
        },
    );
    check("cvt.rn.f16.s32 %h1, %r1; cvt.u32.u16 %r4, %h1;", |a, _, _| {
        half::from_f64(f64::from(a.cast_signed()))
    });
    check("mov.b32 {%h1, %h2}, %r1; cvt.rzi.s32.f16 %r4, %h1;", |a, _, _| {
        (half::to_f32(a & 0xffff) as i32).cast_unsigned()
    });
    // Pairs agree with single ones.
    check2(
        "fma.rn.f16x2 %r4, %r1, %r2, %r3; mov.b32 {%h1, %h2}, %r1; mov.b32 {%h3, %h4}, %r2; mov.b32 {%h5, %h6}, %r3;
         fma.rn.f16 %h7, %h1, %h3, %h5; fma.rn.f16 %h8, %h2, %h4, %h6; mov.b32 %r5, {%h7, %h8}; xor.b32 %r5, %r4, %r5; mov.b32 %r4, %r5;",
        |_, _, _| [0, 0],
    );
}
