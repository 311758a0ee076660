//! Dispatches: a plan's works with their shaders, constants and bindings, made once when a program is loaded.

mod attention;
mod best;
mod embed;
mod experts;
mod indexer;
mod latent;
mod linear;
mod recurrence;
mod streams;

use std::sync::OnceLock;

use program::{Result, Rows};

use crate::backend::Handle;
use crate::batch::{Batch, tiles_of_head};
use crate::caches::BLOCK;
use crate::device::Gpu;
use crate::formats::{CHUNK, DeviceFormat};
use crate::kernels::{
    Abilities, GROUPS, HeadWidths, MATMAT_TILE, ROWS, Shader, ShaderKernel, Shapes, Stored,
    StoredTypes, TeamShape, WIDE_TILE,
};
use crate::plan::{Crowd, ElementWork, GpuPlan, GpuWork, GroupWork, Place, ValueBuffer, VectorId};
use crate::weights::DeviceWeights;

pub(crate) use attention::query_stride;
pub(crate) use best::{joins_found, logits, stretches};

/// Bytes from the constants of a dispatch to the next one's: what every device takes as an offset.
pub(crate) const CONSTS: usize = 256;
/// What a kernel takes for "there is none".
pub(crate) const NONE: u32 = u32::MAX;
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
    /// What indexers make of positions and units.
    Scores,
    /// Which units rows chose.
    Marks,
    /// The likeliest tokens of each stretch of logits.
    Found,
    /// Those of all stretches.
    Best,
    /// Rows of activations as larger tiles take them.
    Rounded,
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
    /// The same in larger tiles.
    Wide {
        weight_rows: usize,
        rows: Rows,
    },
    /// One for each row that larger tiles take.
    Rounded {
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
    /// One for each block of the past and each row, where any is beyond this position.
    Scores {
        limit: usize,
    },
    /// Some for each slot of a row.
    Slots {
        tiles: usize,
        slots: usize,
        rows: Rows,
    },
    /// Products for each slot of a row, or of a few rows.
    Pieces {
        weight_rows: usize,
        slots: usize,
        rows: Rows,
        /// Whether rows have pieces of their own.
        alone: bool,
    },
    /// Some for each tile of the rows that experts have.
    Grouped {
        tiles: usize,
        crowd: Crowd,
        rows: Rows,
    },
    /// Some for each sequence.
    Scan {
        groups: usize,
    },
    /// One.
    Once,
    /// One for each list of tokens of a row.
    Best {
        lists: usize,
    },
    /// One for a row whose lists are joined.
    Joined,
    /// One for so many logits that are told.
    Told,
}

