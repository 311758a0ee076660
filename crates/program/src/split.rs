//! [`split`]: a program cut into parts that hand rows to each other, so that several devices can run it.
//!
//! [`Parts`](crate::Parts) is the model made of loaded parts.

use std::collections::HashMap;
use std::ops::Range;

use crate::{CacheId, Error, Node, OutputKind, Program, Result, ValueId, WeightId};

/// A device for each node of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    devices: Vec<usize>,
}

impl Placement {
    /// `device` tells for each node, by its index and by what it is.
    pub fn by_node(program: &Program, mut device: impl FnMut(usize, &Node) -> usize) -> Placement {
        let nodes = program.nodes.iter().enumerate();
        Placement { devices: nodes.map(|(index, node)| device(index, node)).collect() }
    }

    /// `device` tells for each layer; `None` is what stands before and behind the layers.
    pub fn by_layer(
        program: &Program,
        mut device: impl FnMut(Option<usize>) -> usize,
    ) -> Placement {
        Self::by_node(program, |_, node| device(node.layer))
    }
}

/// Neighbouring nodes on one device, as a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The device.
    pub device: usize,
    /// The part alone, with no other weights and caches than its own. Its outputs are of kind [`OutputKind::Rows`]; those
    /// of the last part are the whole's.
    pub program: Program,
    /// What its inputs are in the whole program, in their order.
    pub inputs: Vec<ValueId>,
    /// What its outputs are in the whole program, in their order.
    pub outputs: Vec<ValueId>,
}

/// Cut `program` into parts, in the order in which they run: neighbouring nodes on one device make one. A value that
/// later parts read is an output of the part that writes it and an input of those that read it. What the program yields
/// comes from the last part, which is handed what an earlier one has computed of it.
///
/// # Errors
/// [`Error::Operand`] if the placement is of another program, or would divide a cache: ops on the same one stay in one
/// part.
pub fn split(program: &Program, placement: &Placement) -> Result<Vec<Part>> {
    let devices = &placement.devices;
    if devices.len() != program.nodes.len() {
        return Err(Error::Operand {
            op: "placement".into(),
            expected: format!("devices of {} nodes", program.nodes.len()),
            found: devices.len().to_string(),
        });
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for run in devices.chunk_by(|a, b| a == b) {
        let start = runs.last().map_or(0, |last| last.end);
        runs.push(start..start + run.len());
    }
    check_caches(program, &runs)?;
    // by value: the last part that reads it
    let mut needed = vec![0; program.values.len()];
    for (index, run) in runs.iter().enumerate() {
        let inputs = program.nodes[run.clone()].iter().flat_map(|node| &node.inputs);
        inputs.for_each(|input| needed[input.0 as usize] = index);
    }
    let last = runs.len().saturating_sub(1);
    program.outputs.iter().for_each(|(_, output)| needed[output.0 as usize] = last);
    let part = |(index, run): (usize, &Range<usize>)| {
        let nodes = &program.nodes[run.clone()];
        let mut cut = Cut {
            whole: program,
            part: Program::default(),
            inputs: Vec::new(),
            ids: Ids::default(),
        };
        nodes.iter().for_each(|node| cut.node(node));
        let outputs: Vec<(OutputKind, ValueId)> = if index == last {
            program.outputs.clone()
        } else {
            let later = |id: &ValueId| needed[id.0 as usize] > index;
            let written = nodes.iter().map(|node| node.output).filter(later);
            written.map(|id| (OutputKind::Rows, id)).collect()
        };
        cut.part.outputs = outputs.iter().map(|(kind, id)| (*kind, cut.read(*id))).collect();
        Part {
            device: devices[run.start],
            program: cut.part,
            inputs: cut.inputs,
            outputs: outputs.into_iter().map(|(_, id)| id).collect(),
        }
    };
    Ok(runs.iter().enumerate().map(part).collect())
}

/// Refuse runs of nodes that would share a cache.
fn check_caches(program: &Program, runs: &[Range<usize>]) -> Result<()> {
    let mut users: HashMap<CacheId, (usize, &Node)> = HashMap::new();
    for (index, run) in runs.iter().enumerate() {
        for node in &program.nodes[run.clone()] {
            let Some(used) = node.op.facts().state else { continue };
            let &mut (first, user) = users.entry(used.cache).or_insert((index, node));
            if first != index {
                let name = |node: &Node| program.value(node.output).name.clone();
                return Err(Error::Operand {
                    op: name(node),
                    expected: format!("the part of `{}`, whose cache it shares", name(user)),
                    found: "another".into(),
                });
            }
        }
    }
    Ok(())
}

/// What ids of the whole are in a part.
#[derive(Default)]
struct Ids {
    weights: HashMap<WeightId, WeightId>,
    caches: HashMap<CacheId, CacheId>,
    values: HashMap<ValueId, ValueId>,
}

/// A part under construction.
struct Cut<'a> {
    whole: &'a Program,
    part: Program,
    inputs: Vec<ValueId>,
    ids: Ids,
}

