//! Lowering: from a program to few works.
//!
//! After rows are selected as early as can be, a layer becomes: norm | q, k, v in one product | rotation and append |
//! attention | its join | output and residual | norm | gate, up and activation in one product | down and residual. What is
//! fused is found in `lower/fuse.rs`, before works are made in the order of the program here.

mod experts;
mod fuse;
mod indexer;
mod latent;
pub(crate) mod recurrence;
mod streams;

use std::collections::HashMap;

use program::{
    Attention, CacheKind, Error, Node, Norm, Op, Program, Result, Rope, Rows, Score, Uses, ValueId,
    WeightId, alibi_slope,
};

use crate::kernels::{Finish, element, group};
use crate::plan::{
    AttentionWork, ElementWork, GpuPlan, GpuWork, GroupWork, InnerNorm, MatrixId, MatrixSpec,
    NormedRows, Place, Rotation, RowOrder, RowsSpec, ValueBuffer, VectorId, VectorSpec,
};
use fuse::{Fusions, InPlace, Product};

/// Elements of a head at most: kernels keep one in workgroup memory.
const MOST_HEAD: usize = 1024;

/// Lower `program`, whose rows are selected as early as can be.
///
/// # Errors
/// [`Error::Unsupported`] for an op or a shape that no kernel computes.
pub(crate) fn lower(program: &Program) -> Result<GpuPlan> {
    let uses = Uses::of(program);
    let fusions = Fusions::find(program, &uses);
    let mut lowering = Lowering {
        program,
        uses: &uses,
        fusions: &fusions,
        plan: GpuPlan::default(),
        places: vec![None; program.values.len()],
        for_scans: HashMap::new(),
    };
    for id in &program.inputs {
        let place = lowering.buffer_of(*id);
        lowering.places[id.0 as usize] = Some(place);
        let spec = *lowering.plan.buffer(place.buffer);
        lowering.plan.inputs.push((place, spec));
    }
    for (index, node) in program.nodes.iter().enumerate() {
        if let Some(product) = fusions.at(index) {
            lowering.product(product);
        } else if let Some(sum) = fusions.experts_sum(index) {
            lowering.experts(&program.nodes[sum.experts], Some((sum.residual, node.output)));
        } else if !fusions.is_absorbed(index) {
            lowering.node(node, &fusions)?;
        }
    }
    for (kind, id) in &program.outputs {
        let (place, shape) = (lowering.place(*id), program.value(*id).shape);
        let spec = RowsSpec { rows: shape.rows, cols: shape.cols() };
        lowering.plan.outputs.push((*kind, place, spec));
    }
    Ok(lowering.plan)
}

struct Lowering<'a> {
    program: &'a Program,
    uses: &'a Uses,
    fusions: &'a Fusions,
    plan: GpuPlan,
    /// By value that is no view.
    places: Vec<Option<Place>>,
    /// By scan: the buffer of what it alone reads.
    for_scans: HashMap<usize, ValueBuffer>,
}