/// Which shaders there are.
#[derive(Clone, Debug)]
enum Choice {
    One(Shader),
    /// In such shapes, by variant, of a matrix with so many chunks in a row.
    Linear(&'static DeviceFormat, TeamShapes, usize),
    Pieces(&'static DeviceFormat, TeamShapes, usize),
    /// If products are in larger tiles: what these take, and they themselves.
    Rounded(&'static DeviceFormat, TeamShapes, usize),
    Wide(&'static DeviceFormat, TeamShapes),
    Grouped(&'static DeviceFormat, TeamShapes),
    Keys,
    Latents,
    IndexKeys,
    IndexScores,
    Attend(HeadWidths),
}

/// In which steps there is a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// In those of few such rows for a crowd of experts.
    Few(Crowd, Rows),
    /// In those of many.
    Many(Crowd, Rows),
    /// In those of which a token or a position, by the word that their list has, is one of these rows of a table.
    Looked {
        list: u32,
        first: u32,
        end: u32,
    },
}

impl When {
    fn is_now(self, batch: &Batch) -> bool {
        match self {
            When::Always => true,
            When::Few(crowd, rows) => !crowd.is_many(batch.count(rows)),
            When::Many(crowd, rows) => crowd.is_many(batch.count(rows)),
            When::Looked { list, first, end } => {
                batch.looked_up(list).iter().any(|row| (first..end).contains(row))
            }
        }
    }
}

/// How many variants a dispatch has at most.
const VARIANTS: usize = 4;
/// Rows of activations that `matvec` takes at once, and up to how many rows it is taken; by variant, after which comes
/// `matmat`.
const FEW_ROWS: [(usize, usize); 2] = [(1, 1), (4, 8)];
/// Rows at once by variant, `matmat` among them.
pub(crate) const AT_ONCE: [usize; 3] = [FEW_ROWS[0].0, FEW_ROWS[1].0, MATMAT_TILE];

/// Rows of activations for which a weight is read once, where there are so many rows.
pub(crate) fn products_at_once(rows: usize) -> usize {
    let few = FEW_ROWS.iter().find(|(_, most)| rows <= *most);
    few.map_or(MATMAT_TILE, |(at_once, _)| *at_once)
}

/// One dispatch.
pub(crate) struct Dispatch {
    pub(crate) kernel: &'static ShaderKernel,
    /// What it writes, for those who look for its place in the program.
    pub(crate) out: ValueBuffer,
    /// Index of the work that it is of; `None` for what finds the likeliest tokens.
    pub(crate) work: Option<usize>,
    choice: Choice,
    grid: Grid,
    when: When,
    pub(crate) bound: Vec<Bound>,
    consts: Vec<u32>,
    kernels: [OnceLock<Handle>; VARIANTS],
}

/// A dispatch in a step.
pub(crate) struct Launch {
    pub(crate) kernel: Handle,
    pub(crate) groups: [u32; 3],
}

impl Dispatch {
    /// The kernel and the workgroups for a step; `None` if there is nothing to compute.
    ///
    /// # Errors
    /// [`program::Error::Device`] if a shader cannot be made.
    pub(crate) fn launch(
        &self,
        gpu: &Gpu,
        batch: &Batch,
        kept: StoredTypes,
    ) -> Result<Option<Launch>> {
        if !self.when.is_now(batch) {
            return Ok(None);
        }
        let (variant, groups) = match self.grid {
            Grid::Rounded { rows } | Grid::Wide { rows, .. }
                if !self.is_wide(batch.count(rows), gpu.able()) =>
            {
                return Ok(None);
            }
            Grid::Rounded { rows } => (0, [batch.count(rows), 1, 1]),
            Grid::Wide { weight_rows, rows } => {
                let [rows, n] = [weight_rows, batch.count(rows)].map(|n| n.div_ceil(WIDE_TILE));
                (0, [rows, n, 1])
            }
            Grid::Linear { rows, .. } if self.is_wide(batch.count(rows), gpu.able()) => {
                return Ok(None);
            }
            Grid::Linear { weight_rows, rows } => {
                let n = batch.count(rows);
                match FEW_ROWS.iter().position(|(_, most)| n <= *most) {
                    Some(variant) => {
                        let [x, y, _] = folded(weight_rows.div_ceil(self.tile(variant)));
                        (variant, [x, y, n.div_ceil(FEW_ROWS[variant].0)])
                    }
                    None => {
                        let tiles = [weight_rows, n].map(|rows| rows.div_ceil(MATMAT_TILE));
                        (FEW_ROWS.len(), [tiles[0], tiles[1], 1])
                    }
                }
            }
            Grid::Elements { cols, each, rows } => {
                let keeps =
                    matches!(self.choice, Choice::Keys | Choice::Latents | Choice::IndexKeys);
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
            Grid::Slots { tiles, slots, rows } => (0, [tiles, batch.count(rows), slots]),
            Grid::Pieces { weight_rows, slots, rows, alone } => {
                let n = batch.count(rows);
                let variant = usize::from(!alone && n > 1);
                let tiles = weight_rows.div_ceil(self.tile(variant));
                (variant, [tiles, n.div_ceil(FEW_ROWS[variant].0), slots])
            }
            Grid::Grouped { tiles, crowd, rows } => {
                (0, [tiles, crowd.most_tiles(batch.count(rows)), 1])
            }
            Grid::Scores { limit } => {
                let rows = if batch.n_blocks * BLOCK > limit { batch.n_tokens } else { 0 };
                (kept_variant(kept), [batch.n_blocks, rows, 1])
            }
            Grid::Scan { groups } => (0, [groups, batch.n_sequences(), 1]),
            Grid::Once => (0, [1; 3]),
            Grid::Best { lists } => {
                let rows = if batch.n_best > 0 { batch.n_selected } else { 0 };
                (0, [lists, rows, 1])
            }
            Grid::Joined => (0, [1, if batch.joins_found { batch.n_selected } else { 0 }, 1]),
            Grid::Told => (0, [batch.n_told.div_ceil(64), 1, 1]),
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
        let kernel = match self.kernels[variant].get() {
            Some(made) => made.clone(),
            None => {
                let made = gpu.kernel(&self.shader(variant, kept, gpu.able()))?;
                self.kernels[variant].get_or_init(|| made).clone()
            }
        };
        Ok(Some(Launch { kernel, groups: groups.map(|n| n as u32) }))
    }

    /// Whether so many rows are multiplied in larger tiles.
    fn is_wide(&self, rows: usize, able: Abilities) -> bool {
        match &self.choice {
            Choice::Linear(_, [.., many], _)
            | Choice::Rounded(_, [.., many], _)
            | Choice::Wide(_, [.., many]) => rows > MATMAT_TILE && many.is_wide(able),
            _ => false,
        }
    }

    /// The shaders of steps of one row and of prompts.
    pub(crate) fn usual_shaders(&self, kept: StoredTypes, able: Abilities) -> Vec<Shader> {
        let variants = match self.choice {
            Choice::One(_) | Choice::Grouped(..) | Choice::Pieces(..) => vec![0],
            Choice::Linear(..) if self.is_wide(usize::MAX, able) => vec![0],
            Choice::Linear(..) => vec![0, FEW_ROWS.len()],
            Choice::Rounded(..) | Choice::Wide(..) if !self.is_wide(usize::MAX, able) => vec![],
            Choice::Rounded(..) | Choice::Wide(..) => vec![0],
            Choice::Keys
            | Choice::Latents
            | Choice::IndexKeys
            | Choice::IndexScores
            | Choice::Attend(_) => vec![kept_variant(kept)],
        };
        variants.into_iter().map(|variant| self.shader(variant, kept, able)).collect()
    }

    /// Rows of a matrix that a workgroup of a variant has.
    fn tile(&self, variant: usize) -> usize {
        match &self.choice {
            Choice::Linear(_, shapes, _) | Choice::Pieces(_, shapes, _) => shapes[variant].tile(),
            other => unreachable!("{other:?} has no teams"),
        }
    }

    /// Have its products in these shapes from now on.
    pub(crate) fn reshape(&mut self, shapes: &Shapes) {
        match &mut self.choice {
            Choice::Linear(format, of, chunks) | Choice::Pieces(format, of, chunks) => {
                *of = team_shapes(shapes, format, *chunks);
            }
            Choice::Grouped(format, of)
            | Choice::Rounded(format, of, _)
            | Choice::Wide(format, of) => *of = team_shapes(shapes, format, 0),
            _ => return,
        }
        self.kernels = Default::default();
    }

    fn shader(&self, variant: usize, kept: StoredTypes, able: Abilities) -> Shader {
        match &self.choice {
            Choice::One(shader) => shader.clone(),
            Choice::Linear(format, shapes, _) => match FEW_ROWS.get(variant) {
                Some(&(at_once, _)) => Shader::matvec(format, at_once, shapes[variant]),
                None => Shader::matmat(format, shapes[variant], able),
            },
            Choice::Rounded(_, _, chunks) => Shader::rounded(CHUNK * chunks),
            Choice::Wide(format, _) => Shader::wide(format),
            Choice::Pieces(format, shapes, _) => {
                Shader::pieces(format, FEW_ROWS[variant].0, shapes[variant])
            }
            Choice::Grouped(format, shapes) => {
                let [.., many] = shapes;
                Shader::grouped(format, *many, able)
            }
            Choice::Keys => Shader::keys(kept),
            Choice::Latents => Shader::latents(kept),
            Choice::IndexKeys => Shader::index_keys(kept),
            Choice::IndexScores => Shader::index_scores(kept),
            Choice::Attend(widths) => Shader::attend(kept, *widths),
        }
    }
}

/// Which word of a step says how many such rows there are.
fn counted(rows: Rows) -> u32 {
    match rows {
        Rows::Tokens => 0,
        Rows::Selected => 1,
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

/// By variant.
type TeamShapes = [TeamShape; AT_ONCE.len()];

fn team_shapes(shapes: &Shapes, format: &DeviceFormat, chunks: usize) -> TeamShapes {
    AT_ONCE.map(|at_once| match shapes.get(format.ty, at_once) {
        tile if at_once == MATMAT_TILE => tile,
        of_teams => of_teams.over(chunks),
    })
}

/// All dispatches of a plan, with products in these shapes on a device with such abilities.
pub(crate) fn dispatches(
    plan: &GpuPlan,
    weights: &DeviceWeights,
    (shapes, able): (&Shapes, Abilities),
) -> Vec<Dispatch> {
    let mut maker = Maker { plan, weights, shapes, able, made: Vec::new(), current: None };
    for (index, work) in plan.works.iter().enumerate() {
        maker.current = Some(index);
        maker.work(work);
    }
    maker.current = None;
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
    shapes: &'a Shapes,
    able: Abilities,
    made: Vec<Dispatch>,
    /// The work that dispatches are made for.
    current: Option<usize>,
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
        let kernels = Default::default();
        let (when, work) = (When::Always, self.current);
        self.made.push(Dispatch { kernel, out, work, choice, grid, when, bound, consts, kernels });
    }

    /// The last dispatch is one of some steps.
    fn only(&mut self, when: When) {
        self.made.last_mut().expect("one was made").when = when;
    }

    fn work(&mut self, work: &GpuWork) {
        match work {
            GpuWork::Embed { table, by, out, normed } => self.embed(*table, *by, *out, *normed),
            GpuWork::Linear { matrix, bias, finish, x, residual, out } => {
                self.linear((*matrix, *bias, *finish), *x, *residual, *out);
            }
            GpuWork::Elements(work) => self.elements(work),
            GpuWork::Groups(work) => self.groups(work),
            GpuWork::Attention(work) => self.attention(work),
            GpuWork::Conv(work) => self.conv(work),
            GpuWork::Scan(work) => self.scan(work),
            GpuWork::Route(work) => self.route(work),
            GpuWork::Pieces(work) => self.pieces(work),
            GpuWork::Turned(work) => self.turned(work),
            GpuWork::Mixed(work) => self.mixed(work),
            GpuWork::Sorted(work) => self.sorted(work),
            GpuWork::Ids { out } => self.ids(*out),
            GpuWork::Grams(work) => self.grams(work),
            GpuWork::Balance(work) => self.balance(work),
            GpuWork::Index(work) => self.index(work),
            GpuWork::OfMany(work, crowd) => {
                self.elements(work);
                self.only(When::Many(*crowd, self.rows(work.out)));
            }
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
        self.push(
            (&GROUPS, Choice::One(Shader::groups(body, *dim)), grid),
            out.buffer,
            bound,
            consts,
        );
    }
}
