//! Listing of a program for people: one line per node, equal layers folded.

use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;

use crate::{
    CacheKind, Gate, GroupScore, Groups, LatentUp, Lookup, Mask, Node, Op, OutputKind, Program,
    Rope, RopePairs, RopeScaling, Router, Rows, ScanDims, Score, Selection, Shape, Temperature,
    ValueId, WeightId,
};

/// A program as text: [`Program::listing`].
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    program: &'a Program,
    fold: bool,
}

impl Program {
    /// The program as text, one line per node: name, op, inputs, shape of the output, weights with type and shape.
    /// Layers equal to the one before them but for their number are folded into one line.
    pub fn listing(&self) -> Listing<'_> {
        Listing { program: self, fold: true }
    }
}

impl Listing<'_> {
    /// Every layer in full.
    #[must_use]
    pub fn unfolded(self) -> Self {
        Listing { fold: false, ..self }
    }

    fn line(&self, node: &Node, name: &dyn Fn(ValueId) -> String) -> String {
        let inputs: Vec<String> = node.inputs.iter().map(|&id| name(id)).collect();
        let inputs = match node.op {
            Op::Embed { by: Lookup::Token, .. } => "tokens".to_owned(),
            Op::Embed { by: Lookup::Position, .. } => "positions".to_owned(),
            Op::Embed { by: Lookup::Only, .. } => "the only row".to_owned(),
            _ => inputs.join(", "),
        };
        let shape = shape(self.program.value(node.output).shape);
        let line = format!("{} = {}({inputs}) -> {shape}", name(node.output), node.op.name());
        let detail = self.detail(&node.op);
        if detail.is_empty() { line } else { format!("{line}  {detail}") }
    }

    fn detail(&self, op: &Op) -> String {
        match op {
            Op::Embed { table, by: _ } => self.weight(*table),
            Op::Ids => String::new(),
            Op::Grams { table, grams } => {
                let n = grams.multipliers.len();
                format!("{} by the last 2 to {n} tokens", self.weight(*table))
            }
            Op::Norm(norm) => {
                let weight =
                    norm.weight.map_or(String::new(), |id| format!("{}, ", self.weight(id)));
                let bias = norm.bias.map_or(String::new(), |id| format!("+ {}, ", self.weight(id)));
                format!("{weight}{bias}eps {:e}", norm.eps)
            }
            Op::Linear { weight, bias: None } => self.weight(*weight),
            Op::Linear { weight, bias: Some(bias) } => {
                format!("{} + {}", self.weight(*weight), self.weight(*bias))
            }
            Op::Attention(at) => {
                let reads = if at.appends { "" } else { "reads " };
                let cache = cached(&self.program.cache(at.cache).kind);
                let (rope, score) = (self.rotation(at.rope.as_ref()), self.score(&at.score));
                [reads, &cache, &rope, &score, &selected(at.select)].concat()
            }
            Op::Indexer(at) => {
                let last = match at.n_last {
                    0 => String::new(),
                    n => format!(", the last {n} among them"),
                };
                let by = lower(&at.score);
                let cache = cached(&self.program.cache(at.cache).kind);
                let rope = self.rotation(at.rope.as_ref());
                let from = if at.rope_start > 0 { " behind others" } else { "" };
                format!("{}{last}, {by}, {cache}{rope}{from}", units(at.selection()))
            }
            Op::LatentAttention(at) => {
                let up = match at.up {
                    LatentUp::Split { k_b, v_b } => {
                        format!("{}, {}", self.weight(k_b), self.weight(v_b))
                    }
                    LatentUp::Joint { kv_b } => self.weight(kv_b),
                };
                let cache = format!("{}, {up}", cached(&self.program.cache(at.cache).kind));
                let (rope, score) = (self.rotation(at.rope.as_ref()), self.score(&at.score));
                [cache, rope, score, selected(at.select)].concat()
            }
            Op::CausalConv(conv) => {
                let taps = conv.taps.map_or("the row before".to_owned(), |id| self.weight(id));
                let bias = conv.bias.map_or(String::new(), |id| format!(" + {}", self.weight(id)));
                let act = conv.act.map_or(String::new(), |act| format!(", {}", lower(&act)));
                let step = match conv.step {
                    1 => String::new(),
                    step => format!(", of every {step} rows one"),
                };
                format!("{taps}{bias}{step}{act}")
            }
            Op::Scan(scan) => {
                let ScanDims { n_heads, n_key_heads, key_dim, value_dim, by_turns } = scan.dims;
                let turns = if by_turns { " by turns" } else { "" };
                let keys = match n_key_heads == n_heads {
                    true => String::new(),
                    false => format!(" of {n_key_heads} keys{turns}"),
                };
                let weights = scan.kind.weights().map(|id| format!(", {}", self.weight(id)));
                let weights: String = weights.collect();
                format!("state {n_heads} x {key_dim} x {value_dim}{keys}{weights}")
            }
            Op::Act(act) => lower(act),
            Op::GatedAct(act) => gate(act),
            Op::Route(router) => self.router(router),
            Op::Experts { gate, up, down, biases, act, weighs_inputs, n_experts, n_used } => {
                let weighed = if *weighs_inputs { ", weighed inside" } else { "" };
                let biases =
                    biases.map(|biases| biases.all().map(|id| format!(" + {}", self.weight(id))));
                let [b_gate, b_up, b_down] = biases.unwrap_or_default();
                let [gate, up, down] = [(gate, b_gate), (up, b_up), (down, b_down)]
                    .map(|(id, bias)| self.weight(*id) + &bias);
                format!(
                    "{n_used} of {n_experts}, {gate}, {up}, {down}, {}{weighed}",
                    self::gate(act)
                )
            }
            Op::Scale(number) | Op::Shift(number) => number.to_string(),
            Op::SignedRoot { least } => format!("at least of {least:e}"),
            Op::Multiply { weight, by_group: _ } => self.weight(*weight),
            Op::Slice { start, len } => format!("{start}..{}", start + len),
            Op::Excess { deviations } => format!("{deviations} deviations"),
            Op::Sinkhorn { rounds, eps } => format!("{rounds} rounds, eps {eps:e}"),
            Op::Add | Op::View | Op::Turn | Op::Concat | Op::Mix | Op::Resize => String::new(),
            Op::SelectRows | Op::MeanRows | Op::SumGroups | Op::Softmax => String::new(),
        }
    }

    fn weight(&self, id: WeightId) -> String {
        let spec = self.program.weight(id);
        let shape = if spec.rows == 1 {
            format!("[{}]", spec.cols)
        } else {
            format!("[{}, {}]", spec.rows, spec.cols)
        };
        format!("{} {} {shape}", spec.name, spec.ty)
    }

    fn router(&self, router: &Router) -> String {
        let Router { n_used, gating, bias, groups, normalize, scale, factors, per_chunk } = router;
        let mut text = format!("best {n_used} by {}", lower(gating));
        if let Some(bias) = bias {
            text += &format!(" + {}", self.weight(*bias));
        }
        if let Some(Groups { n_groups, n_used, score }) = groups {
            let score = match score {
                GroupScore::Max => "maximum",
                GroupScore::TopTwoSum => "sum of two",
            };
            text += &format!(", in the best {n_used} of {n_groups} groups by {score}");
        }
        if *normalize {
            text += ", normalized";
        }
        if *scale != 1.0 {
            text += &format!(", x{scale}");
        }
        if *per_chunk > 1 {
            text += &format!(", {per_chunk} share one");
        }
        factors.map_or(text.clone(), |id| format!("{text}, x {}", self.weight(id)))
    }

    fn rotation(&self, rope: Option<&Rope>) -> String {
        rope.map_or_else(String::new, |rope| format!(", {}", self.rope(rope)))
    }

    fn score(&self, score: &Score) -> String {
        let Score { scale, mask, softcap, sinks, temperature, alibi } = score;
        let mut text = format!(", scale {scale}");
        match mask {
            Mask::Causal => {}
            Mask::Window(n) => text += &format!(", window {n}"),
            Mask::Chunk(n) => text += &format!(", chunks of {n}"),
            Mask::Full => text += ", all rows",
            Mask::Around(n) => text += &format!(", rows within {n}"),
        }
        if let Some(Temperature { beta, floor, offset }) = temperature {
            text += &format!(", temperature {beta} by (p + {offset}) / {floor}");
        }
        if let Some(softcap) = softcap {
            text += &format!(", softcap {softcap}");
        }
        if let Some(bias) = alibi {
            text += &format!(", ALiBi {bias}");
        }
        sinks.map_or(text.clone(), |sinks| format!("{text}, sinks {}", self.weight(sinks)))
    }

    fn rope(&self, rope: &Rope) -> String {
        let pairs = match rope.pairs {
            RopePairs::HalfSplit => "half-split",
            RopePairs::Interleaved => "interleaved",
        };
        let scaling = match rope.scaling {
            RopeScaling::None => String::new(),
            RopeScaling::First { pairs } => format!(", first {pairs} pairs"),
            RopeScaling::Linear { factor } => format!(", linear x{factor}"),
            RopeScaling::Long { attention_factor } => format!(", times {attention_factor}"),
            RopeScaling::Yarn { factor, original_context, .. } => {
                format!(", yarn x{factor} of {original_context}")
            }
        };
        let factors =
            rope.factors.map_or(String::new(), |id| format!(", factors {}", self.weight(id)));
        format!("rope {pairs} {} dims, theta {}{scaling}{factors}", rope.dims, rope.theta)
    }
}

