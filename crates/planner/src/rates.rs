//! [`Rates`]: how fast an executor's own kernels are on a machine, measured. Where the limit says what no program can
//! beat, rates say what is to be expected.
//!
//! Times are modelled by few numbers each: a matrix by the seconds per weight of a pass of so many rows, attention by
//! what a step and a prompt pay per position, and everything by what a phase and a step cost on top.

use program::{CacheKind, CacheType, MlaDims, MlaForm};
use quant::GgmlType;

use crate::reads::Reads;
use crate::scans::{self, ScanRate, ScanShape};

/// What has to be measured to expect a time: types of matrices, shapes of attention of both kinds and of what recurs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedRates {
    /// Types of matrices.
    pub types: Vec<GgmlType>,
    /// Shapes of attention.
    pub attention: Vec<AttentionShape>,
    /// Shapes of latent attention.
    pub latent: Vec<MlaShape>,
    /// Shapes of what recurs.
    pub scans: Vec<ScanShape>,
}

/// Types of most files.
const USUAL: [GgmlType; 6] =
    [GgmlType::F16, GgmlType::Q8_0, GgmlType::Q4_0, GgmlType::Q4K, GgmlType::Q5K, GgmlType::Q6K];

impl WantedRates {
    /// What most models need: the usual types of weights, and attention over the usual type of cache, and the usual recurrence.
    pub fn usual() -> WantedRates {
        let mut wanted = WantedRates { types: USUAL.into(), ..WantedRates::everything() };
        wanted.attention.retain(|shape| shape.k == CacheType::default());
        wanted.scans.truncate(1);
        wanted
    }

    /// What any model may need: every type that weights can have, and shapes from which others are scaled.
    pub fn everything() -> WantedRates {
        let shape = |(n_heads, n_kv_heads, head_dim, cache)| AttentionShape {
            n_heads,
            n_kv_heads,
            key_dim: head_dim,
            value_dim: head_dim,
            k: cache,
            v: cache,
        };
        let heads = [(16, 16, 64), (14, 2, 64), (16, 16, 128), (12, 2, 128)];
        let shapes = CacheType::ALL.iter().flat_map(|cache| {
            // other types than the usual one are scaled over more
            let step = if *cache == CacheType::default() { 1 } else { 3 };
            let shapes = heads.into_iter().step_by(step);
            shapes.map(|(heads, kv_heads, head_dim)| shape((heads, kv_heads, head_dim, *cache)))
        });
        let types = quant::FORMATS.iter().map(|format| format.ty()).collect();
        WantedRates {
            types,
            attention: shapes.collect(),
            latent: Vec::new(),
            scans: scans::usual(),
        }
    }

    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        let WantedRates { types, attention, latent, scans } = self;
        types.is_empty() && attention.is_empty() && latent.is_empty() && scans.is_empty()
    }
}

/// Attention of one layer, as far as its speed depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Query heads.
    pub n_heads: usize,
    /// Key-value heads.
    pub n_kv_heads: usize,
    /// Width of a key.
    pub key_dim: usize,
    /// Width of a value vector.
    pub value_dim: usize,
    /// Type of cached keys.
    pub k: CacheType,
    /// Type of cached values.
    pub v: CacheType,
}

impl AttentionShape {
    /// Bytes one position adds to the layer's cache.
    pub fn position_bytes(&self) -> u64 {
        self.cached().position_bytes(self.k, self.v)
    }

    /// What the layer caches, all positions of it.
    pub fn cached(&self) -> CacheKind {
        let AttentionShape { n_kv_heads, key_dim, value_dim, .. } = *self;
        CacheKind::Heads { n_kv_heads, key_dim, value_dim, window: None }
    }

    /// Multiply-adds of one query with one position, all heads.
    pub fn macs(&self) -> u64 {
        (self.n_heads * (self.key_dim + self.value_dim)) as u64
    }

    /// How far another shape is from this one, if its speed can be scaled to it at all.
    fn distance(&self, other: &AttentionShape) -> Option<f64> {
        let group = |shape: &AttentionShape| shape.n_heads / shape.n_kv_heads.max(1);
        let dims = apart(self.key_dim, other.key_dim) + apart(self.value_dim, other.value_dim);
        let same = (self.k, self.v) == (other.k, other.v);
        same.then(|| dims + apart(group(self), group(other)))
    }
}

