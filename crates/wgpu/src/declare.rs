//! What a GPU says of itself before it loads: [`program::Executor`]'s `supports`, `memory` and `promises`.

use program::{
    Error, MemoryNeeds, MemoryOptions, Op, Program, Promises, Reading, Result, Variation,
};
use quant::GgmlType;

use crate::caches::{BLOCK, CacheNeeds};
use crate::formats::device_format;
use crate::lower::{lower, recurrence};
use crate::slots::Slots;
use crate::weights::weight_bytes;
use crate::workspace::{WorkSizes, work_bytes};

/// Whether kernels compute `op` with weights of these types.
pub(crate) fn supports(op: &Op, types: &[GgmlType]) -> Result<()> {
    if let Op::Scan(scan) = op {
        recurrence::check(scan)?;
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

/// The memory of a device, as far as needs depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMemory {
    /// Most bytes of a buffer that kernels see.
    pub(crate) most_bytes: u64,
    /// Whether it is the device's own.
    pub(crate) is_card: bool,
    /// Most bytes of all caches.
    pub(crate) bound: Option<u64>,
    /// Whether its products may be in larger tiles.
    pub(crate) has_wide: bool,
}

/// Memory of a load, and of the steps that fill the caches.
pub(crate) fn memory(
    program: &Program,
    options: &MemoryOptions,
    device: DeviceMemory,
) -> Result<MemoryNeeds> {
    let DeviceMemory { most_bytes, is_card, bound, has_wide } = device;
    supports_all(program)?;
    let narrowed = program::passes::narrow(program);
    let plan = lower(&narrowed)?;
    let cache = CacheNeeds::of(program, options)?;
    let MemoryOptions { sessions, chunk, .. } = *options;
    let sizes = WorkSizes {
        tokens: chunk.max(sessions),
        selected: sessions,
        sequences: sessions,
        blocks: options.cache.capacity.div_ceil(BLOCK),
        n_caches: program.caches.len(),
        most_bytes,
        has_wide,
    };
    let work = work_bytes(&plan, &Slots::assign(&plan), &sizes);
    let needs = MemoryNeeds {
        weights: weight_bytes(&plan, program, most_bytes),
        cache: cache.most.min(bound.unwrap_or(u64::MAX).max(cache.least)),
        bounded_cache: cache.least,
        least_cache: cache.least,
        // while the cache of a layer grows, the smaller one is still there
        work: work.saturating_add(cache.largest),
        on_card: 0,
        cache_on_card: 0,
    };
    let [on_card, cache_on_card] =
        [needs.total(), needs.cache].map(|bytes| if is_card { bytes } else { 0 });
    Ok(MemoryNeeds { on_card, cache_on_card, ..needs })
}
