//! [`Division`]: which layers of a program a device runs, whole, and which the processor.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::{
    CacheOptions, CacheType, Executor, MemoryOptions, Node, Op, Part, Placement, Program, Result,
    passes, split,
};

/// Layers that a device is to run, as far as it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceLayers {
    /// All of them.
    #[default]
    All,
    /// The last so many, what stands behind the layers (the output) counting as one; what stands before them goes with the
    /// first.
    ///
    /// Source: `i_gpu_start` in llama.cpp's src/llama-model.cpp.
    Last(usize),
}

impl DeviceLayers {
    /// The first of `n_layers` that it has; `n_layers` is the output.
    fn first(self, n_layers: usize) -> usize {
        match self {
            DeviceLayers::All => 0,
            DeviceLayers::Last(n) => (n_layers + 1).saturating_sub(n),
        }
    }
}

/// What a device is to run, as far as it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceShare {
    /// These layers.
    pub layers: DeviceLayers,
    /// But for the experts, with their router, of the first so many of all layers.
    pub apart: usize,
}

impl From<DeviceLayers> for DeviceShare {
    fn from(layers: DeviceLayers) -> DeviceShare {
        DeviceShare { layers, apart: 0 }
    }
}

impl DeviceShare {
    /// Whether a node is not the device's although its layer may be.
    fn leaves(self, node: &Node) -> bool {
        let of_experts = matches!(node.op, Op::Route(_) | Op::Experts { .. });
        of_experts && node.layer.is_some_and(|layer| layer < self.apart)
    }
}

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
        let starts = starts(&program, share);
        let unit_of = |node: usize| starts.partition_point(|start| *start <= node) - 1;
        let places = places(&program);
        let n_layers = n_layers(&program);
        let first = share.layers.first(n_layers);
        let mut refused = None;
        let units = split(&program, &Placement::by_node(&program, |node, _| unit_of(node)))?;
        let takes = |(unit, part): (usize, &Part)| {
            let end = starts.get(unit + 1).copied().unwrap_or(places.len());
            let its = starts[unit]..end;
            let wanted = places[its.clone()].iter().all(|place| *place >= first)
                && !program.nodes[its].iter().any(|node| share.leaves(node));
            // what it says of memory it can load
            wanted
                && match device.memory(&part.program, &LEAST) {
                    Ok(_) => true,
                    Err(why) => {
                        refused.get_or_insert(why.to_string());
                        false
                    }
                }
        };
        let mut on_device: Vec<bool> = units.iter().enumerate().map(takes).collect();
        follow(&program, &starts, &mut on_device);
        let device_of = |node: usize| if on_device[unit_of(node)] { DEVICE } else { PROCESSOR };
        let placement = Placement::by_node(&program, |node, _| device_of(node));
        let layers = layers_on(&program, |node| device_of(node) == DEVICE);
        let told = [PROCESSOR, DEVICE].map(|side| {
            let nodes = program.nodes.iter().enumerate();
            let its = nodes.filter(|(node, _)| device_of(*node) == side);
            let has_rest = |layer: usize| side == PROCESSOR && layers.contains(&layer);
            told(its.map(|(node, its)| (its.layer, places[node] == n_layers)), has_rest)
        });
        let on_it = layers.len();
        let parts = split(&program, &placement)?;
        Ok(Division { program: Arc::new(program), parts, told, n_layers: on_it, refused })
    }

    /// The program that the parts are of: the same, with rows selected as early as can be.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The parts, in the order in which they run.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether a part is the device's.
    pub fn is_on_device(part: &Part) -> bool {
        part.device == DEVICE
    }

    /// How many parts the device has: so often a step is submitted to it.
    pub fn submissions(&self) -> usize {
        self.parts.iter().filter(|part| Self::is_on_device(part)).count()
    }

    /// How often a step goes from one to the other.
    pub fn crossings(&self) -> usize {
        self.parts.len().saturating_sub(1)
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

/// By node: its layer; before the first layer 0, behind the last their number, between two the one before.
fn places(program: &Program) -> Vec<usize> {
    let n_layers = n_layers(program);
    let layered = |node: &Node| node.layer.is_some();
    let behind = program.nodes.iter().rposition(layered).map_or(0, |last| last + 1);
    let mut place = 0;
    let nodes = program.nodes.iter().enumerate();
    let places = nodes.map(|(index, node)| {
        place = node.layer.unwrap_or(if index >= behind { n_layers } else { place });
        place
    });
    places.collect()
}

fn n_layers(program: &Program) -> usize {
    program.nodes.iter().filter_map(|node| node.layer).max().map_or(0, |last| last + 1)
}

/// Where units begin: layers, and what stands between them; those on one cache, and all between them, are one.
fn starts(program: &Program, share: DeviceShare) -> Vec<usize> {
    let nodes = &program.nodes;
    let mut spans = vec![None; program.caches.len()];
    for (index, node) in nodes.iter().enumerate() {
        if let Some(used) = node.op.facts().state {
            let (_, last) = spans[used.cache.0 as usize].get_or_insert((index, index));
            *last = index;
        }
    }
    let of = |index: usize| (nodes[index].layer, share.leaves(&nodes[index]));
    let begins = |index: &usize| *index == 0 || of(*index) != of(index - 1);
    let divides =
        |index: &usize| !spans.iter().flatten().any(|(first, last)| first < index && index <= last);
    (0..nodes.len()).filter(|index| begins(index) && divides(index)).collect()
}

/// What stands before the layers goes where the first of them is, what stands between two where the one before is: else
/// rows would cross for little.
fn follow(program: &Program, starts: &[usize], on_device: &mut [bool]) {
    let is_layer = |unit: usize| program.nodes[starts[unit]].layer.is_some();
    let last = on_device.len().saturating_sub(1);
    for unit in 0..last {
        if !is_layer(unit) {
            let other = if unit == 0 { 1 } else { unit - 1 };
            on_device[unit] &= on_device[other];
        }
    }
}

/// Layers some of whose nodes are so.
fn layers_on(program: &Program, on: impl Fn(usize) -> bool) -> BTreeSet<usize> {
    let nodes = program.nodes.iter().enumerate().filter(|(node, _)| on(*node));
    nodes.filter_map(|(_, node)| node.layer).collect()
}

/// `layers 0-3, 5, output` of nodes, each with its layer and whether it stands behind all layers; of layers whose rest is
/// elsewhere, `experts of layers 0-3`.
fn told(
    nodes: impl Iterator<Item = (Option<usize>, bool)>,
    has_rest: impl Fn(usize) -> bool,
) -> String {
    let (mut layers, mut output, mut any) = (BTreeSet::new(), false, false);
    for (layer, behind) in nodes {
        layers.extend(layer);
        output |= behind;
        any = true;
    }
    let (apart, layers): (BTreeSet<_>, BTreeSet<_>) =
        layers.into_iter().partition(|layer| has_rest(*layer));
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
fn runs_of(layers: &BTreeSet<usize>) -> String {
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
