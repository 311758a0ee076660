//! Moves, integers, bits and predicates.

use super::{check, check2, predicate};

fn i(x: u32) -> i32 {
    x.cast_signed()
}

fn u(x: i32) -> u32 {
    x.cast_unsigned()
}

fn wide(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

fn parts(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

#[test]
fn sums_and_products() {
    check("add.u32 %r4, %r1, %r2;", |a, b, _| a.wrapping_add(b));
    check("add.s32 %r4, %r1, -5;", |a, _, _| a.wrapping_sub(5));
    check("sub.s32 %r4, %r1, %r2;", |a, b, _| a.wrapping_sub(b));
    check("mul.lo.u32 %r4, %r1, %r2;", |a, b, _| a.wrapping_mul(b));
    check("mul.hi.u32 %r4, %r1, %r2;", |a, b, _| ((u64::from(a) * u64::from(b)) >> 32) as u32);
    check("mul.hi.s32 %r4, %r1, %r2;", |a, b, _| {
        ((i64::from(i(a)) * i64::from(i(b))) >> 32) as u32
    });
    check("mad.lo.s32 %r4, %r1, %r2, %r3;", |a, b, c| a.wrapping_mul(b).wrapping_add(c));
    check("mad.hi.u32 %r4, %r1, %r2, %r3;", |a, b, c| {
        ((u64::from(a) * u64::from(b)) >> 32).wrapping_add(u64::from(c)) as u32
    });
    check2("mul.wide.s32 %d1, %r1, %r2; mov.b64 {%r4, %r5}, %d1;", |a, b, _| {
        parts((i64::from(i(a)) * i64::from(i(b))).cast_unsigned())
    });
    check2("mul.wide.u32 %d1, %r1, %r2; mov.b64 {%r4, %r5}, %d1;", |a, b, _| {
        parts(u64::from(a) * u64::from(b))
    });
    check2(
        "cvt.u64.u32 %d2, %r3; mad.wide.s32 %d1, %r1, %r2, %d2; mov.b64 {%r4, %r5}, %d1;",
        |a, b, c| {
            parts((i64::from(i(a)) * i64::from(i(b))).cast_unsigned().wrapping_add(u64::from(c)))
        },
    );
}

#[test]
fn quotients() {
    let code = |op: &str| format!("or.b32 %r6, %r2, 1; {op} %r4, %r1, %r6;");
    check(&code("div.u32"), |a, b, _| a / (b | 1));
    check(&code("rem.u32"), |a, b, _| a % (b | 1));
    check(&code("div.s32"), |a, b, _| u(i(a).wrapping_div(i(b | 1))));
    check(&code("rem.s32"), |a, b, _| u(i(a).wrapping_rem(i(b | 1))));
    check("div.u32 %r4, %r1, 32;", |a, _, _| a / 32);
    check("rem.u32 %r4, %r1, 32;", |a, _, _| a % 32);
    check("div.u32 %r4, %r1, 7;", |a, _, _| a / 7);
    // Only some lanes have a power of two.
    check(
        "selp.b32 %r6, 1, 0, %p1; setp.lt.u32 %p2, %r2, 100; selp.b32 %r6, 8, 12, %p2; rem.u32 %r4, %r1, %r6;",
        |a, b, _| a % if b < 100 { 8 } else { 12 },
    );
}

#[test]
fn logic_and_shifts() {
    check("and.b32 %r4, %r1, %r2;", |a, b, _| a & b);
    check("or.b32 %r4, %r1, %r2;", |a, b, _| a | b);
    check("xor.b32 %r4, %r1, %r2;", |a, b, _| a ^ b);
    check("not.b32 %r4, %r1;", |a, _, _| !a);
    check("shl.b32 %r4, %r1, %r2;", |a, b, _| a.checked_shl(b).unwrap_or(0));
    check("shr.u32 %r4, %r1, %r2;", |a, b, _| a.checked_shr(b).unwrap_or(0));
    check("shr.s32 %r4, %r1, %r2;", |a, b, _| u(i(a) >> b.min(31)));
    check("shl.b32 %r4, %r1, 3;", |a, _, _| a << 3);
    check("lop3.b32 %r4, %r1, %r2, %r3, 0xca;", |a, b, c| (a & b) | (!a & c));
    check("lop3.b32 %r4, %r1, %r2, %r3, 0x96;", |a, b, c| a ^ b ^ c);
    check("shf.l.wrap.b32 %r4, %r1, %r2, %r3;", |a, b, c| ((wide(a, b) << (c & 31)) >> 32) as u32);
    check("shf.r.clamp.b32 %r4, %r1, %r2, %r3;", |a, b, c| (wide(a, b) >> c.min(32)) as u32);
    check("and.b32 %r4, %r1, 0xffff0000;", |a, _, _| a & 0xffff_0000);
}

#[test]
fn order() {
    check("min.u32 %r4, %r1, %r2;", |a, b, _| a.min(b));
    check("max.u32 %r4, %r1, %r2;", |a, b, _| a.max(b));
    check("min.s32 %r4, %r1, %r2;", |a, b, _| u(i(a).min(i(b))));
    check("max.s32 %r4, %r1, %r2;", |a, b, _| u(i(a).max(i(b))));
    check("abs.s32 %r4, %r1;", |a, _, _| u(i(a).wrapping_abs()));
    check("neg.s32 %r4, %r1;", |a, _, _| a.wrapping_neg());
    for (name, want) in [
        ("eq", (|a, b| a == b) as fn(i64, i64) -> bool),
        ("ne", |a, b| a != b),
        ("lt", |a, b| a < b),
        ("le", |a, b| a <= b),
        ("gt", |a, b| a > b),
        ("ge", |a, b| a >= b),
    ] {
        let unsigned = predicate(&format!("setp.{name}.u32 %p1, %r1, %r2;"));
        check(&unsigned, |a, b, _| u32::from(want(i64::from(a), i64::from(b))));
        let signed = predicate(&format!("setp.{name}.s32 %p1, %r1, %r2;"));
        check(&signed, |a, b, _| u32::from(want(i64::from(i(a)), i64::from(i(b)))));
        let wide =
            format!("cvt.s64.s32 %d1, %r1; cvt.s64.s32 %d2, %r2; setp.{name}.s64 %p1, %d1, %d2;");
        check(&predicate(&wide), |a, b, _| u32::from(want(i64::from(i(a)), i64::from(i(b)))));
        let wide =
            format!("cvt.u64.u32 %d1, %r1; cvt.u64.u32 %d2, %r2; setp.{name}.u64 %p1, %d1, %d2;");
        check(&predicate(&wide), |a, b, _| u32::from(want(i64::from(a), i64::from(b))));
    }
    check(&predicate("setp.lo.u32 %p1, %r1, 77;"), |a, _, _| u32::from(a < 77));
    check(&predicate("setp.eq.b32 %p1, %r1, 0x3f800000;"), |a, _, _| u32::from(a == 0x3f80_0000));
}

#[test]
fn predicates() {
    let start = "setp.lt.u32 %p2, %r1, %r2; setp.lt.s32 %p3, %r2, %r3;";
    let p = |a: u32, b: u32| a < b;
    let q = |b: u32, c: u32| i(b) < i(c);
    for (op, want) in [
        ("and", (|x, y| x && y) as fn(bool, bool) -> bool),
        ("or", |x, y| x || y),
        ("xor", |x, y| x != y),
    ] {
        let code = predicate(&format!("{start} {op}.pred %p1, %p2, %p3;"));
        check(&code, |a, b, c| u32::from(want(p(a, b), q(b, c))));
        let code = format!(
            "setp.lt.s32 %p3, %r2, %r3; setp.lt.{op}.u32 %p1|%p4, %r1, %r2, !%p3; selp.b32 %r4, 1, 0, %p1; selp.b32 %r5, 1, 0, %p4;"
        );
        check2(&code, |a, b, c| [want(p(a, b), !q(b, c)), want(!p(a, b), !q(b, c))].map(u32::from));
    }
    check(&predicate(&format!("{start} not.pred %p1, %p3;")), |_, b, c| u32::from(!q(b, c)));
    check(&predicate("mov.pred %p1, 1;"), |_, _, _| 1);
    check(
        &format!("{start} mov.b32 %r4, %r1; @%p2 add.u32 %r4, %r4, 1; @!%p3 add.u32 %r4, %r4, 2;"),
        |a, b, c| a.wrapping_add(u32::from(p(a, b))).wrapping_add(2 * u32::from(!q(b, c))),
    );
    check(&format!("{start} selp.f32 %r4, %r1, %r2, %p3;"), |a, b, c| if q(b, c) { a } else { b });
    check2(
        &format!(
            "mov.b64 %d1, {{%r1, %r2}}; mov.b64 %d2, {{%r2, %r3}}; {start} selp.b64 %d3, %d1, %d2, %p2; mov.b64 {{%r4, %r5}}, %d3;"
        ),
        |a, b, c| {
            if p(a, b) { [a, b] } else { [b, c] }
        },
    );
}

/// `bfe` as the PTX manual defines it, bit by bit.
fn defined_bfe(a: u32, pos: u32, len: u32, signed: bool) -> u32 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    let bit = |n: u32| a >> n & 1;
    let sign = if !signed || len == 0 { 0 } else { bit((pos + len - 1).min(31)) };
    (0..32).map(|n| (if n < len && pos + n <= 31 { bit(pos + n) } else { sign }) << n).sum()
}

fn defined_bfi(a: u32, b: u32, pos: u32, len: u32) -> u32 {
    let (pos, len) = (pos & 0xff, len & 0xff);
    let mut out = b;
    for n in (0..len).take_while(|n| pos + n <= 31) {
        out = out & !(1 << (pos + n)) | (a >> n & 1) << (pos + n);
    }
    out
}

#[test]
fn fields() {
    check("bfe.u32 %r4, %r1, %r2, %r3;", |a, b, c| defined_bfe(a, b, c, false));
    check("bfe.s32 %r4, %r1, %r2, %r3;", |a, b, c| defined_bfe(a, b, c, true));
    check("bfe.s32 %r4, %r1, 8, 8;", |a, _, _| u(i32::from((a >> 8) as u8 as i8)));
    check("bfi.b32 %r4, %r1, %r2, %r3, 5;", |a, b, c| defined_bfi(a, b, c, 5));
    check("bfi.b32 %r4, %r1, %r2, 3, %r3;", |a, b, c| defined_bfi(a, b, 3, c));
    check("popc.b32 %r4, %r1;", |a, _, _| a.count_ones());
    check("clz.b32 %r4, %r1;", |a, _, _| a.leading_zeros());
    check("brev.b32 %r4, %r1;", |a, _, _| a.reverse_bits());
    let highest = |a: u32| if a == 0 { u32::MAX } else { a.ilog2() };
    check("bfind.u32 %r4, %r1;", |a, _, _| highest(a));
    check("bfind.s32 %r4, %r1;", |a, _, _| highest(if i(a) < 0 { !a } else { a }));
    check(
        "bfind.shiftamt.u32 %r4, %r1;",
        |a, _, _| if a == 0 { u32::MAX } else { a.leading_zeros() },
    );
    check("prmt.b32 %r4, %r1, %r2, 0x5410;", |a, b, _| a & 0xffff | b << 16);
    check("prmt.b32 %r4, %r1, %r2, %r3;", |a, b, c| {
        let bytes = wide(a, b).to_le_bytes();
        u32::from_le_bytes([0, 4, 8, 12].map(|at| {
            let pick = c >> at & 15;
            let byte = bytes[(pick & 7) as usize];
            if pick & 8 == 0 {
                byte
            } else if byte & 0x80 == 0 {
                0
            } else {
                0xff
            }
        }))
    });
}

#[test]
fn dot_products_of_bytes() {
    let dot = |a: u32, b: u32, c: u32, sa: bool, sb: bool| {
        let value = |x: u8, s: bool| if s { i32::from(x as i8) } else { i32::from(x) };
        let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
        pairs.fold(i(c), |sum, (x, y)| sum.wrapping_add(value(x, sa) * value(y, sb)))
    };
    check("dp4a.s32.s32 %r4, %r1, %r2, %r3;", |a, b, c| u(dot(a, b, c, true, true)));
    check("dp4a.u32.u32 %r4, %r1, %r2, %r3;", |a, b, c| u(dot(a, b, c, false, false)));
    check("dp4a.s32.u32 %r4, %r1, %r2, %r3;", |a, b, c| u(dot(a, b, c, true, false)));
    check("dp4a.u32.s32 %r4, %r1, %r2, %r3;", |a, b, c| u(dot(a, b, c, false, true)));
}

#[test]
fn sixty_four_bits() {
    let binary = |op: &str| {
        format!(
            "mov.b64 %d1, {{%r1, %r2}}; mov.b64 %d2, {{%r3, %r1}}; {op} %d3, %d1, %d2; mov.b64 {{%r4, %r5}}, %d3;"
        )
    };
    for (op, want) in [
        ("add.u64", u64::wrapping_add as fn(u64, u64) -> u64),
        ("sub.s64", u64::wrapping_sub),
        ("mul.lo.u64", u64::wrapping_mul),
        ("and.b64", |a, b| a & b),
        ("or.b64", |a, b| a | b),
        ("xor.b64", |a, b| a ^ b),
        ("min.u64", u64::min),
        ("max.s64", |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned()),
    ] {
        check2(&binary(op), |a, b, c| parts(want(wide(a, b), wide(c, a))));
    }
    check2(
        "mov.b64 %d1, {%r1, %r2}; and.b32 %r6, %r3, 63; shl.b64 %d3, %d1, %r6; mov.b64 {%r4, %r5}, %d3;",
        |a, b, c| parts(wide(a, b) << (c & 63)),
    );
    check2("mov.b64 %d1, {%r1, %r2}; shr.s64 %d3, %d1, 5; mov.b64 {%r4, %r5}, %d3;", |a, b, _| {
        parts((wide(a, b).cast_signed() >> 5).cast_unsigned())
    });
    check2(
        "mov.b64 %d1, {%r1, %r2}; or.b32 %r6, %r3, 1; cvt.u64.u32 %d2, %r6; div.u64 %d3, %d1, %d2; mov.b64 {%r4, %r5}, %d3;",
        |a, b, c| parts(wide(a, b) / u64::from(c | 1)),
    );
    check2(
        "mov.b64 %d1, {%r1, %r2}; cvt.u64.u32 %d2, %r3; mad.lo.u64 %d3, %d1, 12, %d2; mov.b64 {%r4, %r5}, %d3;",
        |a, b, c| parts(wide(a, b).wrapping_mul(12).wrapping_add(u64::from(c))),
    );
    check2("mov.u64 %d1, -2; mov.b64 {%r4, %r5}, %d1;", |_, _, _| [u32::MAX - 1, u32::MAX]);
    check2(
        "mov.b64 %d1, {%r1, %r2}; neg.s64 %d2, %d1; not.b64 %d2, %d2; mov.b64 {%r4, %r5}, %d2;",
        |a, b, _| parts(!wide(a, b).wrapping_neg()),
    );
}

#[test]
fn conversions_of_integers() {
    check2("cvt.s64.s32 %d1, %r1; mov.b64 {%r4, %r5}, %d1;", |a, _, _| {
        parts(i64::from(i(a)).cast_unsigned())
    });
    check2("cvt.u64.u32 %d1, %r1; mov.b64 {%r4, %r5}, %d1;", |a, _, _| [a, 0]);
    check("mov.b64 %d1, {%r1, %r2}; cvt.u32.u64 %r4, %d1;", |a, _, _| a);
    check("cvt.u32.u8 %r4, %r1;", |a, _, _| a & 0xff);
    check("cvt.s32.s8 %r4, %r1;", |a, _, _| u(i32::from(a as i8)));
    check("cvt.s32.s16 %r4, %r1;", |a, _, _| u(i32::from(a as i16)));
    check("cvt.u16.u32 %h1, %r1; cvt.u32.u16 %r4, %h1;", |a, _, _| a & 0xffff);
    check("cvt.s8.s32 %r4, %r1;", |a, _, _| u(i32::from(a as i8)));
    check("cvt.sat.s8.s32 %r4, %r1;", |a, _, _| u(i(a).clamp(-128, 127)));
    check("cvt.sat.u8.s32 %r4, %r1;", |a, _, _| u(i(a).clamp(0, 255)));
    check("cvt.sat.s16.u32 %r4, %r1;", |a, _, _| a.min(32767));
    check("mov.b32 {%h1, %h2}, %r1; mov.b32 %r4, {%h2, %h1};", |a, _, _| a.rotate_left(16));
    check("mov.b32 {%h1, %h2}, %r1; add.u16 %h3, %h1, %h2; cvt.u32.u16 %r4, %h3;", |a, _, _| {
        ((a & 0xffff) + (a >> 16)) & 0xffff
    });
    check(
        "mov.b32 {%h1, %h2}, %r1; not.b16 %h1, %h1; shl.b16 %h1, %h1, 3; mov.b32 %r4, {%h1, %h2};",
        |a, _, _| (!a << 3) & 0xffff | a & 0xffff_0000,
    );
}
