//! The op set and the [`Program`] that holds a recorded forward pass.

use quant::GgmlType;

use crate::{
    Act, Attention, CacheSpec, CausalConv, Error, Gate, Grams, Indexer, LatentAttention, Norm,
    NormKind, Result, Router, RowRule, Scan,
};

/// Index of a weight in [`Program::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// Index of a cache in [`Program::caches`]: one per layer that attends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheId(pub u32);

/// Index of a value in [`Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A tensor of the model file that the program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightSpec {
    /// The tensor's name in the file, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// Element type.
    pub ty: GgmlType,
    /// Number of rows: outputs of a matrix; 1 for a vector.
    pub rows: usize,
    /// Length of a row in weights: inputs of a matrix; the length of a vector.
    pub cols: usize,
    /// Elements of the tensor before its first: a tensor may hold several weights, as q, k and v in one.
    pub start: usize,
}

impl WeightSpec {
    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        let row = self.ty.row_bytes(self.cols).expect("the recorder accepted whole blocks only");
        row as u64 * self.rows as u64
    }

    /// Bytes of the tensor before it. A matrix starts with a row of the tensor.
    pub fn first_byte(&self) -> u64 {
        let rows = self.start / self.cols.max(1);
        let rest = self.start - rows * self.cols;
        let bytes =
            |cols| self.ty.row_bytes(cols).expect("the recorder accepted whole blocks only");
        bytes(self.cols) as u64 * rows as u64 + bytes(rest) as u64
    }
}

/// How many rows a value has in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One row for each token of the step.
    Tokens,
    /// Only the rows whose outputs the step asks for, after [`Op::SelectRows`] or [`Op::MeanRows`].
    Selected,
}

/// Shape of a value: `[rows, groups, dim]`, f32, row-major. `groups` is 1 except in a view of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Rows; symbolic.
    pub rows: Rows,
    /// Groups within a row, e.g. heads.
    pub groups: usize,
    /// Length of one group.
    pub dim: usize,
}

impl Shape {
    /// Elements in one row.
    pub fn cols(&self) -> usize {
        self.groups * self.dim
    }
}

/// A named intermediate result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// Name, e.g. `blk.3.attn_norm`: the same in every executor, so dumps can be compared.
    pub name: String,
    /// Shape.
    pub shape: Shape,
}

/// Which elements of a head rotate together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairs {
    /// `(i, i + dims/2)`: Qwen, GPT-NeoX.
    HalfSplit,
    /// `(2i, 2i + 1)`: Llama files in GGUF, DeepSeek.
    Interleaved,
}

/// Change of the rotation frequencies for contexts longer than the trained one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// As trained.
    None,
    /// Positions divided by `factor`.
    Linear {
        /// How much longer the context is than the trained one.
        factor: f32,
    },
    /// Only the first pairs turn: the others are for positions that text has none of.
    First {
        /// How many.
        pairs: u32,
    },
    /// LongRoPE (arXiv:2402.13753): frequencies divided by factors of their own, which [`Rope::factors`] holds.
    Long {
        /// Factor on cos and sin.
        attention_factor: f32,
    },
    /// YaRN (arXiv:2309.00071): low frequencies interpolated, high ones kept, a ramp between.
    Yarn {
        /// How much longer the context is than the trained one.
        factor: f32,
        /// Trained context, in tokens.
        original_context: u32,
        /// Rotations within the trained context above which a frequency is kept (usually 32).
        beta_fast: f32,
        /// Rotations below which it is interpolated fully (usually 1).
        beta_slow: f32,
        /// Factor on cos and sin: `1 + 0.1 ln(factor)` unless the model says otherwise.
        attention_factor: f32,
        /// Weight of the trained frequency where YaRN keeps it: 1 as published, 0 interpolates all frequencies.
        extrapolation: f32,
    },
}

/// Rotary position embedding (arXiv:2104.09864): pair `i` turns by `position * theta^(-2i/dims) / factors[i]` radians.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Which elements pair up.
    pub pairs: RopePairs,
    /// How many leading elements of a head rotate; even.
    pub dims: usize,
    /// Base of the frequencies.
    pub theta: f32,
    /// Long-context scaling.
    pub scaling: RopeScaling,
    /// Divisors of the frequencies, `[dims / 2]` (`rope_freqs.weight` of Llama 3.1 and later).
    pub factors: Option<WeightId>,
}