fn cached(kind: &CacheKind) -> String {
    match kind {
        CacheKind::Heads { n_kv_heads, key_dim, value_dim, window } => {
            let window = window.map_or(String::new(), |window| format!(" of the last {window}"));
            format!("cache {n_kv_heads} x ({key_dim} + {value_dim}){window}")
        }
        CacheKind::Latent { rank, rope_dim } => format!("cache {rank} + {rope_dim}"),
        CacheKind::Keys { dim } => format!("cache {dim}"),
        CacheKind::State { elements, row: _ } => format!("state of {elements}"),
    }
}

fn selected(select: Option<Selection>) -> String {
    select.map_or_else(String::new, |select| format!(", of {}", units(select)))
}

fn units(select: Selection) -> String {
    match select {
        Selection { unit: 1, n_units, .. } => format!("{n_units} positions"),
        Selection { unit, n_units, has_tail: false } => format!("{n_units} units of {unit}"),
        Selection { unit, n_units, has_tail: true } => {
            format!("{} units of {unit} and what is behind them", n_units - 1)
        }
    }
}

fn lower(name: &impl fmt::Debug) -> String {
    format!("{name:?}").to_lowercase()
}

fn gate(gate: &Gate) -> String {
    match gate {
        Gate::Act(act) => lower(act),
        other => lower(other),
    }
}

