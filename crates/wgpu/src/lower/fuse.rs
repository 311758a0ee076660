//! What is computed together: products of one input, what finishes a product, norms of heads before they rotate and of a
//! table's rows as they are looked up; and what nobody makes, for its readers find it in its input.

use std::collections::HashMap;

use program::{CacheKind, Node, Norm, NormKind, Op, Program, Uses, ValueId, WeightId};

use crate::formats::CHUNK;
use crate::kernels::Finish;

/// Linear nodes that are one work.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    /// One; a gate and what it lets through; or several that stay what they are.
    pub(super) linears: Vec<usize>,
    pub(super) finish: Finish,
    /// Added last.
    pub(super) residual: Option<ValueId>,
    /// The value that it becomes; of several that stay what they are the first one's.
    pub(super) output: ValueId,
}

/// All fusions of a program.
#[derive(Default)]
pub(super) struct Fusions {
    /// By node at whose place they are computed.
    products: HashMap<usize, Product>,
    /// By node: whether another one's work computes it.
    absorbed: Vec<bool>,
    /// By node: the norm that attention takes over, and its input.
    head_norms: HashMap<usize, (ValueId, Norm)>,
    /// By node that adds something to what experts make.
    experts_sums: HashMap<usize, ExpertsSum>,
    /// By value that a table gives: the norm that is taken with it, and what that becomes.
    norms_of_rows: HashMap<ValueId, (Norm, ValueId)>,
    /// By node: the slice or the selection that nobody makes, for its readers find it in its input.
    in_place: HashMap<usize, InPlace>,
}

/// What experts make and what is added to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ExpertsSum {
    /// Their node.
    pub(super) experts: usize,
    pub(super) residual: ValueId,
}

/// A slice in its input, or what is selected of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct InPlace {
    pub(super) input: ValueId,
    /// Where the first group's begins.
    pub(super) start: usize,
    /// From a group's to the next one's.
    pub(super) pitch: usize,
}

/// What fusions are looked for in.
struct Search<'a> {
    program: &'a Program,
    uses: &'a Uses,
    /// By weight: how many ops read it.
    readers: Vec<usize>,
    found: Fusions,
}

impl Fusions {
    pub(super) fn find(program: &Program, uses: &Uses) -> Fusions {
        let mut readers = vec![0; program.weights.len()];
        for used in program.nodes.iter().flat_map(|node| node.op.facts().weights) {
            readers[used.id.0 as usize] += 1;
        }
        let absorbed = vec![false; program.nodes.len()];
        let found = Fusions { absorbed, ..Fusions::default() };
        let mut search = Search { program, uses, readers, found };
        search.gates();
        search.residuals();
        search.sums_of_experts();
        search.acts();
        search.joins();
        search.norms_of_heads();
        search.norms_of_rows();
        search.selections();
        search.slices();
        search.found
    }

    /// The product computed at the place of a node.
    pub(super) fn at(&self, node: usize) -> Option<&Product> {
        self.products.get(&node)
    }

    /// Whether another node's work computes this one.
    pub(super) fn is_absorbed(&self, node: usize) -> bool {
        self.absorbed[node]
    }

    /// The input and the norm of a node that attention takes over.
    pub(super) fn head_norm(&self, node: Option<usize>) -> Option<(ValueId, Norm)> {
        self.head_norms.get(&node?).copied()
    }

    /// The experts that are computed at the place of a node that adds something to them.
    pub(super) fn experts_sum(&self, node: usize) -> Option<ExpertsSum> {
        self.experts_sums.get(&node).copied()
    }

    /// The norm that is taken with the rows of a table, and the value that it becomes.
    pub(super) fn norm_of_rows(&self, rows: ValueId) -> Option<(Norm, ValueId)> {
        self.norms_of_rows.get(&rows).copied()
    }

    /// Where the slice or the selection that a node would make is in its input.
    pub(super) fn in_place(&self, node: Option<usize>) -> Option<InPlace> {
        self.in_place.get(&node?).copied()
    }
}