/// The matrices that make each head's keys and values of a latent `c` (`r` numbers per position). `H` heads, keys of
/// `dn` and values of `dv`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LatentUp {
    /// Two tensors, keys transposed: `k_nope[h][j] = sum_i k_b[h * r + i][j] * c[i]`, `v[h] = v_b[h] . c`.
    Split {
        /// `[H * r, dn]` (`attn_k_b`).
        k_b: WeightId,
        /// `[H * dv, r]` (`attn_v_b`).
        v_b: WeightId,
    },
    /// One tensor, as older files have it.
    Joint {
        /// `[H * (dn + dv), r]`: for each head `dn` rows for its key, then `dv` rows for its value (`attn_kv_b`).
        kv_b: WeightId,
    },
}

/// Vectors of all experts of a layer, expert by expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertBiases {
    /// `[n_experts, width]`.
    pub gate: WeightId,
    /// `[n_experts, width]`.
    pub up: WeightId,
    /// `[n_experts, hidden]`.
    pub down: WeightId,
}

impl ExpertBiases {
    /// All three.
    pub fn all(&self) -> [WeightId; 3] {
        [self.gate, self.up, self.down]
    }
}

/// Which row of a table a row of a step takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lookup {
    /// That of its token.
    Token,
    /// That of its position: a session has no more positions than the table has rows.
    Position,
    /// The table's only row.
    Only,
}

