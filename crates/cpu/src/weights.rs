//! Weights as the executor keeps them: matrices in panels, in the order they are read; vectors beside them.
//!
//! Which matrices there are and where they stand, the phases know that read them: `packed.rs`, `latent.rs`, `table.rs`.
//! `pack.rs` reads them from the file.

mod latent;
mod lender;
mod pack;
mod packed;
mod table;

use std::ops::Range;
use std::sync::Arc;

use program::{Error, Op, Program, Reading, WeightId, WeightSpec};

use crate::exec::BLOCK_ROWS;
use crate::memory::Buffer;

pub(crate) use latent::{HeadMatrix, PackedLatent};
pub(crate) use lender::Lender;
pub(crate) use pack::Packing;
pub(crate) use packed::{Copies, PackedJob, PackedMatrix};
pub(crate) use table::Table;

/// The memory of all weights, tables apart.
pub(crate) struct WeightMemory {
    /// The panels of all jobs that are not lent.
    pub(crate) arena: Buffer,
    /// The weights of the model that lends the others.
    pub(crate) lender: Option<Arc<WeightMemory>>,
    /// What [`HeadMatrix::bytes`] indexes.
    pub(crate) latent: Buffer,
    /// Norms, biases and frequency factors, dequantized, by weight number.
    pub(crate) vectors: Vec<Option<Vec<f32>>>,
    /// Factors of norms that have none, as many as the longest needs.
    pub(crate) ones: Vec<f32>,
}

impl WeightMemory {
    /// A vector as f32.
    pub(crate) fn vector(&self, id: WeightId) -> &[f32] {
        self.vectors[id.0 as usize].as_deref().expect("`load` read every vector of the program")
    }

    /// Panels `panels` of matrix `m` of a job, of copy `copy` if it has several. The panels belong to one unit.
    pub(crate) fn panels(
        &self,
        job: &PackedJob,
        copy: usize,
        panels: Range<usize>,
        m: usize,
    ) -> &[u8] {
        let arena = match &self.lender {
            Some(lender) if job.is_lent() => &lender.arena,
            _ => &self.arena,
        };
        &arena.bytes()[job.bytes_of(copy, panels, m)]
    }

    /// So many ones.
    pub(crate) fn ones(&self, n: usize) -> &[f32] {
        &self.ones[..n]
    }

    /// Memory it takes, besides what is lent.
    pub(crate) fn bytes(&self) -> u64 {
        let vectors = self.vectors.iter().flatten().chain([&self.ones]);
        let vectors: usize = vectors.map(|v| v.len() * 4).sum();
        (self.arena.len() + self.latent.len() + vectors) as u64
    }
}

/// The vectors of a program, each once: what is kept dequantized.
pub(crate) fn vectors(program: &Program) -> Vec<WeightId> {
    let weights = program.nodes.iter().flat_map(|node| node.op.facts().weights);
    let vectors = weights.filter(|used| match used.reading {
        Reading::Vector | Reading::Vectors { .. } | Reading::OnLoad => true,
        // these are in the jobs of phases
        Reading::TableRow | Reading::Matrix | Reading::Copies { .. } => false,
    });
    let mut ids: Vec<WeightId> = vectors.map(|used| used.id).collect();
    ids.sort();
    ids.dedup();
    ids
}

/// How many ones stand for factors that there are none of: in a norm, or of the experts of a block of rows.
pub(crate) fn n_ones(program: &Program) -> usize {
    let ones = program.nodes.iter().map(|node| match &node.op {
        Op::Norm(norm) if norm.weight.is_none() => program.value(node.output).shape.dim,
        Op::Experts { weighs_inputs: true, .. } => BLOCK_ROWS,
        Op::Scan(scan) => scan.dims.key_dim,
        Op::Attention(at) if at.norm.is_some() => program.value(node.inputs[0]).shape.dim,
        _ => 0,
    });
    ones.max().unwrap_or(0)
}

fn unusable(spec: &WeightSpec) -> Error {
    let problem = format!("type {} with rows of {} cannot be used as a weight", spec.ty, spec.cols);
    Error::Weight { name: spec.name.clone(), problem }
}
