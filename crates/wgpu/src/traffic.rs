//! What the works of a plan are called, and the bytes that they move.

pub(crate) mod moved;

use program::{CacheId, Program, Rows};

use crate::dispatch::products_at_once;
use crate::formats::device_format;
use crate::plan::{Crowd, GpuPlan, GpuWork, MatrixId, MixedWork, PiecesWork, VectorSpec};

/// What a work computes, by the weight or the cache that it reads first; empty if it reads none.
pub(crate) fn name(program: &Program, plan: &GpuPlan, work: &GpuWork) -> String {
    let matrix = |id: MatrixId| program.weight(plan.matrices[id].weights[0]).name.clone();
    let vector = |id: Option<usize>| match id.map(|id| &plan.vectors[id]) {
        Some(VectorSpec::Weight(id)) => program.weight(*id).name.clone(),
        _ => String::new(),
    };
    let layer = |cache: usize| program.cache(CacheId(cache as u32)).layer;
    match work {
        GpuWork::Embed { table, .. } => matrix(*table),
        GpuWork::Linear { matrix: id, .. } => matrix(*id),
        GpuWork::Pieces(work) => matrix(work.matrix),
        GpuWork::Turned(work) => matrix(work.matrix),
        GpuWork::Mixed(work) => matrix(work.matrix),
        GpuWork::Attention(work) => format!("blk.{}.attn", layer(work.cache)),
        GpuWork::Conv(work) => format!("blk.{}.conv", layer(work.cache)),
        GpuWork::Scan(work) => format!("blk.{}.scan", layer(work.cache)),
        GpuWork::Elements(work) | GpuWork::OfMany(work, _) => vector(work.vector),
        GpuWork::Groups(work) => vector(work.weight.map(|(id, _)| id)),
        GpuWork::Route(work) => vector(work.bias),
        GpuWork::Grams(work) => matrix(work.table),
        GpuWork::Index(work) => format!("blk.{}.indexer", layer(work.at.cache.0 as usize)),
        GpuWork::Sorted(_) | GpuWork::Ids { .. } | GpuWork::Balance(_) => String::new(),
    }
}

/// Its kind: see [`program::PhaseTime`].
pub(crate) fn kind(work: &GpuWork) -> &'static str {
    match work {
        GpuWork::Embed { .. } | GpuWork::Grams(_) => "embed",
        GpuWork::Linear { .. } => "linear",
        GpuWork::Attention(_) | GpuWork::Turned(_) | GpuWork::Index(_) => "attention",
        // pieces that nobody chooses are of latents: one for each head
        GpuWork::Pieces(PiecesWork { routes: None, .. }) => "attention",
        GpuWork::Pieces(_) | GpuWork::Mixed(_) => "experts",
        GpuWork::Conv(_) => "conv",
        GpuWork::Scan(_) => "scan",
        GpuWork::Elements(_)
        | GpuWork::Groups(_)
        | GpuWork::Route(_)
        | GpuWork::Sorted(_)
        | GpuWork::OfMany(..)
        | GpuWork::Ids { .. }
        | GpuWork::Balance(_) => "rows",
    }
}

/// Bytes of a row of a matrix as it is packed.
fn row_bytes(plan: &GpuPlan, id: MatrixId) -> u64 {
    let spec = &plan.matrices[id];
    let format = device_format(spec.ty).expect("supported types have a form");
    format.row_words(spec.cols).bytes() as u64
}

/// Bytes of packed weights that its kernels read for so many rows, each as often as it is read. Of experts by many rows, as
/// often as tiles can be at most.
pub(crate) fn weight_bytes(plan: &GpuPlan, work: &GpuWork, rows: &dyn Fn(Rows) -> usize) -> u64 {
    let n = rows(plan.buffer(work.out().buffer).rows);
    let is_many = |crowd: Crowd| crowd.is_many(n);
    let (matrix, n_rows) = match work {
        GpuWork::Embed { table, .. } => (*table, n),
        GpuWork::Grams(work) => (work.table, n * work.n_heads),
        GpuWork::Linear { matrix, .. } => {
            (*matrix, plan.matrices[*matrix].rows * n.div_ceil(products_at_once(n)))
        }
        GpuWork::Pieces(PiecesWork { matrix, taken, slots, routes, many, .. }) => {
            let pieces = match many {
                Some(many) if is_many(many.crowd) => many.crowd.most_tiles(n),
                Some(many) if many.only => 0,
                _ if routes.is_some() => slots * n,
                _ => slots * n.div_ceil(if n > 1 { products_at_once(2) } else { 1 }),
            };
            (*matrix, taken * pieces)
        }
        GpuWork::Turned(work) => (work.matrix, work.slots * work.taken * n),
        GpuWork::Mixed(MixedWork { matrix, crowd, each, routes, .. }) => {
            (*matrix, if is_many(*crowd) { 0 } else { each * routes.n_used * n })
        }
        GpuWork::Attention(_)
        | GpuWork::Conv(_)
        | GpuWork::Scan(_)
        | GpuWork::Elements(_)
        | GpuWork::Groups(_)
        | GpuWork::Route(_)
        | GpuWork::Sorted(_)
        | GpuWork::OfMany(..)
        | GpuWork::Ids { .. }
        | GpuWork::Balance(_)
        | GpuWork::Index(_) => return 0,
    };
    row_bytes(plan, matrix) * n_rows as u64
}
