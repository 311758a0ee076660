//! [`Division`]: which layers of a program a device runs, whole, and which the processor.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::beside::BesideOrder;
use crate::share::{WantedNode, is_of_experts};
use crate::{
    CacheOptions, CacheType, DeviceShare, Executor, MemoryNeeds, MemoryOptions, Part, Placement,
    Program, Result, passes, split,
};

/// A program in parts, each for the processor or for a device: layers are not divided, but for experts where that
/// is asked for, nor are those that share a cache.
#[derive(Clone, Debug)]
pub struct Division {
    program: Arc<Program>,
    parts: Vec<Part>,
    told: [String; 2],
    n_layers: usize,
    refused: Option<String>,
}

/// The number of the processor among devices of parts.
pub(crate) const PROCESSOR: usize = 0;
const DEVICE: usize = 1;
/// The device, while the processor runs the part behind.
const BESIDE: usize = 2;

/// What is asked of a device about a few layers: it is the program that matters.
const LEAST: MemoryOptions = MemoryOptions {
    cache: CacheOptions::new(CacheType::F16, CacheType::F16, 1),
    sessions: 1,
    chunk: 1,
};

impl Division {
    /// Give `device` what it takes of its `share`, and the processor the rest.
    ///
    /// # Errors
    /// Those of [`split`].
    pub fn of(
        program: &Program,
        device: &dyn Executor,
        share: impl Into<DeviceShare>,
    ) -> Result<Division> {
        let share = share.into();
        let program = passes::narrow(program);
        let wants = share.wants(&program);
        let starts = starts(&program, &wants);
        let unit_of = |node: usize| starts.partition_point(|start| *start <= node) - 1;
        let mut refused = None;
        let units = split(&program, &Placement::by_node(&program, |node, _| unit_of(node)))?;
        let takes = |(unit, part): (usize, &Part)| {
            let end = starts.get(unit + 1).copied().unwrap_or(wants.len());
            // what it says of memory it can load
            wants[starts[unit]..end].iter().all(|node| node.on_device)
                && match device.memory(&part.program, &LEAST) {
                    Ok(_) => true,
                    Err(why) => {
                        refused.get_or_insert(why.to_string());
                        false
                    }
                }
        };
        let mut on_device: Vec<bool> = units.iter().enumerate().map(takes).collect();
        let is_free =
            |unit: usize| program.nodes[starts[unit]].layer.is_none() && !wants[starts[unit]].named;
        follow(is_free, &mut on_device);
        let device_of = |node: usize| if on_device[unit_of(node)] { DEVICE } else { PROCESSOR };
        let layers = layers_on(&program, |node| device_of(node) == DEVICE);
        let behind = program.nodes.iter().rposition(|node| node.layer.is_some());
        let told = [PROCESSOR, DEVICE].map(|side| {
            let nodes = program.nodes.iter().enumerate();
            let its = nodes.filter(|(node, _)| device_of(*node) == side);
            let is_apart = |layer: usize| (side == DEVICE) != layers.contains(&layer);
            let is_output = |node: usize| behind.is_none_or(|last| node > last);
            told(its.map(|(node, its)| (its.layer, is_output(node))), is_apart)
        });
        let n_layers = layers.len();
        let order = BesideOrder::of(&program, |node| device_of(node) == DEVICE);
        let numbers = order.nodes().iter().map(|node| match device_of(*node) {
            DEVICE if order.is_beside(*node) => BESIDE,
            device => device,
        });
        let numbers: Vec<_> = numbers.collect();
        let nodes = order.nodes().iter().map(|node| program.nodes[*node].clone()).collect();
        let program = Program { nodes, ..program };
        let parts = split(&program, &Placement::by_node(&program, |node, _| numbers[node]))?;
        Ok(Division { program: Arc::new(program), parts, told, n_layers, refused })
    }

    /// The program that the parts are of: the same, with rows selected as early as can be, and what the device computes while
    /// the processor has experts of a layer before these.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The parts, in the order in which they run.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether a part is the device's.
    pub fn is_on_device(part: &Part) -> bool {
        part.device != PROCESSOR
    }

    /// What the device's parts together take of `device`.
    ///
    /// # Errors
    /// Those of [`Executor::memory`].
    pub fn device_needs(
        &self,
        device: &dyn Executor,
        options: &MemoryOptions,
    ) -> Result<MemoryNeeds> {
        let parts = self.parts.iter().filter(|part| Self::is_on_device(part));
        let mut all = parts.map(|part| device.memory(&part.program, options));
        all.try_fold(MemoryNeeds::default(), |all, part| Ok(all.and(part?)))
    }

