//! What a device computes of a layer while the processor computes its experts: what needs nothing of them and is not needed
//! for them, as an expert that every token uses.

use std::collections::HashSet;
use std::ops::Range;

use crate::share::is_of_experts;
use crate::{Node, Program, ValueId};

/// Where in its layer a node runs, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// On the device: the processor waits for it, or it has a cache.
    Before,
    /// On the device, while the processor runs.
    Beside,
    Processor,
    /// On the device: it waits for the processor.
    Behind,
}

/// An order of nodes in which all that can run beside the processor stands before what that runs.
#[derive(Debug)]
pub(crate) struct BesideOrder {
    nodes: Vec<usize>,
    is_beside: Vec<bool>,
}

impl BesideOrder {
    /// Of nodes that are on the device or not. Layers keep their places, and nodes theirs in a layer where nothing is gained.
    pub(crate) fn of(program: &Program, on_device: impl Fn(usize) -> bool) -> BesideOrder {
        let n = program.nodes.len();
        let mut order = BesideOrder { nodes: (0..n).collect(), is_beside: vec![false; n] };
        let mut start = 0;
        for layer in program.nodes.chunk_by(|a, b| a.layer == b.layer) {
            let span = start..start + layer.len();
            start = span.end;
            let Some(turns) = turns(program, span.clone(), &on_device) else { continue };
            let turn = |node: &usize| turns[node - span.start];
            order.nodes[span.clone()].sort_by_key(turn);
            span.clone().for_each(|node| order.is_beside[node] = turn(&node) == Turn::Beside);
        }
        order
    }

    /// The nodes, by their indexes in the program that it was made for.
    pub(crate) fn nodes(&self) -> &[usize] {
        &self.nodes
    }

    /// Whether a node, by such an index, runs on the device while the processor does.
    pub(crate) fn is_beside(&self, node: usize) -> bool {
        self.is_beside[node]
    }
}

/// By node: whether a device that has a layer without its experts computes it while the processor computes these.
pub fn beside_experts(program: &Program) -> Vec<bool> {
    BesideOrder::of(program, |node| !is_of_experts(&program.nodes[node])).is_beside
}

/// By node of a layer; `None` if it is one side's, if there is no matrix to multiply by meanwhile, if the processor waits
/// for what waits for it, or if a cache would be divided.
fn turns(
    program: &Program,
    layer: Range<usize>,
    on_device: &impl Fn(usize) -> bool,
) -> Option<Vec<Turn>> {
    let nodes = &program.nodes[layer.clone()];
    nodes.first()?.layer?;
    let mut turns: Vec<Turn> =
        layer.map(|node| if on_device(node) { Turn::Beside } else { Turn::Processor }).collect();
    let mut late: HashSet<ValueId> = HashSet::new();
    for (node, turn) in nodes.iter().zip(&mut turns) {
        let waits = node.inputs.iter().any(|input| late.contains(input));
        if *turn == Turn::Beside && waits {
            *turn = Turn::Behind;
        }
        if *turn != Turn::Beside {
            late.insert(node.output);
        }
    }
    let mut needed: HashSet<ValueId> = HashSet::new();
    for (node, turn) in nodes.iter().zip(&mut turns).rev() {
        let is_needed = needed.contains(&node.output);
        match turn {
            Turn::Behind if is_needed => return None,
            Turn::Beside if is_needed || node.op.facts().state.is_some() => *turn = Turn::Before,
            _ => {}
        }
        if matches!(turn, Turn::Before | Turn::Processor) {
            needed.extend(&node.inputs);
        }
    }
    // ops on one cache stay in one part
    let caches = |of: Turn| {
        let its = nodes.iter().zip(&turns).filter(move |(_, turn)| **turn == of);
        its.filter_map(|(node, _)| Some(node.op.facts().state?.cache))
    };
    if caches(Turn::Behind).any(|cache| caches(Turn::Before).any(|other| other == cache)) {
        return None;
    }
    let gains = |(node, turn): (&Node, &Turn)| *turn == Turn::Beside && multiplies(node);
    let is_divided = turns.contains(&Turn::Processor);
    (is_divided && nodes.iter().zip(&turns).any(gains)).then_some(turns)
}