/// By which factor two widths or counts differ, as its logarithm.
pub(crate) fn apart(a: usize, b: usize) -> f64 {
    (a.max(1) as f64 / b.max(1) as f64).ln().abs()
}

/// The rate of a shape among these: as measured, or that of the nearest shape, scaled, if `distance` says how near one is.
pub(crate) fn rate_of<R: Copy, S: PartialEq>(
    rates: &[R],
    wanted: &S,
    shape: impl Fn(&R) -> &S,
    distance: impl Fn(&S, &S) -> Option<f64>,
    scaled: impl Fn(&R, &S) -> R,
) -> Option<R> {
    if let Some(exact) = rates.iter().find(|rate| shape(rate) == wanted) {
        return Some(*exact);
    }
    let near = rates.iter().filter_map(|rate| Some((distance(wanted, shape(rate))?, rate)));
    let (_, nearest) = near.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(scaled(nearest, wanted))
}

/// Latent attention of one layer, as far as its speed depends on it. Its sizes are few among published models: none is
/// scaled from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MlaShape {
    /// Heads and widths.
    pub dims: MlaDims,
    /// Type of cached latents.
    pub k: CacheType,
}

/// Matrices of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearRate {
    /// The type.
    pub ty: GgmlType,
    /// Rows of a pass, ascending, and its seconds per weight, the matrices coming from memory.
    pub points: Vec<(u64, f64)>,
    /// Seconds that all matrices of one input cost beside that: threads meet, and the last one works alone.
    pub phase: f64,
}

impl LinearRate {
    /// Seconds per weight of a pass of `rows` rows: between two points in proportion, beyond the last as that per row.
    pub fn seconds_per_weight(&self, rows: u64) -> f64 {
        let Some(&(last, seconds)) = self.points.last() else { return 0.0 };
        if rows >= last {
            return seconds * rows as f64 / last as f64;
        }
        let after = self.points.partition_point(|(at, _)| *at < rows);
        let (at, seconds) = self.points[after];
        match after.checked_sub(1).map(|before| self.points[before]) {
            Some((before, less)) => {
                less + (seconds - less) * (rows - before) as f64 / (at - before) as f64
            }
            None => seconds,
        }
    }

    /// Bytes per second of a pass of one row, as the file counts bytes.
    pub fn bytes_per_second(&self) -> f64 {
        self.ty.bits_per_weight() / 8.0 / self.seconds_per_weight(1)
    }

    /// Multiply-adds per second of a pass of `rows`.
    pub fn macs_per_second(&self, rows: u64) -> f64 {
        rows as f64 / self.seconds_per_weight(rows)
    }

    /// The chunk in which prompts are best cut if all matrices have this type.
    pub fn chunk(&self) -> u64 {
        smallest_chunk(|rows| self.seconds_per_weight(rows))
    }
}

/// Rows of a pass among which the chunk of a prompt is chosen. Below 64, unpacking is shared by too few rows.
const CHUNKS: [u64; 4] = [64, 128, 256, 512];
/// How much longer a row of a chunk may take than one of the largest: what measuring leaves open.
const TOLERANCE: f64 = 1.01;

/// The smallest chunk of which a row takes at most 1 % longer than one of the largest, a pass of `rows` taking
/// `seconds(rows)`.
pub(crate) fn smallest_chunk(seconds: impl Fn(u64) -> f64) -> u64 {
    let [.., largest] = CHUNKS;
    let per_row = |rows: u64| seconds(rows) / rows as f64;
    let good = |rows: &u64| per_row(*rows) <= TOLERANCE * per_row(largest);
    CHUNKS.into_iter().find(good).unwrap_or(largest)
}

/// Attention of one layer, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionRate {
    /// The shape.
    pub shape: AttentionShape,
    /// A step, whatever the depth.
    pub step: f64,
    /// A step, for each position it attends to.
    pub position: f64,
    /// A prompt, for each token: rotation, the write to the cache.
    pub token: f64,
    /// A prompt, for each token and position that it attends to.
    pub pair: f64,
}