impl Lowering<'_> {
    /// Where a value lies.
    fn place(&self, id: ValueId) -> Place {
        let root = self.uses.root(id);
        match self.fusions.in_place(self.uses.writer(root)) {
            Some(slice) => self.begin(slice),
            None => self.places[root.0 as usize].expect("values are written before they are read"),
        }
    }

    /// Where a slice begins in its input.
    fn begin(&self, slice: InPlace) -> Place {
        let place = self.place(slice.input);
        Place { offset: place.offset + slice.start, ..place }
    }

    fn new_buffer(&mut self, rows: Rows, cols: usize) -> Place {
        self.plan.buffers.push(RowsSpec { rows, cols });
        Place { buffer: ValueBuffer(self.plan.buffers.len() - 1), offset: 0 }
    }

    /// A buffer for a value.
    fn buffer_of(&mut self, id: ValueId) -> Place {
        let shape = self.program.value(id).shape;
        self.new_buffer(shape.rows, shape.cols())
    }

    /// The same, where the value is written.
    fn output(&mut self, id: ValueId) -> Place {
        let place = self.place_for_scan(id).unwrap_or_else(|| self.buffer_of(id));
        self.places[id.0 as usize] = Some(place);
        place
    }

    fn matrix(&mut self, spec: MatrixSpec) -> MatrixId {
        let known = self.plan.matrices.iter().position(|known| *known == spec);
        known.unwrap_or_else(|| {
            self.plan.matrices.push(spec);
            self.plan.matrices.len() - 1
        })
    }

    fn matrix_of(&mut self, weights: &[WeightId], order: RowOrder) -> MatrixId {
        let first = self.program.weight(weights[0]);
        let rows = weights.iter().map(|id| self.program.weight(*id).rows).sum();
        let (ty, cols) = (first.ty, first.cols);
        self.matrix(MatrixSpec { weights: weights.to_vec(), order, ty, rows, cols })
    }

    fn vector(&mut self, spec: VectorSpec) -> VectorId {
        let known = self.plan.vectors.iter().position(|known| *known == spec);
        known.unwrap_or_else(|| {
            self.plan.vectors.push(spec);
            self.plan.vectors.len() - 1
        })
    }

    fn weight_vector(&mut self, id: WeightId) -> VectorId {
        self.vector(VectorSpec::Weight(id))
    }

    /// Products of one input that are computed together, or one alone.
    fn product(&mut self, product: &Product) {
        let node = |index: usize| &self.program.nodes[index];
        let linear = |index: usize| match node(index).op {
            Op::Linear { weight, bias } => (weight, bias),
            _ => unreachable!("a product is of linear nodes"),
        };
        let members: Vec<_> = product.linears.iter().map(|index| linear(*index)).collect();
        let weights: Vec<_> = members.iter().map(|(weight, _)| *weight).collect();
        let x = self.place(node(product.linears[0]).inputs[0]);
        let in_turn = matches!(product.finish, Finish::Gate(_));
        let rows = |id: WeightId| self.program.weight(id).rows;
        let bias = members.iter().any(|(_, bias)| bias.is_some()).then(|| {
            let parts = members.iter().map(|(weight, bias)| (*bias, rows(*weight)));
            VectorSpec::Biases { parts: parts.collect(), in_turn }
        });
        let bias = bias.map(|bias| self.vector(bias));
        let residual = product.residual.map(|id| self.place(id));
        let out = match product.linears[..] {
            [_, _, ..] if !in_turn => {
                // one buffer for all, each at a column of its own
                let kind = self.program.value(node(product.linears[0]).output).shape.rows;
                let cols = weights.iter().map(|id| rows(*id)).sum();
                let joined = self.new_buffer(kind, cols);
                let mut offset = 0;
                for (index, weight) in product.linears.iter().zip(&weights) {
                    let output = self.program.nodes[*index].output;
                    self.places[output.0 as usize] = Some(Place { offset, ..joined });
                    offset += self.program.weight(*weight).rows;
                }
                joined
            }
            _ => self.output(product.output),
        };
        let order = if in_turn { RowOrder::InTurn } else { RowOrder::AsTheyAre };
        let matrix = self.matrix_of(&weights, order);
        let finish = product.finish;
        self.plan.works.push(GpuWork::Linear { matrix, bias, finish, x, residual, out });
    }

    fn node(&mut self, node: &Node, fusions: &Fusions) -> Result<()> {
        let shape = |i: usize| self.program.value(node.inputs[i]).shape;
        let cols = self.program.value(node.output).shape.cols();
        match &node.op {
            Op::View => {}
            Op::Embed { table, by } => {
                let table = self.matrix_of(&[*table], RowOrder::AsTheyAre);
                let (by, out) = (*by, self.output(node.output));
                let normed = fusions.norm_of_rows(node.output).map(|(norm, output)| {
                    let weight = norm.weight.map(|weight| self.weight_vector(weight));
                    let norm = InnerNorm { weight, eps: norm.eps };
                    NormedRows { norm, out: self.output(output) }
                });
                self.plan.works.push(GpuWork::Embed { table, by, out, normed });
            }
            Op::Norm(norm) => {
                let shape = shape(0);
                self.norm(node, norm, [shape.groups, shape.dim]);
            }
            Op::Linear { .. } => unreachable!("products are made apart"),
            Op::Attention(at) => self.attention(node, at, fusions)?,
            Op::Act(act) => self.elements(node, element::ACT, Finish::Act(*act), [0; 3], 0.0),
            Op::GatedAct(gate) => {
                let each = shape(1).cols() / shape(0).cols();
                self.elements(node, element::GATE, Finish::Gate(*gate), [each, 0, 0], 0.0);
            }
            Op::Add => self.plain(node, element::ADD, [0; 3]),
            Op::Scale(factor) => {
                self.elements(node, element::SCALE, Finish::Plain, [0; 3], *factor);
            }
            Op::Multiply { weight, by_group } => {
                let each = if *by_group { shape(0).dim } else { 1 };
                let spec = self.program.weight(*weight);
                let sizes = [0, each, spec.rows * spec.cols];
                let vector = self.weight_vector(*weight);
                self.plain(node, element::MULTIPLY, sizes);
                if let Some(GpuWork::Elements(work)) = self.plan.works.last_mut() {
                    work.vector = Some(vector);
                }
            }
            Op::Slice { start, len } => {
                let sizes = [*start, *len, shape(0).dim];
                self.plain(node, element::SLICE, sizes);
            }
            Op::Concat => {
                let out = self.output(node.output);
                let mut offset = 0;
                for (i, id) in node.inputs.iter().enumerate() {
                    let cols = shape(i).cols();
                    let to = Place { offset, ..out };
                    let a = self.place(*id);
                    self.push_elements(element::COPY, a, None, to, cols);
                    offset += cols;
                }
            }
            Op::Mix => self.plain(node, element::MIX, [shape(1).groups, shape(1).dim, 0]),
            Op::Resize => {
                let b = Some(self.place(node.inputs[1]));
                self.groups(node, group::RESIZE, b, 0.0);
            }
            Op::Excess { deviations } => self.groups(node, group::EXCESS, None, *deviations),
            Op::SumGroups => self.plain(node, element::SUM, [shape(0).dim, 0, 0]),
            Op::SelectRows => {
                let a = self.place(node.inputs[0]);
                let out = self.output(node.output);
                self.push_elements(element::SELECT, a, None, out, cols);
            }
            Op::MeanRows => {
                let a = self.place(node.inputs[0]);
                let out = self.output(node.output);
                self.push_elements(element::MEAN, a, None, out, cols);
            }
            Op::Route(router) => self.route(node, router)?,
            Op::Experts { .. } => self.experts(node, None),
            Op::LatentAttention(at) => self.latent_attention(node, at)?,
            Op::CausalConv(conv) => self.conv(node, conv),
            Op::Scan(scan) => self.scan(node, scan)?,
            Op::Indexer(at) => self.indexer(node, at)?,
            Op::Shift(number) => {
                self.elements(node, element::SHIFT, Finish::Plain, [0; 3], *number);
            }
            Op::SignedRoot { least } => {
                self.elements(node, element::SIGNED_ROOT, Finish::Plain, [0; 3], *least);
            }
            Op::Turn => self.plain(node, element::TURN, [shape(0).groups, shape(0).dim, 0]),
            Op::Softmax => self.groups(node, group::SOFTMAX, None, 0.0),
            Op::Sinkhorn { rounds, eps } => self.balance(node, *rounds, *eps)?,
            Op::Ids => {
                let out = self.output(node.output);
                self.plan.works.push(GpuWork::Ids { out });
            }
            Op::Grams { table, grams } => self.grams(node, *table, grams),
        }
        Ok(())
    }

    fn push_elements(
        &mut self,
        value: &'static str,
        a: Place,
        b: Option<Place>,
        out: Place,
        cols: usize,
    ) {
        self.plan.works.push(GpuWork::Elements(ElementWork {
            value,
            finish: Finish::Plain,
            a,
            b,
            out,
            cols,
            sizes: [0; 3],
            vector: None,
            factor: 0.0,
        }));
    }

    fn plain(&mut self, node: &Node, value: &'static str, sizes: [usize; 3]) {
        self.elements(node, value, Finish::Plain, sizes, 0.0);
    }

    fn elements(
        &mut self,
        node: &Node,
        value: &'static str,
        finish: Finish,
        sizes: [usize; 3],
        factor: f32,
    ) {
        let a = self.place(node.inputs[0]);
        let b = node.inputs.get(1).map(|id| self.place(*id));
        let cols = self.program.value(node.output).shape.cols();
        let out = self.output(node.output);
        let vector = None;
        let work = ElementWork { value, finish, a, b, out, cols, sizes, vector, factor };
        self.plan.works.push(GpuWork::Elements(work));
    }

    fn groups(&mut self, node: &Node, body: &'static str, b: Option<Place>, number: f32) {
        let shape = self.program.value(node.inputs[0]).shape;
        let a = self.place(node.inputs[0]);
        let out = self.output(node.output);
        self.plan.works.push(GpuWork::Groups(GroupWork {
            body,
            a,
            b,
            out,
            groups: shape.groups,
            dim: shape.dim,
            weight: None,
            bias: None,
            number,
        }));
    }

    fn norm(&mut self, node: &Node, norm: &Norm, [groups, dim]: [usize; 2]) {
        let program = self.program;
        let mut vector = |id: Option<WeightId>| {
            let id = id?;
            let spec = program.weight(id);
            // one vector for all groups or one for each
            let step = if spec.rows * spec.cols == groups * dim { dim } else { 0 };
            Some((self.weight_vector(id), step))
        };
        let (weight, bias) = (vector(norm.weight), vector(norm.bias));
        self.groups(node, group::norm(norm.kind), None, norm.eps);
        if let Some(GpuWork::Groups(work)) = self.plan.works.last_mut() {
            (work.weight, work.bias) = (weight, bias);
        }
    }

    fn attention(&mut self, node: &Node, at: &Attention, fusions: &Fusions) -> Result<()> {
        let CacheKind::Heads { n_kv_heads, key_dim, value_dim, .. } =
            self.program.cache(at.cache).kind
        else {
            unreachable!("the recorder gave attention a cache of heads")
        };
        if key_dim.max(value_dim) > MOST_HEAD {
            return Err(Error::Unsupported(format!(
                "attention with keys of {key_dim} and values of {value_dim} numbers on a GPU: at most {MOST_HEAD}"
            )));
        }
        let n_heads = self.program.value(node.inputs[0]).shape.groups;
        // a norm that attention takes over is read through
        let mut norms = [None; 4];
        let mut operand = |lowering: &mut Self, i: usize| {
            let root = lowering.uses.root(node.inputs[i]);
            match fusions.head_norm(lowering.uses.writer(root)) {
                Some((input, Norm { weight, eps, .. })) => {
                    let weight = weight.map(|id| lowering.weight_vector(id));
                    norms[i] = Some(InnerNorm { weight, eps });
                    lowering.place(input)
                }
                None => lowering.place(root),
            }
        };
        let q = operand(self, 0);
        let kv = at.appends.then(|| [operand(self, 1), self.place(node.inputs[2])]);
        if let Some(norm) = at.norm {
            let [q, k] = [norm.q, norm.k].map(|id| id.map(|id| self.weight_vector(id)));
            norms[2] = Some(InnerNorm { weight: q, eps: norm.eps });
            norms[3] = Some(InnerNorm { weight: k, eps: norm.eps });
        }
        let rotation = at.rope.as_ref().map(|rope| self.rotation(rope, 0));
        let temperature = self.temperature(&at.score);
        let slopes = self.slopes(&at.score, n_heads);
        let sinks = at.score.sinks.map(|id| self.weight_vector(id));
        let chosen = self.chosen(node, at.select);
        let out = self.output(node.output);
        self.plan.works.push(GpuWork::Attention(Box::new(AttentionWork {
            cache: at.cache.0 as usize,
            n_heads,
            n_kv_heads,
            key_dim,
            value_dim,
            q,
            latents: None,
            kv,
            rotation,
            interleaved: at
                .rope
                .as_ref()
                .is_some_and(|rope| rope.pairs == program::RopePairs::Interleaved),
            rotated: at.rope.as_ref().map_or(0, |rope| rope.dims),
            temperature,
            norms,
            score: at.score.clone(),
            slopes,
            sinks,
            chosen,
            out,
        })));
        Ok(())
    }

    /// The rotation of rows that stand so many positions before their own.
    fn rotation(&mut self, rope: &Rope, back: u32) -> usize {
        index_of(&mut self.plan.rotations, &Rotation { rope: rope.clone(), back })
    }

    fn temperature(&mut self, score: &Score) -> Option<usize> {
        score.temperature.as_ref().map(|t| index_of(&mut self.plan.temperatures, t))
    }

    /// What ALiBi takes of the scores of each head.
    fn slopes(&mut self, score: &Score, n_heads: usize) -> Option<VectorId> {
        score.alibi.map(|most| {
            let slope = |head| alibi_slope(head, n_heads, most) as f32;
            self.vector(VectorSpec::Numbers((0..n_heads).map(slope).collect()))
        })
    }
}

/// The index of a thing in a list, which gains it if it is new.
fn index_of<T: Clone + PartialEq>(list: &mut Vec<T>, thing: &T) -> usize {
    list.iter().position(|known| known == thing).unwrap_or_else(|| {
        list.push(thing.clone());
        list.len() - 1
    })
}
