//! Shared by the tests of float kernels: which kernels to test, and numbers to test them on.

use kernels::{Isa, Kernel, Level, Slot};

/// The instruction sets this CPU has. The others are told, never passed over silently.
pub(crate) fn isas(op: &str) -> Vec<(&'static str, Isa)> {
    testing::isas(&format!("kernels: {op}"), Isa::NAMES, |isa| Isa::detect().contains(isa))
}

/// The kernels of a slot that this CPU can run and that are not naive.
pub(crate) fn candidates<F>(slot: &Slot<F>) -> Vec<&Kernel<F>> {
    isas(slot.op);
    slot.available(Isa::detect()).filter(|kernel| kernel.level() != Level::Naive).collect()
}

/// Run the naive kernel and every other one that this CPU can run: `run` yields the bits of all that a kernel wrote.
/// Returns the names of those compared.
pub(crate) fn compare<F>(
    slot: &'static Slot<F>,
    what: &str,
    run: impl Fn(&Kernel<F>) -> Vec<u32>,
) -> Vec<&'static str> {
    let naive = slot.naive();
    assert_eq!(naive.level(), Level::Naive, "{}", naive.name());
    let want = run(naive);
    let compared = candidates(slot).into_iter().map(|kernel| {
        assert_ne!(kernel.name(), naive.name());
        let got = run(kernel);
        let differs = got.iter().zip(&want).position(|(got, want)| got != want);
        assert!(
            got.len() == want.len() && differs.is_none(),
            "{} is not {} with {what}: element {differs:?}",
            kernel.name(),
            naive.name()
        );
        kernel.name()
    });
    compared.collect()
}

/// The sizes that a test goes over: under Miri, which takes a thousand times as long, fewer and smaller ones.
pub(crate) const fn sizes<T: Copy>(all: T, under_miri: T) -> T {
    if cfg!(miri) { under_miri } else { all }
}

/// Small deterministic numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Any 32 bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }

    /// At least 0, less than `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.bits() as usize % end
    }

    /// Numbers around 0, at most `scale` in size.
    pub(crate) fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| (self.bits() as f32 / u32::MAX as f32 * 2.0 - 1.0) * scale).collect()
    }
}

/// Panics unless both hold the same bits.
pub(crate) fn assert_same_bits(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got.to_bits(), want.to_bits(), "{what}: element {i}: {got} and {want}");
    }
}