impl AttentionRate {
    /// The same kernels with other numbers of heads.
    fn scaled_to(&self, shape: &AttentionShape) -> AttentionRate {
        let by = |to: u64, from: u64| to as f64 / from.max(1) as f64;
        let bytes = by(shape.position_bytes(), self.shape.position_bytes());
        let macs = by(shape.macs(), self.shape.macs());
        AttentionRate {
            shape: *shape,
            step: self.step,
            position: self.position * bytes,
            token: self.token * macs,
            pair: self.pair * macs,
        }
    }

    /// Seconds of a pass of `tokens` on a cache of `past` positions, of which each reads what `reads` says. What stands for
    /// blocks is looked at as fast as positions are read.
    pub fn seconds(&self, reads: Reads, past: u64, tokens: u64) -> f64 {
        let Some(before) = tokens.checked_sub(1) else { return 0.0 };
        let end = past.saturating_add(before);
        let kind = self.shape.cached();
        let read_anchors = reads.index_bytes(end, 1, 1, &kind) as f64;
        let AttentionShape { key_dim, value_dim, .. } = self.shape;
        let keys = key_dim as f64 / (key_dim + value_dim).max(1) as f64;
        // the most, where a certificate decides
        let [_, most] = reads.bounds(end, 1, 1);
        let last = most as f64
            + keys * reads.again(end, 1) as f64
            + read_anchors / self.shape.position_bytes().max(1) as f64;
        let read = self.step + self.position * last;
        if tokens == 1 {
            return read;
        }
        let promises = (reads.index_bytes(past, tokens, 1, &kind) / 4) as f64;
        let [_, most] = reads.bounds(past, tokens, 1);
        let pairs = most as f64
            + keys * reads.again(past, tokens) as f64
            + promises / self.shape.macs().max(1) as f64;
        // few tokens on a long cache take at least as long as one
        read.max(self.step + self.token * tokens as f64 + self.pair * pairs)
    }

    /// Bytes of cache per second in a deep step.
    pub fn bytes_per_second(&self) -> f64 {
        self.shape.position_bytes() as f64 / self.position
    }

    /// Multiply-adds per second in a long prompt.
    pub fn macs_per_second(&self) -> f64 {
        self.shape.macs() as f64 / self.pair
    }
}

/// Latent attention of one layer, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlaRate {
    /// The shape.
    pub shape: MlaShape,
    /// A step, whatever the depth.
    pub step: f64,
    /// A step, for each position it attends to.
    pub position: f64,
    /// Each multiply-add of a prompt whose queries are brought to the latents.
    pub elided: f64,
    /// Each multiply-add of a prompt for which keys and values are made of latents.
    pub compressed: f64,
}

impl MlaRate {
    /// Seconds of a pass of `tokens` on a cache of `past` positions, in this form.
    pub fn seconds(&self, form: MlaForm, past: u64, tokens: u64) -> f64 {
        let read = self.step + self.position * past.saturating_add(tokens) as f64;
        let per_mac = match form {
            MlaForm::Expanded | MlaForm::Compressed => self.compressed,
            MlaForm::Absorbed | MlaForm::Elided => self.elided,
        };
        match tokens {
            0 => 0.0,
            1 => read,
            // few tokens on a long cache take at least as long as one
            n => read.max(per_mac * self.shape.dims.macs(form, past, n) as f64),
        }
    }
}

/// What steps cost beside matrices and attention, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overheads {
    /// A step outside its phases: waking threads, laying out memory.
    pub step: f64,
    /// Handing out one logit.
    pub logit: f64,
    /// One element of a norm that no matrix takes in.
    pub element: f64,
}

/// How fast an executor's kernels are on this machine with its threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// By type.
    pub linear: Vec<LinearRate>,
    /// By shape.
    pub attention: Vec<AttentionRate>,
    /// By shape.
    pub latent: Vec<MlaRate>,
    /// By shape.
    pub scans: Vec<ScanRate>,
    /// Of steps.
    pub overheads: Overheads,
}

impl Rates {
    /// Matrices of this type, if they were measured.
    pub fn linear(&self, ty: GgmlType) -> Option<&LinearRate> {
        self.linear.iter().find(|rate| rate.ty == ty)
    }

