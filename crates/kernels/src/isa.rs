//! Sets of CPU features that kernels need, detected at run time.

/// A set of instruction-set features. A kernel states what it needs; a CPU has what [`Isa::detect`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Isa(u16);

impl Isa {
    /// No feature: portable Rust.
    pub const NONE: Isa = Isa(0);
    /// AVX2, FMA and F16C.
    pub const AVX2: Isa = Isa(1);
    /// AVX-512 F, BW, DQ, VL and VNNI, and all of [`Isa::AVX2`].
    pub const AVX512: Isa = Isa(3);

    /// Names that [`Isa::parse`] takes, least first.
    pub const NAMES: &'static [(&'static str, Isa)] =
        &[("scalar", Isa::NONE), ("avx2", Isa::AVX2), ("avx512", Isa::AVX512)];

    /// Whether every feature of `needed` is present.
    pub const fn contains(self, needed: Isa) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// The features both sets have.
    pub const fn and(self, other: Isa) -> Isa {
        Isa(self.0 & other.0)
    }

    /// The set with this name.
    pub fn parse(name: &str) -> Option<Isa> {
        Self::NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, isa)| *isa)
    }

    /// The name of this set.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, isa)| *isa == self).map_or("mixed", |(name, _)| name)
    }

    /// What this CPU has.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Isa {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        match (avx2, avx512) {
            (_, true) => Isa::AVX512,
            (true, false) => Isa::AVX2,
            (false, false) => Isa::NONE,
        }
    }

    /// What this CPU has.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Isa {
        Isa::NONE
    }
}
