//! What a GPU says of itself before it loads: [`program::Executor`]'s `supports`, `memory` and `promises`.

use program::{
    Attention, Error, LatentAttention, MemoryNeeds, MemoryOptions, Op, Program, Promises, Reading,
    Result, Variation,
};
use quant::GgmlType;

use crate::caches::{BLOCK, cache_bytes, largest_cache};
use crate::formats::device_format;
use crate::lower::{lower, unsupported};
use crate::slots::Slots;
use crate::weights::weight_bytes;
use crate::workspace::{WorkSizes, work_bytes};

/// Whether kernels compute `op` with weights of these types.
pub(crate) fn supports(op: &Op, types: &[GgmlType]) -> Result<()> {
    if matches!(
        op,
        Op::Indexer(_)
            | Op::LatentAttention(LatentAttention { select: Some(_), .. })
            | Op::Attention(Attention { select: Some(_), .. })
            | Op::Shift(_)
            | Op::Softmax
            | Op::Turn
            | Op::Ids
            | Op::Grams { .. }
            | Op::SignedRoot { .. }
            | Op::Sinkhorn { .. }
            | Op::CausalConv(_)
            | Op::Scan(_)
    ) {
        return Err(unsupported(op));
    }
    for (used, ty) in op.facts().weights.iter().zip(types) {
        let known = match used.reading {
            Reading::Vector | Reading::Vectors { .. } | Reading::OnLoad => {
                quant::format(*ty).is_some()
            }
            Reading::TableRow | Reading::Matrix | Reading::Copies { .. } => {
                device_format(*ty).is_some()
            }
        };
        if !known {
            let op = op.name();
            return Err(Error::Unsupported(format!("op `{op}` with weights of type {ty}")));
        }
    }
    Ok(())
}

/// [`supports`] for every node.
pub(crate) fn supports_all(program: &Program) -> Result<()> {
    program.nodes.iter().try_for_each(|node| {
        let weights = node.op.facts().weights;
        let types: Vec<_> = weights.iter().map(|used| program.weight(used.id).ty).collect();
        supports(&node.op, &types)
    })
}

/// The same steps give the same bits: a kernel adds in one order, which follows from the step alone. Other cuts may take
/// other kernels, and other splits of the past.
pub(crate) fn promises() -> Promises {
    Promises { same_bits: vec![Variation::Again], exceptions: Vec::new() }
}

/// Memory of a load, and of the steps that fill the caches; `is_card`: it is the device's own.
pub(crate) fn memory(
    program: &Program,
    options: &MemoryOptions,
    most_bytes: u64,
    is_card: bool,
) -> Result<MemoryNeeds> {
    supports_all(program)?;
    let narrowed = program::passes::narrow(program);
    let plan = lower(&narrowed)?;
    let cache = cache_bytes(program, options)?;
    let MemoryOptions { sessions, chunk, .. } = *options;
    let sizes = WorkSizes {
        tokens: chunk.max(sessions),
        selected: sessions,
        sequences: sessions,
        blocks: options.cache.capacity.div_ceil(BLOCK),
        n_caches: program.caches.len(),
        most_bytes,
    };
    // while the cache of a layer grows, the smaller one is still there
    let growing = largest_cache(program, options)?;
    let needs = MemoryNeeds {
        weights: weight_bytes(&plan, program, most_bytes),
        cache,
        bounded_cache: cache,
        least_cache: cache,
        work: work_bytes(&plan, &Slots::assign(&plan), &sizes).saturating_add(growing),
        on_card: 0,
        cache_on_card: 0,
    };
    let [on_card, cache_on_card] =
        [needs.total(), needs.cache].map(|bytes| if is_card { bytes } else { 0 });
    Ok(MemoryNeeds { on_card, cache_on_card, ..needs })
}