    /// What a phase costs beside its work, in seconds: the middle one of all types.
    pub fn phase(&self) -> f64 {
        let mut phases: Vec<f64> = self.linear.iter().map(|rate| rate.phase).collect();
        phases.sort_by(f64::total_cmp);
        phases.get(phases.len() / 2).copied().unwrap_or(0.0)
    }

    /// Attention of this shape: as measured, or scaled from the nearest shape with the same types of cache.
    pub fn attention(&self, shape: &AttentionShape) -> Option<AttentionRate> {
        let (distance, scaled) = (AttentionShape::distance, AttentionRate::scaled_to);
        rate_of(&self.attention, shape, |rate| &rate.shape, distance, scaled)
    }

    /// Latent attention of this shape, if it was measured.
    pub fn latent(&self, shape: &MlaShape) -> Option<&MlaRate> {
        self.latent.iter().find(|rate| rate.shape == *shape)
    }

    /// A recurrence of this shape: as measured, or scaled from the nearest shape of its rule.
    pub fn scan(&self, shape: &ScanShape) -> Option<ScanRate> {
        scans::nearest(&self.scans, shape)
    }

    /// What of `wanted` was not measured.
    pub fn missing(&self, wanted: &WantedRates) -> WantedRates {
        let known = |shape: &&AttentionShape| self.attention.iter().all(|r| r.shape != **shape);
        WantedRates {
            types: wanted.types.iter().copied().filter(|ty| self.linear(*ty).is_none()).collect(),
            attention: wanted.attention.iter().filter(known).copied().collect(),
            latent: {
                let unknown = |shape: &&MlaShape| self.latent(shape).is_none();
                wanted.latent.iter().filter(unknown).copied().collect()
            },
            scans: {
                let unknown = |shape: &&ScanShape| self.scans.iter().all(|r| r.shape != **shape);
                wanted.scans.iter().filter(unknown).copied().collect()
            },
        }
    }

    /// What was measured later joins or replaces what was measured before.
    pub fn update(&mut self, later: Rates) {
        self.linear.retain(|rate| later.linear(rate.ty).is_none());
        self.latent.retain(|rate| later.latent(&rate.shape).is_none());
        self.linear.extend(later.linear);
        let again = |rate: &AttentionRate| later.attention.iter().any(|r| r.shape == rate.shape);
        self.attention.retain(|rate| !again(rate));
        if [later.attention.len(), later.latent.len(), later.scans.len()] != [0; 3] {
            // they are measured beside these
            self.overheads = later.overheads;
        }
        self.attention.extend(later.attention);
        self.latent.extend(later.latent);
        self.scans.retain(|rate| later.scans.iter().all(|again| again.shape != rate.shape));
        self.scans.extend(later.scans);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n_heads: usize, n_kv_heads: usize, dim: usize) -> AttentionShape {
        let f16 = CacheType::F16;
        AttentionShape { n_heads, n_kv_heads, key_dim: dim, value_dim: dim, k: f16, v: f16 }
    }

    #[test]
    fn a_matrix_between_and_beyond_its_points() {
        let rate = LinearRate {
            ty: GgmlType::Q8_0,
            points: vec![(1, 1.0), (4, 2.5), (64, 32.0)],
            phase: 0.0,
        };
        for (rows, seconds) in [(1, 1.0), (2, 1.5), (4, 2.5), (34, 17.25), (64, 32.0), (128, 64.0)]
        {
            assert_eq!(rate.seconds_per_weight(rows), seconds, "{rows}");
        }
        assert_eq!(rate.macs_per_second(128), 2.0);
        assert_eq!(rate.bytes_per_second(), 34.0 / 32.0);
    }

    #[test]
    fn attention_is_scaled_from_the_nearest_shape() {
        let rate = |shape, position| AttentionRate {
            shape,
            step: 5.0,
            position,
            token: 1.0,
            pair: 2.0 * position,
        };
        let rates = Rates {
            attention: vec![rate(shape(16, 16, 64), 1.0), rate(shape(16, 2, 128), 10.0)],
            ..Rates::default()
        };
        assert_eq!(rates.attention(&shape(16, 16, 64)).map(|r| r.position), Some(1.0));
        let twice = rates.attention(&shape(32, 32, 64)).expect("scaled");
        assert_eq!((twice.step, twice.position, twice.token, twice.pair), (5.0, 2.0, 2.0, 4.0));
        assert_eq!(rates.attention(&shape(8, 1, 128)).map(|r| r.position), Some(5.0));
        let f32 = AttentionShape { k: CacheType::F32, ..shape(16, 16, 64) };
        assert_eq!(rates.attention(&f32), None, "another type is another kernel");
    }