fn shape(shape: Shape) -> String {
    let rows = match shape.rows {
        Rows::Tokens => "n",
        Rows::Selected => "selected",
    };
    match shape.groups {
        1 => format!("[{rows}, {}]", shape.dim),
        groups => format!("[{rows}, {groups}, {}]", shape.dim),
    }
}

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let name = |id: ValueId| self.program.value(id).name.clone();
        for &id in &self.program.inputs {
            writeln!(f, "{} = given -> {}", name(id), shape(self.program.value(id).shape))?;
        }
        // What the layer shown last looks like without its number, and the layers since that look the same.
        let mut shown: Option<Vec<String>> = None;
        let mut folded: Option<RangeInclusive<usize>> = None;
        let mut before: Option<ValueId> = None;
        for run in self.program.nodes.chunk_by(|a, b| a.layer == b.layer) {
            let pattern = run[0].layer.filter(|_| self.fold).map(|layer| {
                let own = format!("blk.{layer}.");
                let name = |id: ValueId| if Some(id) == before { "<".to_owned() } else { name(id) };
                run.iter()
                    .map(|node| self.line(node, &name).replace(&own, "blk.@."))
                    .collect::<Vec<_>>()
            });
            before = run.last().map(|node| node.output);
            if let (Some(layer), true) = (run[0].layer, pattern.is_some() && shown == pattern) {
                folded = Some(folded.map_or(layer, |range| *range.start())..=layer);
                continue;
            }
            write_fold(f, folded.take())?;
            shown = pattern;
            for node in run {
                writeln!(f, "{}", self.line(node, &name))?;
            }
        }
        write_fold(f, folded)?;
        let outputs = self.program.outputs.iter();
        for (_, id) in outputs.filter(|(kind, _)| *kind == OutputKind::Rows) {
            writeln!(f, "yields {} {}", name(*id), shape(self.program.value(*id).shape))?;
        }
        Ok(())
    }
}