/// One kind of computation. Inputs and outputs are in [`Node`].
///
/// For a new op the compiler names the matches that must know it: [`Op::name`], [`Op::facts`], the listing (`show.rs`),
/// the interpreter, and each executor's lowering. Planners and passes read its [`Facts`](crate::Facts).
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// tokens or their positions -> `[Tokens, cols]`: rows of the table.
    Embed {
        /// `[vocab_size, hidden_size]`, `[n_positions, hidden_size]` or a single row.
        table: WeightId,
        /// Which rows.
        by: Lookup,
    },
    /// tokens -> `[Tokens, 1]`: their ids, counted from 1.
    Ids,
    /// ids `[Tokens, n]`, counted from 1, the row's own first, then those before it, 0 where there is none ->
    /// `[Tokens, heads, cols]`: rows of the table, for each head by a hash of some of them.
    Grams {
        /// `[rows, cols]`.
        table: WeightId,
        /// How ids come to rows.
        grams: Grams,
    },
    /// x `[.., groups, dim]` -> same shape: each group normed.
    Norm(Norm),
    /// x `[rows, cols]` -> `[rows, weight.rows]`: `weight . x + bias`.
    Linear {
        /// `[out, in]`.
        weight: WeightId,
        /// `[out]`.
        bias: Option<WeightId>,
    },
    /// q `[Tokens, n_heads, key_dim]`, k `[Tokens, n_kv_heads, key_dim]`, v `[Tokens, n_kv_heads, value_dim]`, all
    /// un-rotated -> `[Tokens, n_heads * value_dim]`. Rotates q and k, norms them where it is to, appends k and v to the cache, then each query
    /// attends to the cached positions that its mask lets it see: the sum of their values times the weights of
    /// [`Score`](crate::Score). Query head `h` reads key-value head `h / (n_heads / n_kv_heads)`. A layer that appends
    /// nothing takes q alone. A layer that reads few of the positions takes what an indexer chose as its last input.
    Attention(Attention),
    /// q `[Tokens, heads, dim]`, weights `[Tokens, heads]` where the score has such, k `[Tokens, 1, dim]`, q and k un-rotated ->
    /// `[Tokens, choices, n_units]`: rotates q and k, appends k to the cache, then chooses units of the positions up to a row's
    /// own by their scores: their numbers (as f32, exact) in ascending order, then [`NO_UNIT`](crate::NO_UNIT).
    Indexer(Indexer),
    /// q_nope `[Tokens, H, dn]`, q_pe `[Tokens, H, dr]` un-rotated, c `[Tokens, 1, r]` normed, k_pe `[Tokens, 1, dr]`
    /// un-rotated -> `[Tokens, H * dv]`. Rotates q_pe and k_pe and appends the row `[c | k_pe]` to the cache. Then each
    /// query attends as in [`Op::Attention`], with `q = [q_nope | q_pe]`, the keys `[k_nope | k_pe]` and the values that
    /// `up` makes of each row's `c`; all heads share `k_pe`. What an indexer chose is a fifth input.
    ///
    /// Source: arXiv:2405.04434, section 2.1.
    LatentAttention(LatentAttention),
    /// x `[Tokens, 1, channels]` -> the same shape: each row's sum over it and the few before it.
    CausalConv(CausalConv),
    /// The inputs that [`ScanKind`](crate::ScanKind) names -> `[Tokens, n_heads * value_dim]`: a recurrence over rows.
    Scan(Scan),
    /// x -> same shape: `act(x)`.
    Act(Act),
    /// gate, up -> up's shape, element by element. A gate of one column for each group of up goes with all of its group.
    GatedAct(Gate),
    /// scores `[rows, n_experts]` -> `[rows, 2 * n_used]`: the ids of the chosen experts (as f32, exact), the best first,
    /// then the weight of each.
    Route(Router),
    /// x `[rows, hidden]`, routes `[rows, 2 * n_used]` -> `[rows, hidden]`: the sum over the chosen experts of
    /// `weight * down_e . act(gate_e . x, up_e . x)`, each product with its bias, added in an order that depends on the
    /// routes only. Where gate and up are one weight, that holds gate's rows of an expert, then up's of the same.
    Experts {
        /// `[n_experts * width, hidden]`, expert by expert.
        gate: WeightId,
        /// `[n_experts * width, hidden]`.
        up: WeightId,
        /// `[n_experts * hidden, width]`.
        down: WeightId,
        /// Vectors added to the products of each.
        biases: Option<ExpertBiases>,
        /// Activation of gate and up.
        act: Gate,
        /// The weight is a factor on the products with gate and up instead.
        weighs_inputs: bool,
        /// Experts in each weight.
        n_experts: usize,
        /// Experts per row.
        n_used: usize,
    },
    /// a, b -> same shape: `a + b`.
    Add,
    /// x -> same shape: `x * factor`.
    Scale(f32),
    /// x -> same shape: `x + number`.
    Shift(f32),
    /// x -> same shape: the root of its size, at least of `least`, with its sign; 0 stays 0.
    SignedRoot {
        /// Of the size.
        least: f32,
    },
    /// x `[rows, groups, dim]` -> same shape: times the vector, element by element.
    Multiply {
        /// `[dim]` for all groups, `[groups * dim]`, or `[1]` for all elements; `[groups]` where it is by group.
        weight: WeightId,
        /// One number for each group.
        by_group: bool,
    },
    /// x `[rows, groups, dim]` -> the same numbers with another split of a row into groups.
    View,
    /// x `[rows, groups, dim]` -> `[rows, groups, len]`: elements `start .. start + len` of each group.
    Slice {
        /// First element taken.
        start: usize,
        /// How many.
        len: usize,
    },
    /// values `[rows, groups_i, dim]` -> `[rows, sum of groups_i, dim]`: their groups, one value's after another's.
    Concat,
    /// weights `[rows, m * k]`, x `[rows, k, dim]` -> `[rows, m, dim]`: group `i` is the sum over `j` of
    /// `weights[i * k + j] * x[j]`.
    Mix,
    /// x, y of one shape -> the same: each group of x times `|y| / |x|`, its length and that of the same group of y; zeros
    /// stay zeros.
    Resize,
    /// x `[rows, groups, dim]` -> same shape: `max(x - mean - deviations * std, 0)` over each group, `std` with `dim - 1`.
    Excess {
        /// How far above the mean.
        deviations: f32,
    },
    /// x `[rows, groups, dim]` -> `[rows, 1, groups]`: the sum of each group.
    SumGroups,
    /// x `[rows, groups, dim]` -> same shape: `exp(x)` over the sum of its group's.
    Softmax,
    /// x `[rows, groups, dim]` -> `[rows, dim, groups]`: the first numbers of all groups, then the second ones.
    Turn,
    /// x `[rows, n, n]` -> same shape: a matrix that is nearly doubly stochastic. `S` is the softmax of each group plus eps;
    /// each column is divided by its sum plus eps; then, `rounds - 1` times, each row, and each column again. The result is
    /// turned: its group `i` is column `i`.
    ///
    /// Source: arXiv:2512.24880, section 4.2.
    Sinkhorn {
        /// At least 1.
        rounds: u32,
        /// Added where something is divided by a sum.
        eps: f32,
    },
    /// x `[Tokens, ..]` -> `[Selected, ..]`: the rows whose outputs are wanted.
    SelectRows,
    /// x `[Tokens, ..]` -> `[Selected, ..]`: for each row whose output is wanted the mean of all rows of its sequence, which
    /// must come in one step.
    MeanRows,
}

