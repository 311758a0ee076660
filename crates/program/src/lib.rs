//! A model is a program: a flat list of ops over named values, weights and caches.
//!
//! Architectures *record* a [`Program`] with a [`Recorder`]; executors run it. Nothing in a program depends on token
//! values or positions: those arrive with each [`Step`]. The [`interpreter`] defines what every op means.
//! No CPU, no file, no thread is known here. Read next: `op.rs`, then `facts.rs`, then `models/src/arch/qwen2.rs`.

#![forbid(unsafe_code)]

mod act;
mod among;
mod attention;
mod beside;
mod cache;
mod candidates;
mod ceilings;
mod context;
mod declare;
mod division;
mod error;
mod executor;
mod facts;
mod grams;
mod hybrid;
mod indexer;
pub mod interpreter;
mod kept;
mod meter;
mod mla;
mod nmse;
mod norm;
mod op;
mod parts;
pub mod passes;
mod recorder;
mod recurrence;
mod results;
mod rope;
mod router;
mod sessions;
mod share;
mod show;
mod split;
mod tuning;
mod uses;

pub use act::{Act, Gate};
pub use among::{Among, AmongRow, check_among, rows_among};
pub use attention::{
    Attention, LatentAttention, Mask, RotatedNorm, Score, Temperature, alibi_slope,
};
pub use beside::beside_experts;
pub use cache::{CacheKind, CacheOptions, CacheSpec, CacheStorage, CacheType, StateCopies};
pub use candidates::{Candidate, k_likeliest, likeliest};
pub use ceilings::{Ceilings, ComputeCeiling, ReadCeiling};
pub(crate) use context::Stretch;
pub use context::{
    BlockAnchor, BlockSharing, Certificate, ContextMemory, FarPositions, GivenBlocks, KvPolicy,
    Smoothing,
};
pub use declare::{MemoryNeeds, MemoryOptions, Promises, Variation};
pub use division::Division;
pub use error::{Error, Result};
pub use executor::{
    Dump, Executor, Model, PhaseTime, Progress, Prompt, Sequence, SessionId, SpillCounts, Step,
    StepStats, Trace, WeightSource, read_memory,
};
pub use facts::{Counted, Facts, Reading, RowRule, StateUse, WeightUse};
pub use grams::{GramHead, Grams};
pub use hybrid::{Hybrid, HybridOptions};
pub use indexer::{IndexScore, Indexer, NO_UNIT, Selection, UnitScore};
pub use kept::{KeptNow, KeptPart, KeptPlace, KeptSession, KeptSessions, is_kept_name};
pub use meter::{Meter, MeterReading, MissedMass, Readings};
pub use mla::{MlaDims, MlaForm};
pub use nmse::nmse;
pub use norm::{Norm, NormKind};
pub use op::{
    CacheId, ExpertBiases, LatentUp, Lookup, Node, Op, OutputKind, Program, Rope, RopePairs,
    RopeScaling, Rows, Shape, ValueId, ValueSpec, WeightId, WeightSpec,
};
pub use parts::Parts;
pub use recorder::{ConvWeights, ExpertWeights, LinearWeight, Recorder};
pub use recurrence::{CausalConv, Scan, ScanDims, ScanKind, ScanRule};
pub use results::{
    CandidateRows, HiddenRows, LogitRows, OutputRows, Outputs, PEAK, RowsOut, StepOut, Wanted,
};
pub use router::{Gating, GroupScore, Groups, LEAST_WEIGHT_SUM, Router};
pub use sessions::{Held, Kept, OpenSession, Sessions};
pub use share::{DeviceLayers, DeviceShare, WeightSides};
pub use show::Listing;
pub use split::{Part, Placement, split};
pub use tuning::{KernelShape, KernelTuning, ProductType};
pub use uses::Uses;
