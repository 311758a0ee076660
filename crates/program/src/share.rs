//! [`DeviceShare`]: what a device is to run of a program: its last layers, experts apart from them, weights by name.
//!
//! What is placed as one is a whole layer but for its experts, the experts of a layer, what stands before the layers, and
//! what stands behind them. [`Division`](crate::Division) places it, as far as the device takes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::division::{runs_of, starts};
use crate::{Node, Op, Program, Reading};

/// Layers that a device is to run, as far as it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceLayers {
    /// All of them.
    #[default]
    All,
    /// The last so many, what stands behind the layers (the output) counting as one; what stands before them goes with the
    /// first.
    ///
    /// Source: `i_gpu_start` in llama.cpp's src/llama-model.cpp.
    Last(usize),
}

impl DeviceLayers {
    /// The first of `n_layers` that it has; `n_layers` is the output.
    fn first(self, n_layers: usize) -> usize {
        match self {
            DeviceLayers::All => 0,
            DeviceLayers::Last(n) => (n_layers + 1).saturating_sub(n),
        }
    }
}

/// What a device is to run, as far as it can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceShare {
    /// These layers.
    pub layers: DeviceLayers,
    /// But for the experts, with their router, of the first so many of all layers.
    pub apart: usize,
    /// Weights by name, whatever the others say.
    pub named: WeightSides,
}

impl From<DeviceLayers> for DeviceShare {
    fn from(layers: DeviceLayers) -> DeviceShare {
        DeviceShare { layers, ..DeviceShare::default() }
    }
}

/// On which side weights are to lie that are named one by one: `true` is the device's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightSides(Arc<BTreeMap<String, bool>>);

impl FromIterator<(String, bool)> for WeightSides {
    fn from_iter<T: IntoIterator<Item = (String, bool)>>(sides: T) -> WeightSides {
        WeightSides(Arc::new(sides.into_iter().collect()))
    }
}

impl WeightSides {
    fn of(&self, name: &str) -> Option<bool> {
        self.0.get(name).copied()
    }

    /// Whether no weight is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is placed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Before,
    /// But for its experts.
    Layer(usize),
    Experts(usize),
    Output,
}

/// What is wanted of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedNode {
    /// On the device.
    pub(crate) on_device: bool,
    /// Because a weight beside it is named.
    pub(crate) named: bool,
}

/// A weight of a piece.
struct PieceWeight<'a> {
    name: &'a str,
    /// A matrix, or several: vectors go with those.
    decides: bool,
}

impl DeviceShare {
    /// By node of a program.
    pub(crate) fn wants(&self, program: &Program) -> Vec<WantedNode> {
        let (pieces, first) = (pieces(program), self.first(program));
        let weights = weights(program, &pieces);
        let wanted = |piece: &Piece| {
            let mut named = weights[piece].iter().filter(|weight| weight.decides);
            let named = named.find_map(|weight| self.named.of(weight.name));
            let default = self.default_of(*piece, first);
            WantedNode { on_device: named.unwrap_or(default), named: named.is_some() }
        };
        pieces.iter().map(wanted).collect()
    }

    /// What is wrong with the names in a line, if some of them would tear apart what is placed as one:
    /// `blk.1.ffn_up_exps.weight on the processor, blk.1.ffn_gate_exps.weight on the GPU: they belong together`.
    pub fn torn(&self, program: &Program) -> Option<String> {
        let (pieces, first) = (pieces(program), self.first(program));
        for (piece, weights) in weights(program, &pieces) {
            let default = self.default_of(piece, first);
            if weights.iter().all(|weight| self.named.of(weight.name).is_none()) {
                continue;
            }
            let named = |weight: &&PieceWeight<'_>| self.named.of(weight.name).is_some();
            // vectors that nobody names go with the matrices
            let counts = weights.iter().filter(|weight| weight.decides || named(weight));
            let side = |weight: &PieceWeight<'_>| self.named.of(weight.name).unwrap_or(default);
            let (there, here): (Vec<_>, Vec<_>) = counts.partition(|weight| side(weight));
            if !there.is_empty() && !here.is_empty() {
                let [here, there] = [here, there].map(|all| names(all.iter().map(|w| w.name)));
                return Some(format!(
                    "{here} on the processor, {there} on the GPU: they belong together"
                ));
            }
        }
        self.parted_caches(program)
    }

    /// Layers that share a cache, if names would have them on both sides.
    fn parted_caches(&self, program: &Program) -> Option<String> {
        let wants = self.wants(program);
        let starts = starts(program, &wants);
        let ends = starts.iter().skip(1).copied().chain([wants.len()]);
        let mut units = starts.iter().zip(ends).map(|(start, end)| *start..end);
        let parted = units.find(|unit| {
            let its = &wants[unit.clone()];
            its.iter().any(|node| node.named)
                && its.iter().any(|node| node.on_device != its[0].on_device)
        })?;
        let layers = program.nodes[parted].iter().filter_map(|node| node.layer).collect();
        let layers = runs_of(&layers);
        Some(format!("{layers} on both sides: they belong together, for they share a cache"))
    }

    /// The first layer that it has; their number is the output.
    fn first(&self, program: &Program) -> FirstLayer {
        let last = program.nodes.iter().filter_map(|node| node.layer).max();
        let n_layers = last.map_or(0, |last| last + 1);
        FirstLayer { first: self.layers.first(n_layers), n_layers }
    }

    /// Where a piece is without names.
    fn default_of(&self, piece: Piece, FirstLayer { first, n_layers }: FirstLayer) -> bool {
        match piece {
            Piece::Before => first == 0,
            Piece::Layer(layer) => layer >= first,
            Piece::Experts(layer) => layer >= first && layer >= self.apart,
            Piece::Output => n_layers >= first,
        }
    }
}

