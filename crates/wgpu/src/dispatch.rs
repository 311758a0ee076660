//! Dispatches: a plan's works with their shaders, constants and bindings, made once when a program is loaded.

mod experts;
mod latent;

use std::sync::OnceLock;

use program::{Lookup, Mask, OutputKind, Result, Rows};

use crate::adapter::Gpu;
use crate::batch::{Batch, tiles_of_head};
use crate::formats::DeviceFormat;
use crate::kernels::{
    ATTEND, BEST, COMBINE, EMBED, Finish, GROUPS, HeadWidths, KEYS, MATMAT_TILE, MATVEC,
    MATVEC_TILE, ROWS, Shader, ShaderKernel, Stored, StoredTypes, lists,
};
use crate::plan::{
    AttentionWork, ElementWork, GpuPlan, GpuWork, GroupWork, HeadNorm, Place, ValueBuffer, VectorId,
};
use crate::weights::DeviceWeights;

/// Bytes from the constants of a dispatch to the next one's: what every device takes as an offset.
pub(crate) const CONSTS: usize = 256;
/// What a kernel takes for "there is none".
const NONE: u32 = u32::MAX;
/// Workgroups in one direction at most.
const MOST_GROUPS: usize = 65_535;

/// What a binding is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// A plane of a part of a matrix.
    Plane {
        matrix: usize,
        part: usize,
        plane: usize,
    },
    Vectors,
    Buffer(ValueBuffer),
    /// Rotated queries.
    Queries,
    /// The blocks of a cache.
    Blocks(usize),
    /// What workgroups found of attention.
    Partials,
    /// The likeliest tokens of each stretch of logits.
    Found,
    /// Those of all stretches.
    Best,
    /// Nothing that is read.
    Nothing,
}

/// How many workgroups there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grid {
    /// Products of some rows of a matrix.
    Linear {
        weight_rows: usize,
        rows: Rows,
    },
    /// One for so many elements of a row, in one direction, and one for each row in the other.
    Elements {
        cols: usize,
        each: usize,
        rows: Rows,
    },
    Attend {
        n_kv_heads: usize,
        group: usize,
    },
    Combine {
        n_heads: usize,
    },
    /// Some for each slot of a row, or of a few rows.
    Pieces {
        tiles: usize,
        slots: usize,
        rows: Rows,
        /// Whether rows have pieces of their own.
        alone: bool,
    },
    /// One for each list of tokens of a row.
    Best {
        lists: usize,
    },
}