impl Search<'_> {
    fn add(&mut self, at: usize, product: Product) {
        for &linear in &product.linears {
            self.found.absorbed[linear] = true;
        }
        self.found.absorbed[at] = true;
        self.found.products.insert(at, product);
    }

    fn weight_of(&self, linear: usize) -> WeightId {
        match self.program.nodes[linear].op {
            Op::Linear { weight, .. } => weight,
            _ => unreachable!("a linear node was asked for"),
        }
    }

    fn rows_of(&self, linear: usize) -> usize {
        self.program.weight(self.weight_of(linear)).rows
    }

    /// The linear node that writes a value which `reader` alone reads.
    fn free_linear(&self, id: ValueId, reader: usize) -> Option<usize> {
        let root = self.uses.root(id);
        let writer = self.uses.writer(root)?;
        let is_linear = matches!(self.program.nodes[writer].op, Op::Linear { .. });
        let free = is_linear && !self.found.absorbed[writer];
        (free && self.uses.only_reader(root) == Some(reader)).then_some(writer)
    }

    /// Whether two products read the same rows and have weights of one type, which nothing else reads.
    fn alike(&self, a: usize, b: usize) -> bool {
        let input = |linear: usize| self.uses.root(self.program.nodes[linear].inputs[0]);
        let ty = |linear: usize| self.program.weight(self.weight_of(linear)).ty;
        let once = |linear: usize| self.readers[self.weight_of(linear).0 as usize] == 1;
        input(a) == input(b) && ty(a) == ty(b) && once(a) && once(b)
    }

    /// Whether a product may be some columns of a buffer: these begin where kernels can read, and nobody receives them.
    fn can_join(&self, linear: usize) -> bool {
        let output = self.program.nodes[linear].output;
        self.rows_of(linear).is_multiple_of(CHUNK) && !self.uses.is_output(output)
    }

    /// Two products of one input, one of which gates the other.
    fn gates(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            let Op::GatedAct(gate) = node.op else { continue };
            let [g, u] = [0, 1].map(|i| self.free_linear(node.inputs[i], index));
            let (Some(g), Some(u)) = (g, u) else { continue };
            if g != u && self.alike(g, u) && self.rows_of(g) == self.rows_of(u) {
                let finish = Finish::Gate(gate);
                let (linears, output) = (vec![g, u], node.output);
                self.add(index, Product { linears, finish, residual: None, output });
            }
        }
    }

    /// A product that something is added to.
    fn residuals(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            if node.op != Op::Add {
                continue;
            }
            let sides = [(1, 0), (0, 1)].into_iter();
            let mut found = sides.filter_map(|(product, other)| {
                Some((self.free_linear(node.inputs[product], index)?, node.inputs[other]))
            });
            if let Some((linear, other)) = found.next() {
                let (linears, finish, output) = (vec![linear], Finish::Plain, node.output);
                self.add(index, Product { linears, finish, residual: Some(other), output });
            }
        }
    }

    /// Experts to which something is added, where they have no biases: a kernel reads either.
    fn sums_of_experts(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            if node.op != Op::Add || self.found.absorbed[index] {
                continue;
            }
            let plain = |id: ValueId| {
                let root = self.uses.root(id);
                let writer = self.uses.writer(root)?;
                let op = &self.program.nodes[writer].op;
                let plain = matches!(op, Op::Experts { biases: None, .. });
                (plain && self.uses.only_reader(root) == Some(index)).then_some(writer)
            };
            let sides = [(1, 0), (0, 1)].into_iter();
            let mut found = sides
                .filter_map(|(side, other)| Some((plain(node.inputs[side])?, node.inputs[other])));
            if let Some((experts, residual)) = found.next() {
                self.found.absorbed[experts] = true;
                self.found.experts_sums.insert(index, ExpertsSum { experts, residual });
            }
        }
    }

    /// A product of which an activation is taken.
    fn acts(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            let Op::Act(act) = node.op else { continue };
            if let Some(linear) = self.free_linear(node.inputs[0], index) {
                let (linears, finish) = (vec![linear], Finish::Act(act));
                self.add(index, Product { linears, finish, residual: None, output: node.output });
            }
        }
    }

    /// Products of one input that stay what they are; and those that are alone.
    fn joins(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            if !matches!(node.op, Op::Linear { .. }) || self.found.absorbed[index] {
                continue;
            }
            let mut linears = vec![index];
            if self.can_join(index) {
                let readers = self.uses.readers(node.inputs[0]).iter().copied();
                linears.extend(readers.filter(|&other| {
                    let is_linear = matches!(self.program.nodes[other].op, Op::Linear { .. });
                    let free = other > index && is_linear && !self.found.absorbed[other];
                    free && self.can_join(other) && self.alike(index, other)
                }));
            }
            let finish = Finish::Plain;
            self.add(index, Product { linears, finish, residual: None, output: node.output });
        }
    }

    /// Selections that products alone read, which find the rows themselves; and what is added to products.
    fn selections(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            if node.op != Op::SelectRows {
                continue;
            }
            let is_added = |reader: usize| {
                let residual = self.found.products.get(&reader).and_then(|its| its.residual);
                residual.is_some_and(|id| self.uses.root(id) == node.output)
            };
            let by_products = self.uses.feeds_only(node.output, |reader| {
                matches!(self.program.nodes[reader].op, Op::Linear { .. }) || is_added(reader)
            });
            // products begin at whole quads, where a slice may not
            let writer = self.uses.writer(self.uses.root(node.inputs[0]));
            let of_slice = writer
                .is_some_and(|writer| matches!(self.program.nodes[writer].op, Op::Slice { .. }));
            if by_products && !of_slice {
                self.found.absorbed[index] = true;
                let pitch = self.program.value(node.output).shape.dim;
                let input = node.inputs[0];
                self.found.in_place.insert(index, InPlace { input, start: 0, pitch });
            }
        }
    }

    /// Slices whose readers can begin anywhere in a row: those of whole rows, but where products read them four numbers at
    /// a time, and those of heads that attention over latents alone reads.
    fn slices(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            let Op::Slice { start, .. } = node.op else { continue };
            let shape = self.program.value(node.inputs[0]).shape;
            let op = |reader: usize| &self.program.nodes[reader].op;
            let reads_quads =
                |reader: usize| matches!(op(reader), Op::Linear { .. } | Op::Experts { .. });
            let reads_heads = |reader: usize| {
                let inputs = &self.program.nodes[reader].inputs;
                let of_heads = inputs.iter().take(2).any(|id| self.uses.root(*id) == node.output);
                matches!(op(reader), Op::LatentAttention(_)) && of_heads
            };
            let in_place = match shape.groups {
                1 => self
                    .uses
                    .feeds_only(node.output, |reader| !reads_quads(reader) && !reads_heads(reader)),
                _ => self.uses.feeds_only(node.output, reads_heads),
            };
            if in_place {
                self.found.absorbed[index] = true;
                let (input, pitch) = (node.inputs[0], shape.dim);
                self.found.in_place.insert(index, InPlace { input, start, pitch });
            }
        }
    }

    /// RMS norms of the heads of q and of k that attention alone reads.
    fn norms_of_heads(&mut self) {
        for (index, node) in self.program.nodes.iter().enumerate() {
            let Op::Attention(at) = &node.op else { continue };
            let CacheKind::Heads { key_dim, .. } = self.program.cache(at.cache).kind else {
                continue;
            };
            let heads = node.inputs.iter().take(2);
            let norms: Vec<_> =
                heads.filter_map(|id| self.head_norm(*id, (index, key_dim))).collect();
            // a kernel takes one eps
            let eps = norms.first().map(|(_, _, norm)| norm.eps);
            for (writer, input, norm) in norms {
                if Some(norm.eps) == eps {
                    self.found.absorbed[writer] = true;
                    self.found.head_norms.insert(writer, (input, norm));
                }
            }
        }
    }

    /// RMS norms of whole rows of a table, one for each.
    fn norms_of_rows(&mut self) {
        for node in &self.program.nodes {
            if !matches!(node.op, Op::Embed { .. }) || self.uses.is_output(node.output) {
                continue;
            }
            let value = |id: ValueId| self.program.value(id).shape;
            let found = self.uses.readers(node.output).iter().find_map(|&reader| {
                let Node { op: Op::Norm(norm), inputs, output, .. } = &self.program.nodes[reader]
                else {
                    return None;
                };
                let plain = norm.kind == NormKind::Rms && norm.bias.is_none();
                let whole = value(inputs[0]) == value(node.output) && value(*output).groups == 1;
                let free = plain && whole && !self.found.absorbed[reader];
                free.then_some((reader, *norm, *output))
            });
            if let Some((reader, norm, output)) = found {
                self.found.absorbed[reader] = true;
                self.found.norms_of_rows.insert(node.output, (norm, output));
            }
        }
    }

    /// The norm that writes a value of heads which node `reader` alone reads.
    fn head_norm(
        &self,
        id: ValueId,
        (reader, key_dim): (usize, usize),
    ) -> Option<(usize, ValueId, Norm)> {
        let root = self.uses.root(id);
        let writer = self.uses.writer(root)?;
        let Node { op: Op::Norm(norm), inputs, .. } = &self.program.nodes[writer] else {
            return None;
        };
        let plain = norm.kind == NormKind::Rms && norm.bias.is_none();
        let len = |id: WeightId| {
            let spec = self.program.weight(id);
            spec.rows * spec.cols
        };
        let shared = norm.weight.is_none_or(|weight| len(weight) == key_dim);
        let of_heads = self.program.value(inputs[0]).shape.dim == key_dim;
        let alone = self.uses.only_reader(root) == Some(reader);
        (plain && shared && of_heads && alone).then_some((writer, inputs[0], *norm))
    }
}