/// The first layer on a device, of so many; these are the output.
#[derive(Clone, Copy)]
struct FirstLayer {
    first: usize,
    n_layers: usize,
}

/// By piece, in the order of the program.
fn weights<'a>(program: &'a Program, pieces: &[Piece]) -> BTreeMap<Piece, Vec<PieceWeight<'a>>> {
    let mut all: BTreeMap<Piece, Vec<PieceWeight<'a>>> = BTreeMap::new();
    for (node, piece) in program.nodes.iter().zip(pieces) {
        let weights = all.entry(*piece).or_default();
        for used in node.op.facts().weights {
            let decides = match used.reading {
                Reading::Matrix | Reading::TableRow | Reading::Copies { .. } => true,
                Reading::Vector | Reading::Vectors { .. } => false,
                // layers on both sides may read it once
                Reading::OnLoad => continue,
            };
            let name = &*program.weight(used.id).name;
            match weights.iter_mut().find(|known| known.name == name) {
                Some(known) => known.decides |= decides,
                None => weights.push(PieceWeight { name, decides }),
            }
        }
    }
    all
}

/// `a, b, c and 4 more`.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<_> = all.collect();
    match all.len() {
        0..=3 => all.join(", "),
        n => format!("{} and {} more", all[..3].join(", "), n - 3),
    }
}

/// Whether a node is of the experts of its layer.
pub(crate) fn is_of_experts(node: &Node) -> bool {
    matches!(node.op, Op::Route(_) | Op::Experts { .. })
}

/// By node; what stands between two layers belongs to the one before.
fn pieces(program: &Program) -> Vec<Piece> {
    let layered = |node: &Node| node.layer.is_some();
    let behind = program.nodes.iter().rposition(layered).map_or(0, |last| last + 1);
    let mut before = Piece::Before;
    let pieces = program.nodes.iter().enumerate().map(|(index, node)| {
        let piece = match node.layer {
            Some(layer) if is_of_experts(node) => return Piece::Experts(layer),
            Some(layer) => Piece::Layer(layer),
            None if index >= behind => Piece::Output,
            None => before,
        };
        before = piece;
        piece
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recorder, WeightSpec};
    use quant::GgmlType;

    /// A table, two layers of two matrices and a norm, an output with a norm.
    fn program() -> Program {
        let r = Recorder::new();
        let weight = |name: &str, rows: usize| {
            let (name, ty) = (format!("{name}.weight"), GgmlType::F32);
            r.weight(WeightSpec { name, ty, rows, cols: 4, start: 0 })
        };
        let mut x = r.embed(weight("token_embd", 7)).expect("a table");
        for layer in 0..2 {
            r.layer(Some(layer));
            let name = |what: &str| format!("blk.{layer}.{what}");
            x = r.rms_norm("norm", x, weight(&name("attn_norm"), 1), 1e-6).expect("a norm");
            x = r.linear("up", x, weight(&name("ffn_up"), 4)).expect("a matrix");
            x = r.linear("down", x, weight(&name("ffn_down"), 4)).expect("a matrix");
        }
        r.layer(None);
        x = r.rms_norm("norm", x, weight("output_norm", 1), 1e-6).expect("a norm");
        x = r.linear("output", x, weight("output", 7)).expect("a matrix");
        r.finish(&[(crate::OutputKind::Logits, x)])
    }

    fn named(sides: &[(&str, bool)], layers: DeviceLayers) -> DeviceShare {
        let sides = sides.iter().map(|(name, side)| (format!("{name}.weight"), *side));
        DeviceShare { layers, named: sides.collect(), ..DeviceShare::default() }
    }

    #[test]
    fn names_win_and_carry_what_belongs_to_them() {
        let program = program();
        let told = |share: &DeviceShare| {
            assert_eq!(share.torn(&program), None);
            let wants = share.wants(&program).into_iter();
            wants.map(|node| if node.on_device { 'g' } else { 'c' }).collect::<String>()
        };
        let all = DeviceLayers::All;
        assert_eq!(told(&named(&[], all)), "ggggggggg");
        assert_eq!(told(&named(&[("token_embd", false)], all)), "cgggggggg");
        let layer = [("blk.1.ffn_up", false), ("blk.1.ffn_down", false)];
        assert_eq!(told(&named(&layer, all)), "ggggcccgg", "the norm goes with the matrices");
        assert_eq!(told(&named(&[("output", true)], DeviceLayers::Last(0))), "cccccccgg");
        assert_eq!(told(&named(&[("output", false)], DeviceLayers::Last(2))), "ccccgggcc");
    }

    #[test]
    fn what_would_be_torn_is_told_in_a_line() {
        let program = program();
        let all = DeviceLayers::All;
        let torn = |sides: &[(&str, bool)]| named(sides, all).torn(&program).expect("torn");
        assert_eq!(
            torn(&[("blk.0.ffn_up", false)]),
            "blk.0.ffn_up.weight on the processor, blk.0.ffn_down.weight on the GPU: they belong together"
        );
        let norm = torn(&[("output_norm", false)]);
        assert!(norm.starts_with("output_norm.weight on the processor, output.weight"), "{norm}");
        let both = [("blk.0.ffn_up", false), ("blk.0.ffn_down", true), ("blk.0.attn_norm", true)];
        assert!(torn(&both).contains("blk.0.attn_norm.weight, blk.0.ffn_down.weight on the GPU"));
        let last = named(&[("blk.0.ffn_up", false)], DeviceLayers::Last(2));
        assert_eq!(last.torn(&program), None, "they are there anyway");
    }
}