/// Which shaders there are.
#[derive(Clone, Debug)]
enum Choice {
    One(Shader),
    Linear { format: &'static DeviceFormat },
    Pieces { format: &'static DeviceFormat },
    Keys,
    Latents,
    Attend(HeadWidths),
}

/// How many variants a dispatch has at most.
const VARIANTS: usize = 4;
/// Rows of activations that `matvec` takes at once, and up to how many rows it is taken; by variant, after which comes
/// `matmat`.
const FEW_ROWS: [(usize, usize); 2] = [(1, 1), (4, 8)];

/// One dispatch.
pub(crate) struct Dispatch {
    pub(crate) kernel: &'static ShaderKernel,
    /// What it writes, for those who look for its place in the program.
    pub(crate) out: ValueBuffer,
    choice: Choice,
    grid: Grid,
    pub(crate) bound: Vec<Bound>,
    consts: Vec<u32>,
    pipelines: [OnceLock<wgpu::ComputePipeline>; VARIANTS],
}

/// A dispatch in a step.
pub(crate) struct Launch {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) groups: [u32; 3],
}

impl Dispatch {
    /// The pipeline and the workgroups for a step; `None` if there is nothing to compute.
    ///
    /// # Errors
    /// [`program::Error::Device`] if a shader cannot be made.
    pub(crate) fn launch(
        &self,
        gpu: &Gpu,
        batch: &Batch,
        kept: StoredTypes,
    ) -> Result<Option<Launch>> {
        let (variant, groups) = match self.grid {
            Grid::Linear { weight_rows, rows } => {
                let n = batch.count(rows);
                match FEW_ROWS.iter().position(|(_, most)| n <= *most) {
                    Some(variant) => {
                        let [x, y, _] = folded(weight_rows.div_ceil(MATVEC_TILE));
                        (variant, [x, y, n.div_ceil(FEW_ROWS[variant].0)])
                    }
                    None => {
                        let tiles = [weight_rows, n].map(|rows| rows.div_ceil(MATMAT_TILE));
                        (FEW_ROWS.len(), [tiles[0], tiles[1], 1])
                    }
                }
            }
            Grid::Elements { cols, each, rows } => {
                let keeps = matches!(self.choice, Choice::Keys | Choice::Latents);
                let variant = if keeps { kept_variant(kept) } else { 0 };
                (variant, [cols.div_ceil(each), batch.count(rows), 1])
            }
            Grid::Attend { n_kv_heads, group } => {
                let heads = n_kv_heads * tiles_of_head(group, batch.by_row);
                (kept_variant(kept), [batch.n_tiles, heads, batch.n_splits])
            }
            Grid::Combine { n_heads } => {
                let rows = if batch.n_splits > 1 { batch.n_tokens } else { 0 };
                (0, [n_heads, rows, 1])
            }
            Grid::Pieces { tiles, slots, rows, alone } => {
                let n = batch.count(rows);
                let variant = usize::from(!alone && n > 1);
                (variant, [tiles, n.div_ceil(FEW_ROWS[variant].0), slots])
            }
            Grid::Best { lists } => {
                let rows = if batch.n_best > 0 { batch.n_selected } else { 0 };
                (0, [lists, rows, 1])
            }
        };
        if groups.contains(&0) {
            return Ok(None);
        }
        if groups.iter().any(|n| *n > MOST_GROUPS) {
            return Err(gpu.error(&format!(
                "a step of {} rows makes {groups:?} workgroups, at most {MOST_GROUPS} in a direction",
                batch.n_tokens
            )));
        }
        let pipeline = match self.pipelines[variant].get() {
            Some(made) => made.clone(),
            None => {
                let made = gpu.pipeline(&self.shader(variant, kept))?;
                self.pipelines[variant].get_or_init(|| made).clone()
            }
        };
        Ok(Some(Launch { pipeline, groups: groups.map(|n| n as u32) }))
    }

    fn shader(&self, variant: usize, kept: StoredTypes) -> Shader {
        match &self.choice {
            Choice::One(shader) => shader.clone(),
            Choice::Linear { format } => match FEW_ROWS.get(variant) {
                Some(&(at_once, _)) => Shader::matvec(format, at_once),
                None => Shader::matmat(format),
            },
            Choice::Pieces { format } => Shader::pieces(format, FEW_ROWS[variant].0),
            Choice::Keys => Shader::keys(kept),
            Choice::Latents => Shader::latents(kept),
            Choice::Attend(widths) => Shader::attend(kept, *widths),
        }
    }
}

fn kept_variant(kept: StoredTypes) -> usize {
    usize::from(kept.keys == Stored::F16) + 2 * usize::from(kept.values == Stored::F16)
}

/// Workgroups in two directions, where one has no room for them.
fn folded(groups: usize) -> [usize; 3] {
    let lines = groups.div_ceil(MOST_GROUPS).max(1);
    [groups.div_ceil(lines), lines, 1]
}

/// Logits of which a workgroup finds the likeliest.
const STRETCH: usize = 2048;

/// Stretches of a row of so many logits.
pub(crate) fn stretches(cols: usize) -> usize {
    cols.div_ceil(STRETCH)
}

/// Where the logits of selected rows lie, and how many a row has; `None` if all rows have some: what is wanted of these
/// the host takes.
pub(crate) fn logits(plan: &GpuPlan) -> Option<(Place, usize)> {
    let (_, place, spec) = plan.output(OutputKind::Logits)?;
    (spec.rows == Rows::Selected).then_some((*place, spec.cols))
}

/// All dispatches of a plan.
pub(crate) fn dispatches(plan: &GpuPlan, weights: &DeviceWeights) -> Vec<Dispatch> {
    let mut maker = Maker { plan, weights, made: Vec::new() };
    plan.works.iter().for_each(|work| maker.work(work));
    maker.best();
    maker.made
}

/// The constants of dispatches, each at a multiple of [`CONSTS`] bytes.
pub(crate) fn constants(dispatches: &[Dispatch]) -> Vec<u32> {
    let padded = dispatches.iter().flat_map(|dispatch| {
        let rest = CONSTS / 4 - dispatch.consts.len();
        dispatch.consts.iter().copied().chain(std::iter::repeat_n(0, rest))
    });
    padded.collect()
}

struct Maker<'a> {
    plan: &'a GpuPlan,
    weights: &'a DeviceWeights,
    made: Vec<Dispatch>,
}