impl Cut<'_> {
    fn node(&mut self, node: &Node) {
        let inputs = node.inputs.iter().map(|&input| self.read(input)).collect();
        let output = self.value(node.output);
        let mut op = node.op.clone();
        let Cut { whole, part, ids, .. } = self;
        op.relabel(
            &mut |id| {
                *ids.weights.entry(id).or_insert_with(|| {
                    part.weights.push(whole.weight(id).clone());
                    WeightId(part.weights.len() as u32 - 1)
                })
            },
            &mut |id| {
                *ids.caches.entry(id).or_insert_with(|| {
                    part.caches.push(whole.cache(id).clone());
                    CacheId(part.caches.len() as u32 - 1)
                })
            },
        );
        self.part.nodes.push(Node { op, inputs, output, layer: node.layer });
    }

    /// A value that the part reads: one that it wrote or was given before, or a new input.
    fn read(&mut self, id: ValueId) -> ValueId {
        if let Some(known) = self.ids.values.get(&id) {
            return *known;
        }
        let input = self.value(id);
        self.part.inputs.push(input);
        self.inputs.push(id);
        input
    }

    fn value(&mut self, id: ValueId) -> ValueId {
        let values = &mut self.part.values;
        values.push(self.whole.value(id).clone());
        let own = ValueId(values.len() as u32 - 1);
        self.ids.values.insert(id, own);
        own
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{Attention, CacheKind, CacheSpec, Recorder, WeightSpec};

    /// Two layers on one cache, the second of which reads what the first appends.
    fn program() -> Program {
        let r = Recorder::new();
        let weight = |name: &str| {
            r.weight(WeightSpec {
                name: name.into(),
                ty: GgmlType::F32,
                rows: 4,
                cols: 4,
                start: 0,
            })
        };
        let kind = CacheKind::Heads { n_kv_heads: 1, key_dim: 4, value_dim: 4, window: None };
        let cache = r.cache(CacheSpec { layer: 0, kind });
        let x = r.embed(weight("table")).unwrap();
        let mut values = vec![x];
        for layer in 0..2 {
            r.layer(Some(layer));
            let name = format!("blk.{layer}.attn_q.weight");
            let q = r.linear("attn_q", x, weight(&name)).unwrap();
            let appends = layer == 0;
            let at = Attention { appends, ..Attention::causal(cache, None, 1.0) };
            let inputs = if appends { vec![q, x, x] } else { vec![q] };
            values.push(r.attention("attn", at, &inputs).unwrap());
        }
        r.layer(None);
        let sum = r.add("sum", values[1], values[2]).unwrap();
        let sum = r.add("sums", sum, x).unwrap();
        r.finish(&[(OutputKind::Logits, sum)])
    }

    fn names(program: &Program, ids: &[ValueId]) -> Vec<String> {
        ids.iter().map(|id| program.value(*id).name.clone()).collect()
    }

    #[test]
    fn parts_have_their_own_and_hand_on_what_is_read_later() {
        let program = program();
        // the sums elsewhere, and the second layer's query with the table
        let on = |cut: usize| Placement::by_node(&program, move |i, _| usize::from(i >= cut));
        let parts = split(&program, &on(5)).unwrap();
        let [first, last] = parts.as_slice() else { panic!("two parts") };
        assert_eq!((first.device, last.device), (0, 1));
        assert_eq!((first.program.weights.len(), first.program.caches.len()), (3, 1));
        assert_eq!((last.program.weights.len(), last.program.caches.len()), (0, 0));
        assert_eq!(names(&program, &first.outputs), ["embed", "blk.0.attn", "blk.1.attn"]);
        assert_eq!(names(&program, &last.inputs), ["blk.0.attn", "blk.1.attn", "embed"]);
        assert_eq!(names(&last.program, &last.program.inputs), names(&program, &last.inputs));
        assert!(first.program.outputs.iter().all(|(kind, _)| *kind == OutputKind::Rows));
        assert_eq!(last.program.outputs.len(), 1);
        let listing = "blk.0.attn = given -> [n, 4]\nblk.1.attn = given -> [n, 4]\n\
                       embed = given -> [n, 4]\nsum = add(blk.0.attn, blk.1.attn) -> [n, 4]\n\
                       sums = add(sum, embed) -> [n, 4]\n";
        assert_eq!(last.program.listing().to_string(), listing);
        assert!(first.program.listing().to_string().ends_with("yields blk.1.attn [n, 4]\n"));
        // one device, one part: the program as it was
        let whole = split(&program, &Placement::by_layer(&program, |_| 3)).unwrap();
        assert_eq!((whole.len(), whole[0].device, &whole[0].program), (1, 3, &program));
    }

    #[test]
    fn caches_are_not_divided() {
        let program = program();
        let layers = Placement::by_layer(&program, |layer| layer.unwrap_or(0));
        let message = split(&program, &layers).unwrap_err().to_string();
        let want =
            "blk.1.attn: expected the part of `blk.0.attn`, whose cache it shares, found another";
        assert_eq!(message, want);
        let other = Placement { devices: vec![0; 3] };
        let message = split(&program, &other).unwrap_err().to_string();
        assert_eq!(message, "placement: expected devices of 7 nodes, found 3");
    }
}
