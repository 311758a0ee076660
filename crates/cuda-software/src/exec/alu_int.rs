//! Moves, integers and predicates. Each operation computes all 32 lanes and keeps those of the
//! mask.

use super::half;
use super::warp::{LANES, Warp};
use crate::ptx::{Cmp, Instr, Int, Op};

/// Comparison of integers as given by their order.
#[inline(always)]
fn compare<T: Copy + PartialOrd>(cmp: Cmp, a: [T; LANES], b: [T; LANES]) -> u32 {
    #[inline(always)]
    fn bits<T: Copy>(a: [T; LANES], b: [T; LANES], f: impl Fn(T, T) -> bool) -> u32 {
        let mut out = 0;
        for lane in 0..LANES {
            out |= u32::from(f(a[lane], b[lane])) << lane;
        }
        out
    }
    match cmp {
        Cmp::Eq | Cmp::Equ => bits(a, b, |x, y| x == y),
        Cmp::Ne | Cmp::Neu => bits(a, b, |x, y| x != y),
        Cmp::Lt | Cmp::Ltu => bits(a, b, |x, y| x < y),
        Cmp::Le | Cmp::Leu => bits(a, b, |x, y| x <= y),
        Cmp::Gt | Cmp::Gtu => bits(a, b, |x, y| x > y),
        Cmp::Ge | Cmp::Geu => bits(a, b, |x, y| x >= y),
        Cmp::Num => u32::MAX,
        Cmp::Nan => 0,
    }
}

#[inline(always)]
fn signed(values: [u32; LANES]) -> [i32; LANES] {
    lanewise(|l| values[l].cast_signed())
}

/// Value of each lane. `array::from_fn` and `map` are not inlined into the function that enables
/// vector instructions; this is.
#[inline(always)]
pub(super) fn lanewise<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; LANES] {
    let mut out = [T::default(); LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = f(lane);
    }
    out
}

impl Warp {
    #[inline(always)]
    pub(super) fn w(&self, register: u32) -> [u32; LANES] {
        self.w[register as usize].0
    }

    #[inline(always)]
    pub(super) fn q(&self, register: u32) -> [u64; LANES] {
        self.q[register as usize].0
    }

    #[inline(always)]
    pub(super) fn one(&mut self, i: &Instr, mask: u32, f: impl Fn(u32) -> u32) {
        let a = self.w(i.a);
        self.set(i.d, mask, lanewise(|l| f(a[l])));
    }

    #[inline(always)]
    pub(super) fn two(&mut self, i: &Instr, mask: u32, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (self.w(i.a), self.w(i.b));
        self.set(i.d, mask, lanewise(|l| f(a[l], b[l])));
    }

    #[inline(always)]
    pub(super) fn three(&mut self, i: &Instr, mask: u32, f: impl Fn(u32, u32, u32) -> u32) {
        let (a, b, c) = (self.w(i.a), self.w(i.b), self.w(i.c));
        self.set(i.d, mask, lanewise(|l| f(a[l], b[l], c[l])));
    }

    #[inline(always)]
    fn one_wide(&mut self, i: &Instr, mask: u32, f: impl Fn(u64) -> u64) {
        let a = self.q(i.a);
        self.set_wide(i.d, mask, lanewise(|l| f(a[l])));
    }

    #[inline(always)]
    fn two_wide(&mut self, i: &Instr, mask: u32, f: impl Fn(u64, u64) -> u64) {
        let (a, b) = (self.q(i.a), self.q(i.b));
        self.set_wide(i.d, mask, lanewise(|l| f(a[l], b[l])));
    }

    #[inline(always)]
    fn shift_wide(&mut self, i: &Instr, mask: u32, f: impl Fn(u64, u32) -> u64) {
        let (a, b) = (self.q(i.a), self.w(i.b));
        self.set_wide(i.d, mask, lanewise(|l| f(a[l], b[l])));
    }

    #[inline(always)]
    fn widening(&mut self, i: &Instr, mask: u32, f: impl Fn(u32, u32) -> u64) {
        let (a, b) = (self.w(i.a), self.w(i.b));
        self.set_wide(i.d, mask, lanewise(|l| f(a[l], b[l])));
    }