impl Op {
    /// Short name for listings.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::Ids => "ids",
            Op::Grams { .. } => "grams",
            Op::Norm(Norm { kind: NormKind::Rms, .. }) => "rms_norm",
            Op::Norm(Norm { kind: NormKind::Layer, .. }) => "layer_norm",
            Op::Linear { .. } => "linear",
            Op::Attention(_) => "attention",
            Op::LatentAttention(_) => "latent_attention",
            Op::Indexer(_) => "indexer",
            Op::CausalConv(_) => "causal_conv",
            Op::Scan(scan) => scan.kind.name(),
            Op::Act(_) => "act",
            Op::GatedAct(_) => "gated_act",
            Op::Route(_) => "route",
            Op::Experts { .. } => "experts",
            Op::Add => "add",
            Op::Scale(_) => "scale",
            Op::Shift(_) => "shift",
            Op::SignedRoot { .. } => "signed_root",
            Op::Multiply { .. } => "multiply",
            Op::View => "view",
            Op::Slice { .. } => "slice",
            Op::Concat => "concat",
            Op::Mix => "mix",
            Op::Resize => "resize",
            Op::Excess { .. } => "excess",
            Op::SumGroups => "sum_groups",
            Op::Softmax => "softmax",
            Op::Turn => "turn",
            Op::Sinkhorn { .. } => "sinkhorn",
            Op::SelectRows => "select_rows",
            Op::MeanRows => "mean_rows",
        }
    }
}

/// One op with its operands. Every op has exactly one output.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Values read, in the order the op's documentation gives.
    pub inputs: Vec<ValueId>,
    /// The value written; its name is the node's name.
    pub output: ValueId,
    /// The layer it belongs to, if any.
    pub layer: Option<usize>,
}

/// What an output of a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// `[Selected, vocab_size]`: one score per token of the vocabulary.
    Logits,
    /// `[Selected, width]`: rows after the last norm, which the output head reads; of models that embed or rank texts what
    /// they say of one.
    Hidden,
    /// Any value, all rows it has: what a part of a model hands to the next.
    Rows,
}

/// A recorded forward pass. Nodes are in execution order; each value is given or written once, before it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Tensors of the file.
    pub weights: Vec<WeightSpec>,
    /// Caches: one for each layer that attends and does not read another's.
    pub caches: Vec<CacheSpec>,
    /// Values, the given ones among them.
    pub values: Vec<ValueSpec>,
    /// Values that the caller gives with each sequence, beside its tokens: of a part of a model, what parts before it
    /// have computed.
    pub inputs: Vec<ValueId>,
    /// Ops in order.
    pub nodes: Vec<Node>,
    /// What the caller receives.
    pub outputs: Vec<(OutputKind, ValueId)>,
}

impl Program {
    /// The weight with this id.
    pub fn weight(&self, id: WeightId) -> &WeightSpec {
        &self.weights[id.0 as usize]
    }

    /// The cache with this id.
    pub fn cache(&self, id: CacheId) -> &CacheSpec {
        &self.caches[id.0 as usize]
    }

    /// The value with this id.
    pub fn value(&self, id: ValueId) -> &ValueSpec {
        &self.values[id.0 as usize]
    }

    /// The value that holds what of this kind the program yields.
    pub fn output(&self, kind: OutputKind) -> Option<ValueId> {
        self.outputs.iter().find(|(its, _)| *its == kind).map(|(_, value)| *value)
    }

    /// The value that holds the logits, if the program yields any.
    pub fn logits(&self) -> Option<ValueId> {
        self.output(OutputKind::Logits)
    }

    /// Width of a logits row; 0 if the program yields none.
    pub fn vocab_size(&self) -> usize {
        self.logits().map_or(0, |id| self.value(id).shape.cols())
    }

    /// Refuse a step that continues at `position` where a layer must see all rows of a sequence at once.
    ///
    /// # Errors
    /// [`Error::Operand`] names the layer.
    pub fn check_start(&self, position: usize) -> Result<()> {
        let full = |node: &&Node| node.op.facts().rows == RowRule::Sequence { whole: true };
        match self.nodes.iter().find(full) {
            Some(node) if position > 0 => Err(Error::Operand {
                op: self.value(node.output).name.clone(),
                expected: "all rows of a sequence in one step".into(),
                found: format!("{position} in steps before"),
            }),
            _ => Ok(()),
        }
    }
}