impl Maker<'_> {
    fn stride(&self, place: Place) -> u32 {
        self.plan.buffer(place.buffer).stride() as u32
    }

    fn rows(&self, place: Place) -> Rows {
        self.plan.buffer(place.buffer).rows
    }

    /// Where a place begins in a row, and from a row to the next one.
    fn at(&self, place: Place) -> [u32; 2] {
        [place.offset as u32, self.stride(place)]
    }

    fn maybe_at(&self, place: Option<Place>) -> [u32; 2] {
        place.map_or([NONE, 0], |place| self.at(place))
    }

    fn vector(&self, id: Option<VectorId>) -> u32 {
        id.map_or(NONE, |id| self.weights.starts[id] as u32)
    }

    fn push(
        &mut self,
        (kernel, choice, grid): (&'static ShaderKernel, Choice, Grid),
        out: ValueBuffer,
        bound: Vec<Bound>,
        consts: Vec<u32>,
    ) {
        assert_eq!(consts.len(), kernel.n_consts(), "{}: constants", kernel.name);
        assert_eq!(bound.len() as u32, kernel.reads + kernel.writes, "{}: bindings", kernel.name);
        let pipelines = Default::default();
        self.made.push(Dispatch { kernel, out, choice, grid, bound, consts, pipelines });
    }

    fn work(&mut self, work: &GpuWork) {
        match work {
            GpuWork::Embed { table, by, out } => self.embed(*table, *by, *out),
            GpuWork::Linear { matrix, bias, finish, x, residual, out } => {
                self.linear((*matrix, *bias, *finish), *x, *residual, *out);
            }
            GpuWork::Elements(work) => self.elements(work),
            GpuWork::Groups(work) => self.groups(work),
            GpuWork::Attention(work) => self.attention(work),
            GpuWork::Route(work) => self.route(work),
            GpuWork::Pieces(work) => self.pieces(work),
            GpuWork::Turned(work) => self.turned(work),
            GpuWork::Mixed(work) => self.mixed(work),
        }
    }

    /// What is said of a part of a matrix, and its planes.
    fn part(&self, matrix: usize, part: usize) -> ([u32; 6], [Bound; 3]) {
        let its = &self.weights.matrices[matrix];
        let words = its.format.row_words(its.cols);
        let at = &its.parts[part];
        let consts = [at.rows, words.chunks, at.first, words.factors, at.s_base, words.scales]
            .map(|x| x as u32);
        (consts, [0, 1, 2].map(|plane| Bound::Plane { matrix, part, plane }))
    }

    /// The likeliest tokens, where steps want no more than these.
    fn best(&mut self) {
        let Some((place, cols)) = logits(self.plan) else { return };
        let stretches = stretches(cols);
        let consts = |lists: usize| {
            let sizes = [STRETCH, stretches, lists].map(|n| n as u32);
            [&[cols as u32][..], &self.at(place), &sizes].concat()
        };
        let consts = [stretches, 1].map(consts);
        let bound =
            [vec![Bound::Buffer(place.buffer), Bound::Found], vec![Bound::Found, Bound::Best]];
        let bodies = [lists::STRETCHES, lists::FOUND];
        for (((body, lists), bound), consts) in
            bodies.into_iter().zip([stretches, 1]).zip(bound).zip(consts)
        {
            let choice = Choice::One(Shader::best(body));
            self.push((&BEST, choice, Grid::Best { lists }), place.buffer, bound, consts);
        }
    }

    fn embed(&mut self, table: usize, by: Lookup, out: Place) {
        let its = &self.weights.matrices[table];
        let shader = Shader::embed(its.format);
        let units = 2 * its.format.row_words(its.cols).chunks;
        let list = match by {
            Lookup::Token => 2,
            Lookup::Position => 3,
            Lookup::Only => NONE,
        };
        for part in 0..its.parts.len() {
            let (consts, planes) = self.part(table, part);
            let consts = [&consts[..], &[list], &self.at(out)].concat();
            let bound = [&planes[..], &[Bound::Buffer(out.buffer)]].concat();
            let grid = Grid::Elements { cols: units, each: 64, rows: self.rows(out) };
            self.push((&EMBED, Choice::One(shader.clone()), grid), out.buffer, bound, consts);
        }
    }

    fn linear(
        &mut self,
        (matrix, bias, finish): (usize, Option<VectorId>, Finish),
        x: Place,
        residual: Option<Place>,
        out: Place,
    ) {
        let its = &self.weights.matrices[matrix];
        let choice = Choice::Linear { format: its.format };
        let counted = match self.rows(x) {
            Rows::Tokens => 0,
            Rows::Selected => 1,
        };
        for part in 0..its.parts.len() {
            let (consts, planes) = self.part(matrix, part);
            let consts = [
                &consts[..],
                &[counted],
                &self.at(x),
                &[self.vector(bias)],
                &self.maybe_at(residual),
                &self.at(out),
                &finish.words(),
            ]
            .concat();
            let residual = residual.map_or(Bound::Nothing, |place| Bound::Buffer(place.buffer));
            let more =
                [Bound::Vectors, Bound::Buffer(x.buffer), residual, Bound::Buffer(out.buffer)];
            let bound = [&planes[..], &more].concat();
            let weight_rows = self.weights.matrices[matrix].parts[part].rows;
            let grid = Grid::Linear { weight_rows, rows: self.rows(x) };
            self.push((&MATVEC, choice.clone(), grid), out.buffer, bound, consts);
        }
    }

    fn elements(&mut self, work: &ElementWork) {
        let ElementWork { value, finish, a, b, out, cols, sizes, vector, factor } = work;
        let [p, q, r] = sizes.map(|x| x as u32);
        let p = vector.map_or(p, |id| self.vector(Some(id)));
        let consts = [
            &[*cols as u32][..],
            &self.at(*a),
            &self.maybe_at(*b),
            &self.at(*out),
            &[p, q, r, factor.to_bits()],
            &finish.words(),
        ]
        .concat();
        let b = b.map_or(Bound::Nothing, |place| Bound::Buffer(place.buffer));
        let bound = vec![Bound::Vectors, Bound::Buffer(a.buffer), b, Bound::Buffer(out.buffer)];
        let grid = Grid::Elements { cols: *cols, each: 64, rows: self.rows(*out) };
        let choice = Choice::One(Shader::rows(value));
        self.push((&ROWS, choice, grid), out.buffer, bound, consts);
    }

    fn groups(&mut self, work: &GroupWork) {
        let GroupWork { body, a, b, out, groups, dim, weight, bias, number } = work;
        let vector = |vector: &Option<(VectorId, usize)>| match vector {
            Some((id, step)) => [self.vector(Some(*id)), *step as u32],
            None => [NONE, 0],
        };
        let consts = [
            &[*dim as u32][..],
            &self.at(*a),
            &self.maybe_at(*b),
            &self.at(*out),
            &vector(weight),
            &vector(bias),
            &[number.to_bits()],
        ]
        .concat();
        let b = b.map_or(Bound::Nothing, |place| Bound::Buffer(place.buffer));
        let bound = vec![Bound::Vectors, Bound::Buffer(a.buffer), b, Bound::Buffer(out.buffer)];
        let grid = Grid::Elements { cols: *groups, each: 1, rows: self.rows(*out) };
        self.push((&GROUPS, Choice::One(Shader::groups(body)), grid), out.buffer, bound, consts);
    }

    fn attention(&mut self, work: &AttentionWork) {
        let (n_heads, n_kv_heads) = (work.n_heads, work.n_kv_heads);
        let [key_quads, value_quads] = [work.key_dim, work.value_dim].map(|dim| dim.div_ceil(4));
        let q_stride = query_stride(work) as u32;
        match &work.latents {
            Some(latents) => self.latents(work, latents, q_stride),
            None => self.keys(work, q_stride),
        }
        let (mask, reach) = match work.score.mask {
            Mask::Causal => (0, 0),
            Mask::Window(n) => (1, n),
            Mask::Chunk(n) => (2, n),
            Mask::Full => (3, 0),
            Mask::Around(n) => (4, n),
        };
        let out = work.out;
        let consts = [
            &[n_heads as u32, n_kv_heads as u32, mask, reach][..],
            &[work.score.softcap.unwrap_or(0.0).to_bits()],
            &[self.vector(work.slopes), self.vector(work.sinks)],
            &[work.cache as u32, work.value_dim as u32, q_stride],
            &self.at(out),
        ]
        .concat();
        let bound = vec![
            Bound::Vectors,
            Bound::Queries,
            Bound::Blocks(work.cache),
            Bound::Buffer(out.buffer),
            Bound::Partials,
        ];
        let grid = Grid::Attend { n_kv_heads, group: n_heads / n_kv_heads };
        let are_latents = work.latents.is_some();
        let choice = Choice::Attend(HeadWidths { key_quads, value_quads, are_latents });
        self.push((&ATTEND, choice, grid), out.buffer, bound, consts);
        let consts = [
            &[n_heads, value_quads, work.value_dim].map(|x| x as u32)[..],
            &[self.vector(work.sinks)],
            &self.at(out),
        ]
        .concat();
        let bound = vec![Bound::Vectors, Bound::Partials, Bound::Buffer(out.buffer)];
        let grid = Grid::Combine { n_heads };
        self.push((&COMBINE, Choice::One(Shader::combine()), grid), out.buffer, bound, consts);
    }

    /// Which words of a step say where the angles of a rotation are, and factors of queries.
    fn row_numbers(&self, work: &AttentionWork) -> (u32, u32) {
        let header = 16;
        let angles = work.rotation.map_or(NONE, |i| header + i as u32);
        let after = header + self.plan.rotations.len() as u32;
        (angles, work.temperature.map_or(NONE, |i| after + i as u32))
    }

    fn keys(&mut self, work: &AttentionWork, q_stride: u32) {
        let (angles, temperature) = self.row_numbers(work);
        let [k, v] = work.kv.map_or([None; 2], |kv| kv.map(Some));
        // in the order of the bits: q before, q behind, k before, k behind
        let [q_before, k_before, q_behind, k_behind] = work.norms;
        let ordered = [q_before, q_behind, k_before, k_behind];
        let bits = (ordered.iter().enumerate()).map(|(i, norm)| u32::from(norm.is_some()) << i);
        let vector = |norm: Option<HeadNorm>| self.vector(norm.and_then(|norm| norm.weight));
        let eps = |pair: [Option<HeadNorm>; 2]| {
            pair.into_iter().flatten().next().map_or(0, |norm| norm.eps.to_bits())
        };
        let sizes = [work.n_heads, work.n_kv_heads, work.key_dim, work.value_dim, work.rotated];
        let consts = [
            &sizes.map(|x| x as u32)[..],
            &[u32::from(work.interleaved), angles, temperature],
            &[work.score.scale.to_bits(), work.cache as u32],
            &self.at(work.q),
            &self.maybe_at(k),
            &self.maybe_at(v),
            &[q_stride, bits.sum()],
            &[vector(q_before), vector(k_before), eps([q_before, k_before])],
            &[vector(q_behind), vector(k_behind), eps([q_behind, k_behind])],
        ]
        .concat();
        let buffer =
            |place: Option<Place>| place.map_or(Bound::Nothing, |p| Bound::Buffer(p.buffer));
        let bound = vec![
            Bound::Vectors,
            Bound::Buffer(work.q.buffer),
            buffer(k),
            buffer(v),
            Bound::Queries,
            Bound::Blocks(work.cache),
        ];
        let appended = if work.kv.is_some() { 2 * work.n_kv_heads } else { 0 };
        let grid = Grid::Elements { cols: work.n_heads + appended, each: 1, rows: Rows::Tokens };
        self.push((&KEYS, Choice::Keys, grid), work.out.buffer, bound, consts);
    }
}

/// Numbers of the rotated queries of a row.
pub(crate) fn query_stride(work: &AttentionWork) -> usize {
    work.n_heads * work.key_dim.next_multiple_of(4)
}