    #[test]
    fn passes_of_attention() {
        let shape = shape(1, 1, 64);
        let rate = AttentionRate { shape, step: 1.0, position: 0.5, token: 0.25, pair: 0.125 };
        let seconds = |past, tokens| rate.seconds(Reads::Seen(program::Mask::Causal), past, tokens);
        assert_eq!(seconds(9, 0), 0.0);
        assert_eq!(seconds(9, 1), 6.0);
        assert_eq!(seconds(0, 64), 1.0 + 16.0 + 0.125 * 2080.0);
        assert_eq!(seconds(10_000, 2), 5002.0, "two tokens read the cache as one does");
        let window = rate.seconds(Reads::Seen(program::Mask::Window(4)), 10_000, 1);
        assert_eq!(window, seconds(3, 1), "a window bounds what a step reads");
    }

    #[test]
    fn passes_of_latent_attention() {
        let dims = MlaDims { n_heads: 2, rank: 16, nope_dim: 8, rope_dim: 4, value_dim: 8 };
        let shape = MlaShape { dims, k: CacheType::F16 };
        let rate = MlaRate { shape, step: 8.0, position: 0.5, elided: 0.25, compressed: 0.125 };
        let seconds = |form, past, tokens| rate.seconds(form, past, tokens);
        assert_eq!(seconds(MlaForm::Elided, 9, 0), 0.0);
        assert_eq!(seconds(MlaForm::Elided, 9, 1), 13.0);
        let elided = 0.25 * dims.macs(MlaForm::Elided, 0, 64) as f64;
        assert_eq!(seconds(MlaForm::Elided, 0, 64), elided);
        let compressed = 0.125 * dims.macs(MlaForm::Compressed, 64, 64) as f64;
        assert_eq!(seconds(MlaForm::Compressed, 64, 64), compressed);
        let mut rates = Rates { latent: vec![rate], ..Rates::default() };
        let other = MlaShape { k: CacheType::F32, ..shape };
        let wanted = WantedRates { latent: vec![shape, other], ..WantedRates::default() };
        assert_eq!(rates.missing(&wanted).latent, [other]);
        rates.update(Rates { latent: vec![MlaRate { step: 1.0, ..rate }], ..Rates::default() });
        assert_eq!(rates.latent(&shape).map(|rate| rate.step), Some(1.0));
    }

    #[test]
    fn what_is_missing_and_what_is_new() {
        let wanted = WantedRates::everything();
        let usual = WantedRates::usual();
        assert!(usual.types.iter().all(|ty| wanted.types.contains(ty)));
        assert!(!usual.attention.is_empty() && usual.attention.len() < wanted.attention.len());
        let mut rates = Rates::default();
        assert_eq!(rates.missing(&wanted), wanted);
        let linear =
            |seconds| LinearRate { ty: GgmlType::F16, points: vec![(1, seconds)], phase: seconds };
        rates.update(Rates { linear: vec![linear(1.0)], ..Rates::default() });
        rates.update(Rates { linear: vec![linear(2.0)], ..Rates::default() });
        assert_eq!(rates.linear, [linear(2.0)]);
        assert_eq!(rates.phase(), 2.0);
        let rate = AttentionRate {
            shape: wanted.attention[0],
            step: 1.0,
            position: 1.0,
            token: 1.0,
            pair: 1.0,
        };
        let overheads = Overheads { step: 3.0, ..Overheads::default() };
        rates.update(Rates { attention: vec![rate], overheads, ..Rates::default() });
        rates.update(Rates { linear: vec![linear(2.0)], ..Rates::default() });
        assert_eq!(rates.overheads.step, 3.0, "matrices tell nothing about steps");
        assert_eq!(rates.missing(&wanted).types.len(), wanted.types.len() - 1);
        assert!(!rates.missing(&wanted).is_empty() && WantedRates::default().is_empty());
    }
}
