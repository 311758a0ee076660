//! Numbers as numpy's `default_rng` draws them, bit by bit: golden models were made with it.
//!
//! Seeds are hashed as by `SeedSequence`, numbers come from PCG64 (XSL-RR), normal ones by a ziggurat of 256 layers.

use std::sync::LazyLock;

/// numpy's `Generator(PCG64(seed))`.
#[derive(Clone, Debug)]
pub struct Generator {
    state: u128,
    increment: u128,
    /// The upper half of a number whose lower half was handed out.
    half: Option<u32>,
}

impl Generator {
    /// `default_rng([a, b, ..])`.
    pub fn new(seed: &[u64]) -> Generator {
        let [a, b, c, d] = state_of(&words(seed)).map(u128::from);
        let increment = ((c << 64 | d) << 1) | 1;
        let mut generator = Generator { state: increment, increment, half: None };
        generator.state = generator.state.wrapping_add(a << 64 | b);
        generator.step();
        generator
    }

    fn step(&mut self) {
        const MULTIPLIER: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    /// Any 32 bits.
    fn half_bits(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let bits = self.bits();
        self.half = Some((bits >> 32) as u32);
        bits as u32
    }

    /// At least 0, less than 1.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn unit_f32(&mut self) -> f32 {
        (self.half_bits() >> 8) as f32 / (1u32 << 24) as f32
    }

    /// `uniform(low, high)`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// `standard_normal(dtype=float32)`.
    pub fn normal_f32(&mut self) -> f32 {
        let layers = &*LAYERS;
        loop {
            let bits = self.half_bits();
            let (i, magnitude) = ((bits & 0xff) as usize, bits >> 9);
            let size = magnitude as f32 * layers.width_f32[i];
            let x = if bits >> 8 & 1 == 1 { -size } else { size };
            if magnitude < layers.inside_f32[i] {
                return x;
            }
            if i == 0 {
                let x = self.tail_f32();
                return if magnitude >> 8 & 1 == 1 { -x } else { x };
            }
            let (above, below) = (layers.height_f32[i - 1], layers.height_f32[i]);
            let height = (above - below) * self.unit_f32() + below;
            if f64::from(height) < (-0.5 * f64::from(x) * f64::from(x)).exp() {
                return x;
            }
        }
    }

    fn tail_f32(&mut self) -> f32 {
        loop {
            let x = -(1.0 / EDGE) as f32 * (-self.unit_f32()).ln_1p();
            let y = -(-self.unit_f32()).ln_1p();
            if y + y > x * x {
                return EDGE as f32 + x;
            }
        }
    }

    /// `standard_normal()`.
    pub fn normal(&mut self) -> f64 {
        let layers = &*LAYERS;
        loop {
            let bits = self.bits();
            let (i, magnitude) = ((bits & 0xff) as usize, bits >> 9 & 0x000f_ffff_ffff_ffff);
            let size = magnitude as f64 * layers.width[i];
            let x = if bits >> 8 & 1 == 1 { -size } else { size };
            if magnitude < layers.inside[i] {
                return x;
            }
            if i == 0 {
                let x = self.tail();
                return if magnitude >> 8 & 1 == 1 { -x } else { x };
            }
            let (above, below) = (layers.height[i - 1], layers.height[i]);
            if (above - below) * self.unit() + below < (-0.5 * x * x).exp() {
                return x;
            }
        }
    }

    fn tail(&mut self) -> f64 {
        loop {
            let x = -(1.0 / EDGE) * (-self.unit()).ln_1p();
            let y = -(-self.unit()).ln_1p();
            if y + y > x * x {
                return EDGE + x;
            }
        }
    }

    /// `permutation(n)`.
    pub fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.at_most(last as u32) as usize);
        }
        order
    }

    /// Any number up to `most`, which is not 0: one with too many bits is drawn again.
    fn at_most(&mut self, most: u32) -> u32 {
        let mask = u32::MAX >> most.leading_zeros();
        loop {
            let drawn = self.half_bits() & mask;
            if drawn <= most {
                return drawn;
            }
        }
    }
}