    #[inline(always)]
    fn narrowing(&mut self, i: &Instr, mask: u32, f: impl Fn(u64) -> u32) {
        let a = self.q(i.a);
        self.set(i.d, mask, lanewise(|l| f(a[l])));
    }

    #[inline(always)]
    fn predicates(&mut self, i: &Instr, mask: u32, f: impl Fn(u32, u32) -> u32) {
        let value = f(self.p[i.a as usize], self.p[i.b as usize]);
        self.set_predicate(i.d, mask, value);
    }

    /// Quotient or remainder; a divisor that is one power of two in all lanes needs no division.
    #[inline(always)]
    fn divide(&mut self, i: &Instr, mask: u32, remainder: bool) {
        let b = self.w(i.b);
        let divisor = b[0];
        if divisor.is_power_of_two() && b.iter().all(|&x| x == divisor) {
            let shift = divisor.trailing_zeros();
            if remainder {
                self.one(i, mask, |a| a & (divisor - 1));
            } else {
                self.one(i, mask, |a| a >> shift);
            }
        } else if remainder {
            self.two(i, mask, |a, b| a.checked_rem(b).unwrap_or(a));
        } else {
            self.two(i, mask, |a, b| a.checked_div(b).unwrap_or(u32::MAX));
        }
    }

    /// Computes an instruction that only reads and writes registers.
    #[inline(always)]
    #[expect(clippy::too_many_lines, reason = "one line for each operation")]
    pub(super) fn compute(&mut self, i: &Instr, mask: u32) {
        match i.op {
            Op::Mov32 => self.one(i, mask, |a| a),
            Op::Mov64 => self.one_wide(i, mask, |a| a),
            Op::Pack16 => self.two(i, mask, |a, b| a & 0xffff | b << 16),
            Op::Low16 | Op::Cut16(false) => self.one(i, mask, |a| a & 0xffff),
            Op::High16 => self.one(i, mask, |a| a >> 16),
            Op::Pack32 => self.widening(i, mask, |a, b| u64::from(a) | u64::from(b) << 32),
            Op::Low32 => self.narrowing(i, mask, |a| a as u32),
            Op::High32 => self.narrowing(i, mask, |a| (a >> 32) as u32),
            Op::Cut8(false) => self.one(i, mask, |a| a & 0xff),
            Op::Cut8(true) => {
                self.one(i, mask, |a| (a << 24).cast_signed().wrapping_shr(24).cast_unsigned())
            }
            Op::Cut16(true) => {
                self.one(i, mask, |a| (a << 16).cast_signed().wrapping_shr(16).cast_unsigned())
            }
            Op::Add32 => self.two(i, mask, u32::wrapping_add),
            Op::Sub32 => self.two(i, mask, u32::wrapping_sub),
            Op::Mul32 => self.two(i, mask, u32::wrapping_mul),
            Op::Mad32 => self.three(i, mask, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
            Op::MulHi(s) => self.two(i, mask, |a, b| (wide_product(a, b, s) >> 32) as u32),
            Op::MadHi(s) => self
                .three(i, mask, |a, b, c| ((wide_product(a, b, s) >> 32) as u32).wrapping_add(c)),
            Op::MulWide(s) => self.widening(i, mask, |a, b| wide_product(a, b, s)),
            Op::MadWide(s) => {
                let (a, b, c) = (self.w(i.a), self.w(i.b), self.q(i.c));
                let sum = lanewise(|l| wide_product(a[l], b[l], s).wrapping_add(c[l]));
                self.set_wide(i.d, mask, sum);
            }
            Op::DivU => self.divide(i, mask, false),
            Op::RemU => self.divide(i, mask, true),
            Op::DivS => self.two(i, mask, |a, b| match b {
                0 => u32::MAX,
                _ => a.cast_signed().wrapping_div(b.cast_signed()).cast_unsigned(),
            }),
            Op::RemS => self.two(i, mask, |a, b| match b {
                0 => a,
                _ => a.cast_signed().wrapping_rem(b.cast_signed()).cast_unsigned(),
            }),
            Op::MinU => self.two(i, mask, u32::min),
            Op::MaxU => self.two(i, mask, u32::max),
            Op::MinS => {
                self.two(i, mask, |a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned());
            }
            Op::MaxS => {
                self.two(i, mask, |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned());
            }
            Op::AbsS => self.one(i, mask, |a| a.cast_signed().wrapping_abs().cast_unsigned()),
            Op::Neg32 => self.one(i, mask, u32::wrapping_neg),
            Op::And32 => self.two(i, mask, |a, b| a & b),
            Op::Or32 => self.two(i, mask, |a, b| a | b),
            Op::Xor32 => self.two(i, mask, |a, b| a ^ b),
            Op::Not32 => self.one(i, mask, |a| !a),
            Op::Shl32 => self.two(i, mask, |a, b| if b > 31 { 0 } else { a << b }),
            Op::ShrU => self.two(i, mask, |a, b| if b > 31 { 0 } else { a >> b }),
            Op::ShrS => self.two(i, mask, |a, b| (a.cast_signed() >> b.min(31)).cast_unsigned()),
            Op::Bfe(s) => self.three(i, mask, |a, b, c| extract(a, b, c, s)),
            Op::Bfi => {
                let (a, b) = (self.w(i.a), self.w(i.b));
                let (c, e) = (self.w(i.c), self.w(i.ext));
                let out = lanewise(|l| insert(a[l], b[l], c[l], e[l]));
                self.set(i.d, mask, out);
            }
            Op::Prmt => self.three(i, mask, permute),
            Op::Popc => self.one(i, mask, u32::count_ones),
            Op::Clz => self.one(i, mask, u32::leading_zeros),
            Op::Brev => self.one(i, mask, u32::reverse_bits),
            Op::Bfind(s) => self.one(i, mask, |a| find(a, s)),
            Op::BfindShift(s) => self.one(i, mask, |a| match find(a, s) {
                u32::MAX => u32::MAX,
                at => 31 - at,
            }),
            Op::Lop3 => {
                let table = i.ext;
                self.three(i, mask, |a, b, c| logic(a, b, c, table));
            }
            Op::ShfL(wrap) => self.three(i, mask, |a, b, c| {
                let n = if wrap { c & 31 } else { c.min(32) };
                (((u64::from(b) << 32 | u64::from(a)) << n) >> 32) as u32
            }),
            Op::ShfR(wrap) => self.three(i, mask, |a, b, c| {
                let n = if wrap { c & 31 } else { c.min(32) };
                ((u64::from(b) << 32 | u64::from(a)) >> n) as u32
            }),
            Op::Dp4a(sa, sb) => self.dot(i, mask, sa, sb),
            Op::Selp32 => {
                let (a, b, p) = (self.w(i.a), self.w(i.b), self.p[i.c as usize]);
                let pick = |l: usize| (p >> l & 1).wrapping_sub(1);
                let out = lanewise(|l| a[l] & !pick(l) | b[l] & pick(l));
                self.set(i.d, mask, out);
            }
            Op::Selp64 => {
                let (a, b, p) = (self.q(i.a), self.q(i.b), self.p[i.c as usize]);
                let out = lanewise(|l| if p >> l & 1 == 1 { a[l] } else { b[l] });
                self.set_wide(i.d, mask, out);
            }
            Op::SetpU(cmp) => {
                let value = compare(cmp, self.w(i.a), self.w(i.b));
                self.set_predicate(i.d, mask, value);
            }
            Op::SetpS(cmp) => {
                let value = compare(cmp, signed(self.w(i.a)), signed(self.w(i.b)));
                self.set_predicate(i.d, mask, value);
            }
            Op::MovP => self.predicates(i, mask, |a, _| a),
            Op::AndP => self.predicates(i, mask, |a, b| a & b),
            Op::OrP => self.predicates(i, mask, |a, b| a | b),
            Op::XorP => self.predicates(i, mask, |a, b| a ^ b),
            Op::NotP => self.predicates(i, mask, |a, _| !a),
            Op::Widen(false) => {
                let a = self.w(i.a);
                self.set_wide(i.d, mask, lanewise(|l| u64::from(a[l])));
            }
            Op::Widen(true) => {
                let a = self.w(i.a);
                let wide = lanewise(|l| i64::from(a[l].cast_signed()).cast_unsigned());
                self.set_wide(i.d, mask, wide);
            }
            Op::SatInt(from_signed, to) => {
                self.one(i, mask, |a| saturate(a, from_signed, to));
            }
            Op::Add64 => self.two_wide(i, mask, u64::wrapping_add),
            Op::Sub64 => self.two_wide(i, mask, u64::wrapping_sub),
            _ => self.compute_wide(i, mask),
        }
    }

    /// 64-bit operations that are rare, then floats.
    #[inline(always)]
    fn compute_wide(&mut self, i: &Instr, mask: u32) {
        match i.op {
            Op::Mul64 => self.two_wide(i, mask, u64::wrapping_mul),
            Op::Mad64 => {
                let (a, b, c) = (self.q(i.a), self.q(i.b), self.q(i.c));
                let sum = lanewise(|l| a[l].wrapping_mul(b[l]).wrapping_add(c[l]));
                self.set_wide(i.d, mask, sum);
            }
            Op::Neg64 => self.one_wide(i, mask, u64::wrapping_neg),
            Op::Not64 => self.one_wide(i, mask, |a| !a),
            Op::And64 => self.two_wide(i, mask, |a, b| a & b),
            Op::Or64 => self.two_wide(i, mask, |a, b| a | b),
            Op::Xor64 => self.two_wide(i, mask, |a, b| a ^ b),
            Op::Shl64 => self.shift_wide(i, mask, |a, b| a.checked_shl(b).unwrap_or(0)),
            Op::Shr64(false) => self.shift_wide(i, mask, |a, b| a.checked_shr(b).unwrap_or(0)),
            Op::Shr64(true) => {
                self.shift_wide(i, mask, |a, b| (a.cast_signed() >> b.min(63)).cast_unsigned());
            }
            Op::Min64(false) => self.two_wide(i, mask, u64::min),
            Op::Max64(false) => self.two_wide(i, mask, u64::max),
            Op::Min64(true) => {
                self.two_wide(i, mask, |a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned());
            }
            Op::Max64(true) => {
                self.two_wide(i, mask, |a, b| a.cast_signed().max(b.cast_signed()).cast_unsigned());
            }
            Op::Div64(s) => self.two_wide(i, mask, |a, b| match (b, s) {
                (0, _) => u64::MAX,
                (_, false) => a / b,
                (_, true) => a.cast_signed().wrapping_div(b.cast_signed()).cast_unsigned(),
            }),
            Op::Rem64(s) => self.two_wide(i, mask, |a, b| match (b, s) {
                (0, _) => a,
                (_, false) => a % b,
                (_, true) => a.cast_signed().wrapping_rem(b.cast_signed()).cast_unsigned(),
            }),
            Op::Setp64(cmp, true) => {
                let (a, b) = (self.q(i.a), self.q(i.b));
                let value = compare(
                    cmp,
                    lanewise(|l| a[l].cast_signed()),
                    lanewise(|l| b[l].cast_signed()),
                );
                self.set_predicate(i.d, mask, value);
            }
            Op::Setp64(cmp, false) => {
                let value = compare(cmp, self.q(i.a), self.q(i.b));
                self.set_predicate(i.d, mask, value);
            }
            Op::Int64ToF32(s) => self.narrowing(i, mask, |a| {
                (if s { a.cast_signed() as f32 } else { a as f32 }).to_bits()
            }),
            Op::AddH => self.two(i, mask, half::add),
            Op::SubH => self.two(i, mask, half::sub),
            Op::MulH => self.two(i, mask, half::mul),
            Op::FmaH => self.three(i, mask, half::fma),
            Op::AddH2 => self.two(i, mask, |a, b| half::pairs(a, b, half::add)),
            Op::SubH2 => self.two(i, mask, |a, b| half::pairs(a, b, half::sub)),
            Op::MulH2 => self.two(i, mask, |a, b| half::pairs(a, b, half::mul)),
            Op::FmaH2 => self.three(i, mask, |a, b, c| {
                half::fma(a & 0xffff, b & 0xffff, c & 0xffff)
                    | half::fma(a >> 16, b >> 16, c >> 16) << 16
            }),
            _ => self.compute_float(i, mask),
        }
    }

    #[inline(always)]
    fn dot(&mut self, i: &Instr, mask: u32, a_signed: bool, b_signed: bool) {
        let byte = |x: u32, at: u32, s: bool| {
            if s {
                (x << (24 - at * 8)).cast_signed() >> 24
            } else {
                (x >> (at * 8) & 0xff).cast_signed()
            }
        };
        self.three(i, mask, |a, b, c| {
            let mut sum = c.cast_signed();
            for at in 0..4 {
                sum = sum.wrapping_add(byte(a, at, a_signed) * byte(b, at, b_signed));
            }
            sum.cast_unsigned()
        });
    }
}

#[inline(always)]
fn wide_product(a: u32, b: u32, s: bool) -> u64 {
    if s {
        (i64::from(a.cast_signed()) * i64::from(b.cast_signed())).cast_unsigned()
    } else {
        u64::from(a) * u64::from(b)
    }
}

/// `bfe`: `len` bits of `a` from `start`.
#[inline(always)]
fn extract(a: u32, start: u32, len: u32, s: bool) -> u32 {
    let (start, len) = (start & 0xff, len & 0xff);
    if len == 0 {
        return 0;
    }
    // The sign is the highest bit of the field, or of the register where the field goes beyond it.
    let sign_at = (start + len - 1).min(31);
    let negative = s && a >> sign_at & 1 == 1;
    let field = if start > 31 { 0 } else { a >> start };
    let in_reach = if start > 31 { 0 } else { len.min(32 - start) };
    let mask = if in_reach == 32 { u32::MAX } else { (1 << in_reach) - 1 };
    if negative { field & mask | !mask } else { field & mask }
}

/// `bfi`: the low `len` bits of `a` at `start` of `b`.
#[inline(always)]
fn insert(a: u32, b: u32, start: u32, len: u32) -> u32 {
    let (start, len) = (start & 0xff, len & 0xff);
    if start > 31 || len == 0 {
        return b;
    }
    let ones = if len > 31 { u32::MAX } else { (1 << len) - 1 };
    let mask = ones << start;
    b & !mask | a << start & mask
}

/// `prmt`: each nibble of `selector` picks a byte of `b:a`, or repeats its sign.
#[inline(always)]
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(a) | u64::from(b) << 32;
    let mut out = 0;
    for at in 0..4 {
        let pick = selector >> (at * 4) & 15;
        let byte = (bytes >> ((pick & 7) * 8)) as u32 & 0xff;
        let byte = if pick & 8 == 0 { byte } else { (byte >> 7) * 0xff };
        out |= byte << (at * 8);
    }
    out
}

/// `bfind`: highest bit that differs from the sign.
#[inline(always)]
fn find(a: u32, s: bool) -> u32 {
    let a = if s && a >> 31 == 1 { !a } else { a };
    31_u32.wrapping_sub(a.leading_zeros())
}

#[inline(always)]
fn logic(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut out = 0;
    for row in 0..8_u32 {
        if table >> row & 1 == 1 {
            let x = if row & 4 == 0 { !a } else { a };
            let y = if row & 2 == 0 { !b } else { b };
            let z = if row & 1 == 0 { !c } else { c };
            out |= x & y & z;
        }
    }
    out
}

#[inline(always)]
fn saturate(a: u32, from_signed: bool, to: Int) -> u32 {
    let value = if from_signed { i64::from(a.cast_signed()) } else { i64::from(a) };
    let (low, high) = bounds(to);
    value.clamp(low, high) as u32
}

/// Least and greatest value of a type of up to 32 bits.
pub(super) fn bounds(int: Int) -> (i64, i64) {
    if int.signed {
        (-(1 << (int.bits - 1)), (1 << (int.bits - 1)) - 1)
    } else {
        (0, (1 << int.bits) - 1)
    }
}
