//! The registry: one typed [`Slot`] per op signature.
//!
//! A slot always has a naive kernel, which states what the op means, and candidates for faster instruction sets. Tests
//! and benchmarks iterate slots, so a kernel is tested by being listed; executors pick once, at load.

use crate::Isa;

/// How much of an op's domain a kernel covers, and how hard it tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain loops: the meaning of the op.
    Naive,
    /// Fast on part of the shapes, or not at the machine's limit.
    Partial,
    /// Fast everywhere.
    Full,
}

/// One implementation of an op. `F` is its function pointer type.
///
/// Kernels are made in this crate only and handed out by [`Slot::available`] and [`Slot::pick`], which leave out what
/// the CPU cannot run: whoever holds a `&Kernel` may call it.
#[derive(Debug)]
pub struct Kernel<F: 'static> {
    pub(crate) name: &'static str,
    pub(crate) isa: Isa,
    pub(crate) level: Level,
    pub(crate) run: F,
}

impl<F> Kernel<F> {
    /// `op/isa/variant`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Features it needs.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// How much it covers.
    pub fn level(&self) -> Level {
        self.level
    }
}

/// All kernels of one op signature.
#[derive(Debug)]
pub struct Slot<F: 'static> {
    /// Name of the op.
    pub op: &'static str,
    pub(crate) naive: Kernel<F>,
    pub(crate) candidates: &'static [Kernel<F>],
}

impl<F> Slot<F> {
    /// The kernels that run on a CPU with `isa`, best first, naive last. `isa` is cut to what this CPU has.
    pub fn available(&self, isa: Isa) -> impl Iterator<Item = &Kernel<F>> {
        let isa = isa.and(Isa::detect());
        let mut found: Vec<&Kernel<F>> =
            self.candidates.iter().filter(|k| isa.contains(k.isa)).collect();
        found.sort_by_key(|k| std::cmp::Reverse((k.isa.contains(Isa::AVX512), k.level)));
        found.into_iter().chain(std::iter::once(&self.naive))
    }

    /// The kernel that says what the op means: plain loops, which any CPU runs.
    pub fn naive(&self) -> &Kernel<F> {
        &self.naive
    }

    /// The best kernel for a CPU with `isa`.
    pub fn pick(&self, isa: Isa) -> &Kernel<F> {
        self.available(isa).next().unwrap_or(&self.naive)
    }
}
