//! Shared by the tests of float kernels: which kernels to test, and numbers to test them on.

use kernels::{Isa, Kernel, Level, Slot};

/// The kernels of a slot that are not naive. Instruction sets this CPU lacks are named, never passed over silently.
pub(crate) fn candidates<F>(slot: &Slot<F>) -> Vec<&Kernel<F>> {
    for (name, isa) in Isa::NAMES {
        if !Isa::detect().contains(*isa) {
            eprintln!("skipped: {} needs {name}", slot.op);
            assert!(
                std::env::var_os("ROOFLIGHT_REQUIRE_ISA").is_none(),
                "{} needs {name}",
                slot.op
            );
        }
    }
    slot.available(Isa::detect()).filter(|kernel| kernel.level() != Level::Naive).collect()
}

/// The naive kernel of a slot.
pub(crate) fn naive<F>(slot: &Slot<F>) -> &Kernel<F> {
    slot.pick(Isa::NONE)
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