fn multiplies(node: &Node) -> bool {
    node.op.facts().weights.iter().any(|used| used.reading.is_matrix())
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{
        Act, ExpertWeights, Gate, Gating, OutputKind, Recorder, Router, WeightId, WeightSpec,
    };

    struct Made {
        r: Recorder,
        x: ValueId,
    }

    impl Made {
        fn new() -> Made {
            let r = Recorder::new();
            let x = r.input("x", 4);
            r.layer(Some(0));
            Made { r, x }
        }

        fn weight(&self, name: &str, rows: usize) -> WeightId {
            let (name, ty) = (name.to_owned(), GgmlType::F32);
            self.r.weight(WeightSpec { name, ty, rows, cols: 4, start: 0 })
        }

        fn linear(&self, name: &str, x: ValueId, rows: usize) -> ValueId {
            self.r.linear(name, x, self.weight(name, rows)).expect("a product")
        }

        /// What experts make of `x`, by scores.
        fn experts(&self, scores: ValueId, x: ValueId) -> ValueId {
            let router = Router {
                gating: Gating::Softmax,
                bias: None,
                factors: None,
                groups: None,
                per_chunk: 1,
                n_used: 1,
                normalize: false,
                scale: 1.0,
            };
            let routes = self.r.route("routes", scores, router).expect("a choice");
            let [gate, up, down] = ["gate", "up", "down"].map(|name| self.weight(name, 8));
            let weights =
                ExpertWeights { gate, up, down, biases: None, n_experts: 2, weighs_inputs: false };
            self.r.experts("experts", weights, Gate::Act(Act::Silu), x, routes).expect("experts")
        }

        fn add(&self, name: &str, a: ValueId, b: ValueId) -> ValueId {
            self.r.add(name, a, b).expect("a sum")
        }

        /// Names in the order of a step, those beside the processor's in brackets.
        fn told(self, out: ValueId) -> String {
            let program = self.r.finish(&[(OutputKind::Rows, out)]);
            let order = BesideOrder::of(&program, |node| !is_of_experts(&program.nodes[node]));
            let name = |node: &usize| {
                let name = &program.value(program.nodes[*node].output).name;
                let name = name.strip_prefix("blk.0.").unwrap_or(name);
                if order.is_beside(*node) { format!("[{name}]") } else { name.to_owned() }
            };
            let beside = beside_experts(&program);
            assert!((0..beside.len()).all(|node| beside[node] == order.is_beside(node)));
            order.nodes().iter().map(name).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn a_shared_expert_goes_before_the_experts_wherever_it_stands() {
        let made = Made::new();
        let scores = made.linear("scores", made.x, 2);
        let experts = made.experts(scores, made.x);
        let shared = made.linear("shared", made.x, 4);
        let shared = made.r.act("act", Act::Silu, shared).expect("an activation");
        let sum = made.add("sum", experts, shared);
        assert_eq!(made.told(sum), "scores [shared] [act] routes experts sum");

        let made = Made::new();
        let shared = made.linear("shared", made.x, 4);
        let scores = made.linear("scores", made.x, 2);
        let experts = made.experts(scores, made.x);
        let sum = made.add("sum", experts, shared);
        assert_eq!(made.told(sum), "scores [shared] routes experts sum");
    }

    #[test]
    fn what_waits_or_is_waited_for_keeps_its_place() {
        // nothing to multiply by meanwhile
        let made = Made::new();
        let scores = made.linear("scores", made.x, 2);
        let twice = made.add("twice", made.x, made.x);
        let experts = made.experts(scores, made.x);
        let sum = made.add("sum", experts, twice);
        assert_eq!(made.told(sum), "scores twice routes experts sum");
        // what experts read, and what reads them
        let made = Made::new();
        let scores = made.linear("scores", made.x, 2);
        let narrow = made.linear("narrow", made.x, 4);
        let experts = made.experts(scores, narrow);
        let wide = made.linear("wide", experts, 4);
        assert_eq!(made.told(wide), "scores narrow routes experts wide");
        // experts that wait for what waits for experts
        let made = Made::new();
        let scores = made.linear("scores", made.x, 2);
        let experts = made.experts(scores, made.x);
        let between = made.linear("between", experts, 2);
        let shared = made.linear("shared", made.x, 4);
        let again = made.experts(between, experts);
        let sum = made.add("sum", again, shared);
        assert_eq!(made.told(sum), "scores routes experts between shared routes.2 experts.2 sum");
    }
}