    /// How many parts the device has: so often a step is submitted to it.
    pub fn submissions(&self) -> usize {
        self.parts.iter().filter(|part| Self::is_on_device(part)).count()
    }

    /// How often a step goes from one to the other.
    pub fn crossings(&self) -> usize {
        let crosses = |two: &&[Part]| Self::is_on_device(&two[0]) != Self::is_on_device(&two[1]);
        self.parts.windows(2).filter(crosses).count()
    }

    /// How many layers are the device's, but for their experts perhaps.
    pub fn n_layers(&self) -> usize {
        self.n_layers
    }

    /// What the processor has, in words: `layers 0-1`.
    pub fn on_processor(&self) -> &str {
        &self.told[PROCESSOR]
    }

    /// What the device has, in words: `layers 2-3, output`.
    pub fn on_device(&self) -> &str {
        &self.told[DEVICE]
    }

    /// Why the device has not all that it was to have, if it has not.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Where units begin: layers, or what of them is wanted on one side, and what stands between them; those on one cache, and all
/// between them, are one.
pub(crate) fn starts(program: &Program, wants: &[WantedNode]) -> Vec<usize> {
    let nodes = &program.nodes;
    let mut spans = vec![None; program.caches.len()];
    for (index, node) in nodes.iter().enumerate() {
        if let Some(used) = node.op.facts().state {
            let (_, last) = spans[used.cache.0 as usize].get_or_insert((index, index));
            *last = index;
        }
    }
    let of = |index: usize| (nodes[index].layer, wants[index].on_device);
    let begins = |index: &usize| *index == 0 || of(*index) != of(index - 1);
    let divides =
        |index: &usize| !spans.iter().flatten().any(|(first, last)| first < index && index <= last);
    (0..nodes.len()).filter(|index| begins(index) && divides(index)).collect()
}

/// What stands before the layers goes where the first of them is, what stands between two where the one before is: else
/// rows would cross for little. `is_free`: what stands so, and is not named.
fn follow(is_free: impl Fn(usize) -> bool, on_device: &mut [bool]) {
    let last = on_device.len().saturating_sub(1);
    for unit in (0..last).filter(|unit| is_free(*unit)) {
        let other = if unit == 0 { 1 } else { unit - 1 };
        on_device[unit] &= on_device[other];
    }
}

/// Layers that are so, but for their experts perhaps.
fn layers_on(program: &Program, on: impl Fn(usize) -> bool) -> BTreeSet<usize> {
    let nodes = program.nodes.iter().enumerate();
    let nodes = nodes.filter(|(index, node)| on(*index) && !is_of_experts(node));
    nodes.filter_map(|(_, node)| node.layer).collect()
}

/// `layers 0-3, 5, output` of nodes, each with its layer and whether it stands behind all layers; of layers whose rest is
/// elsewhere, `experts of layers 0-3`.
fn told(
    nodes: impl Iterator<Item = (Option<usize>, bool)>,
    is_apart: impl Fn(usize) -> bool,
) -> String {
    let (mut layers, mut output, mut any) = (BTreeSet::new(), false, false);
    for (layer, behind) in nodes {
        layers.extend(layer);
        output |= behind;
        any = true;
    }
    let (apart, layers): (BTreeSet<_>, BTreeSet<_>) =
        layers.into_iter().partition(|layer| is_apart(*layer));
    let experts = match apart.is_empty() {
        true => None,
        false => Some(format!("experts of {}", runs_of(&apart))),
    };
    let whole = Some(runs_of(&layers)).filter(|_| !layers.is_empty());
    let output = output.then(|| "output".to_owned());
    let parts: Vec<String> = whole.into_iter().chain(output).chain(experts).collect();
    match (parts.is_empty(), any) {
        (true, true) => "embedding".into(),
        (true, false) => "nothing".into(),
        (false, _) => parts.join(", "),
    }
}

/// `layers 0-3, 5`.
pub(crate) fn runs_of(layers: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &layer in layers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == layer => *end = layer,
            _ => runs.push((layer, layer)),
        }
    }
    let run = |(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let word = match runs[..] {
        [(first, last)] if first == last => "layer",
        _ => "layers",
    };
    format!("{word} {}", runs.iter().map(run).collect::<Vec<_>>().join(", "))
}