/// Seeds in 32-bit words, the lowest first; at least one each.
fn words(seed: &[u64]) -> Vec<u32> {
    let of = |n: &u64| {
        let high = (*n >> 32) as u32;
        [Some(*n as u32), (high != 0).then_some(high)]
    };
    seed.iter().flat_map(of).flatten().collect()
}

/// `SeedSequence(entropy).generate_state(4, uint64)`.
fn state_of(entropy: &[u32]) -> [u64; 4] {
    const POOL: usize = 4;
    let mut constant = 0x43b0_d7e5_u32;
    let mut hash = |value: u32| {
        let value = value ^ constant;
        constant = constant.wrapping_mul(0x931e_8875);
        let value = value.wrapping_mul(constant);
        value ^ value >> 16
    };
    let mix = |x: u32, y: u32| {
        let mixed = x.wrapping_mul(0xca01_f9dd).wrapping_sub(y.wrapping_mul(0x4973_f715));
        mixed ^ mixed >> 16
    };
    let mut pool = [0; POOL];
    for (i, word) in pool.iter_mut().enumerate() {
        *word = hash(entropy.get(i).copied().unwrap_or(0));
    }
    for from in 0..POOL {
        for to in (0..POOL).filter(|to| *to != from) {
            pool[to] = mix(pool[to], hash(pool[from]));
        }
    }
    for word in entropy.iter().skip(POOL) {
        for to in &mut pool {
            *to = mix(*to, hash(*word));
        }
    }
    let mut constant = 0x8b51_f9dd_u32;
    let mut half = |i: usize| {
        let value = pool[i % POOL] ^ constant;
        constant = constant.wrapping_mul(0x58f3_8ded);
        let value = value.wrapping_mul(constant);
        u64::from(value ^ value >> 16)
    };
    std::array::from_fn(|i| half(2 * i) | half(2 * i + 1) << 32)
}

/// Where the lowest layer of the ziggurat ends and the tail begins.
const EDGE: f64 = 3.654_152_885_361_009;
/// What a layer covers; the lowest one with the tail.
const AREA: f64 = 0.004_928_673_233_974_65;

/// The ziggurat's layers, by index: widths for one step of the magnitude, below which magnitude a point is inside for
/// sure, and heights.
struct Layers {
    width: [f64; 256],
    inside: [u64; 256],
    height: [f64; 256],
    width_f32: [f32; 256],
    inside_f32: [u32; 256],
    height_f32: [f32; 256],
}

static LAYERS: LazyLock<Layers> = LazyLock::new(|| {
    let density = |x: f64| (-x * x / 2.0).exp();
    // Ends of the layers: 1 is the highest one, 255 the lowest with an end, 256 the lowest as if it had no tail.
    let mut ends = [0.0; 257];
    (ends[256], ends[255]) = (AREA / density(EDGE), EDGE);
    for i in (1..255).rev() {
        ends[i] = (-2.0 * (AREA / ends[i + 1] + density(ends[i + 1])).ln()).sqrt();
    }
    let end = |i: usize| if i == 0 { ends[256] } else { ends[i] };
    let inside = |i: usize| match i {
        0 => ends[255] / ends[256],
        1 => 0.0,
        _ => ends[i - 1] / ends[i],
    };
    let height = |i: usize| if i == 0 { 1.0 } else { density(ends[i]) };
    let (steps, steps_f32) = ((1u64 << 52) as f64, (1u32 << 23) as f64);
    Layers {
        width: std::array::from_fn(|i| end(i) / steps),
        inside: std::array::from_fn(|i| (inside(i) * steps).round() as u64),
        height: std::array::from_fn(height),
        width_f32: std::array::from_fn(|i| (end(i) / steps_f32) as f32),
        inside_f32: std::array::from_fn(|i| (inside(i) * steps_f32).round() as u32),
        height_f32: std::array::from_fn(|i| height(i) as f32),
    }
});
