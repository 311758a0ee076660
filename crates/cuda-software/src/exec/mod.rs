//! Executes kernels: warps of 32 lanes in lockstep, blocks on several threads.
//!
//! `launch` distributes blocks, `block` alternates between barriers and the warps that wait for
//! them, `warp` follows the control flow of one warp, `alu_int` and `alu_float` compute,
//! `access` checks loads and stores, `shared` watches shared and local memory, `matrix` holds
//! `wmma`, `collective` shuffles and votes.

mod access;
mod alu_float;
mod alu_int;
mod block;
mod collective;
pub(crate) mod half;
mod launch;
mod matrix;
mod scratch;
mod warp;

pub(crate) use launch::{Launch, Options, Uninitialized, launch};

/// Kind of a fault, which decides the error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Access outside a live allocation or a variable.
    Address,
    /// Access that is not naturally aligned.
    Alignment,
    /// Read of what was never written.
    Uninitialized,
    /// Two threads of a block access a word without a barrier in between.
    Race,
    /// Threads of a warp are not at one instruction that needs all of them.
    Divergent,
    /// Threads wait for each other for ever.
    Deadlock,
    /// The kernel does not end.
    Endless,
    /// What a launch or copy refers to is no longer there.
    Gone,
}

/// First fault of a context, described in one line.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) text: String,
}

/// Fault within a warp: the lane, and what happened there.
#[derive(Debug)]
struct Trouble {
    kind: FaultKind,
    lane: u32,
    detail: String,
}

impl Trouble {
    #[cold]
    fn new(kind: FaultKind, lane: u32, detail: String) -> Box<Self> {
        Box::new(Self { kind, lane, detail })
    }
}
