//! Lowering of experts: their norm, their router and the sums after them go into one phase.

use program::{Gate, Node, Op, Result};

use super::Lowering;
use super::act::{gated, unary};
use crate::plan::{ExpertsPhase, Routes};

impl Lowering<'_> {
    /// Whether experts alone read the routes that this node writes; they then route on their own.
    pub(super) fn feeds_only_experts(&self, node: &Node) -> bool {
        let uses = &self.uses;
        let rows = |reader: &usize| uses.root(self.program.nodes[*reader].inputs[0]) == node.output;
        self.feeds_only(node, |op| matches!(op, Op::Experts { .. }))
            && !uses.readers(node.output).iter().any(rows)
    }

    pub(super) fn experts(&mut self, node: &Node) -> Result<ExpertsPhase> {
        let &Op::Experts { gate, up, down, biases, act, weighs_inputs, n_experts, n_used } =
            &node.op
        else {
            unreachable!("`node` matched the op")
        };
        let alone = match act {
            Gate::Alone(act) => Some(unary(act)),
            _ => None,
        };
        let act = gated(act);
        let (x, norm) = self.normed(self.uses.root(node.inputs[0]));
        let source = self.uses.root(node.inputs[1]);
        let routes = self.operand(source);
        let routes = match self.writer(source) {
            Some(route @ Node { op: Op::Route(router), .. }) if self.feeds_only_experts(route) => {
                let scores = self.operand(route.inputs[0]);
                Routes::Scores { scores, router: router.clone(), routes }
            }
            _ => Routes::Given(routes),
        };
        let (links, out) = self.links(node.output);
        let out = self.operand(out);
        Ok(ExpertsPhase {
            x,
            norm,
            routes,
            gate,
            up,
            down,
            biases,
            act,
            alone,
            weighs_inputs,
            n_experts,
            n_used,
            links,
            out,
        })
    }
}