fn write_fold(f: &mut Formatter<'_>, folded: Option<RangeInclusive<usize>>) -> fmt::Result {
    let Some((first, last)) = folded.map(RangeInclusive::into_inner) else { return Ok(()) };
    let model = first.saturating_sub(1);
    if first == last {
        writeln!(f, "blk.{first} as blk.{model}")
    } else {
        writeln!(f, "blk.{first} .. blk.{last} as blk.{model}")
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{
        Act, CacheSpec, ExpertWeights, Gating, LatentAttention, OutputKind, Recorder, Result,
        WeightSpec,
    };

    /// Four layers `x + w . x`; the last has a weight of another type.
    fn program() -> Result<Program> {
        let r = Recorder::new();
        let weight = |name: &str, ty, rows| {
            r.weight(WeightSpec { name: name.into(), ty, rows, cols: 32, start: 0 })
        };
        let mut x = r.embed(weight("token_embd.weight", GgmlType::F16, 8))?;
        for i in 0..4 {
            r.layer(Some(i));
            r.cache(CacheSpec { layer: i, kind: CacheKind::Latent { rank: 32, rope_dim: 32 } });
            let ty = if i == 3 { GgmlType::Q8_0 } else { GgmlType::Q4_0 };
            let h = r.linear("ffn_up", x, weight(&format!("blk.{i}.ffn_up.weight"), ty, 32))?;
            x = r.add("out", x, h)?;
        }
        r.layer(None);
        let rows = r.select_rows("rows", x)?;
        Ok(r.finish(&[(OutputKind::Logits, rows)]))
    }

    #[test]
    fn equal_layers_are_folded_into_one_line() {
        let program = program().unwrap();
        let want = "\
embed = embed(tokens) -> [n, 32]  token_embd.weight F16 [8, 32]
blk.0.ffn_up = linear(embed) -> [n, 32]  blk.0.ffn_up.weight Q4_0 [32, 32]
blk.0.out = add(embed, blk.0.ffn_up) -> [n, 32]
blk.1 .. blk.2 as blk.0
blk.3.ffn_up = linear(blk.2.out) -> [n, 32]  blk.3.ffn_up.weight Q8_0 [32, 32]
blk.3.out = add(blk.2.out, blk.3.ffn_up) -> [n, 32]
rows = select_rows(blk.3.out) -> [selected, 32]
";
        assert_eq!(program.listing().to_string(), want);
        assert_eq!(program.listing().unfolded().to_string().lines().count(), program.nodes.len());
    }

    #[test]
    fn latent_attention_and_experts_tell_what_they_are() {
        let r = Recorder::new();
        let weight = |name: &str, rows, cols| {
            r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
        };
        let x = r.embed(weight("table", 8, 12)).unwrap();
        let cache =
            r.cache(CacheSpec { layer: 0, kind: CacheKind::Latent { rank: 4, rope_dim: 2 } });
        let part = |name: &str, start, len| r.slice(name, x, start, len).unwrap();
        let inputs =
            [part("q_nope", 0, 3), part("q_pe", 3, 2), part("c", 5, 4), part("k_pe", 9, 2)];
        let rope = Rope {
            pairs: RopePairs::Interleaved,
            dims: 2,
            theta: 1e4,
            scaling: RopeScaling::None,
            factors: None,
        };
        let up = LatentUp::Joint { kv_b: weight("kv_b", 5, 4) };
        let at = LatentAttention::causal(cache, Some(rope), up, 0.5);
        r.latent_attention("attn", at, inputs).unwrap();
        let router = Router {
            n_used: 2,
            gating: Gating::Sigmoid,
            bias: Some(weight("bias", 1, 12)),
            groups: Some(Groups { n_groups: 6, n_used: 3, score: GroupScore::TopTwoSum }),
            normalize: true,
            scale: 2.5,
            factors: None,
            per_chunk: 1,
        };
        let routes = r.route("routes", x, router).unwrap();
        let weights = ExpertWeights {
            gate: weight("gate", 24, 12),
            up: weight("up", 24, 12),
            down: weight("down", 144, 2),
            biases: None,
            n_experts: 12,
            weighs_inputs: false,
        };
        r.experts("experts", weights, Act::Silu, x, routes).unwrap();
        let want = "\
embed = embed(tokens) -> [n, 12]  table F32 [8, 12]
q_nope = slice(embed) -> [n, 3]  0..3
q_pe = slice(embed) -> [n, 2]  3..5
c = slice(embed) -> [n, 4]  5..9
k_pe = slice(embed) -> [n, 2]  9..11
attn = latent_attention(q_nope, q_pe, c, k_pe) -> [n, 2]  cache 4 + 2, kv_b F32 [5, 4], rope interleaved 2 dims, \
theta 10000, scale 0.5
routes = route(embed) -> [n, 4]  best 2 by sigmoid + bias F32 [12], in the best 3 of 6 groups by sum of two, \
normalized, x2.5
experts = experts(embed, routes) -> [n, 12]  2 of 12, gate F32 [24, 12], up F32 [24, 12], down F32 [144, 2], silu
";
        assert_eq!(r.finish(&[]).listing().to_string(), want);
    }
}
