//! [`Placements`]: what of a model a card should have that cannot hold all of it, by arithmetic intensity: what saves most
//! seconds for each byte that it keeps there. Executors place whole layers, and experts apart from the rest of their layers;
//! of all such placements the fastest is found by looking at each.

use program::{CacheOptions, Op, Program};

use crate::cost::{Cost, CostOptions, Load, Work};
use crate::predict::{Machine, Prediction};

/// What is placed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacedKind {
    /// What stands behind the layers: norm and matrix of the output.
    Output,
    /// A layer but for its experts, with its cache.
    Layer,
    /// The experts of a layer, with their router.
    Experts,
}

impl PlacedKind {
    /// Every kind, by what stands first in a table.
    pub const ALL: [PlacedKind; 3] = [PlacedKind::Output, PlacedKind::Layer, PlacedKind::Experts];

    /// Name for tables.
    pub fn name(self) -> &'static str {
        match self {
            PlacedKind::Output => "output",
            PlacedKind::Layer => "layers",
            PlacedKind::Experts => "experts",
        }
    }
}

/// All pieces of one kind, or one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlacedPiece {
    /// Bytes of weights and cache that it keeps.
    pub resident: u64,
    /// What a step does there.
    pub work: Work,
}

impl PlacedPiece {
    fn add(&mut self, other: &PlacedPiece) {
        self.resident = self.resident.saturating_add(other.resident);
        self.work = self.work.plus(&other.work);
    }

    /// Seconds of a step that a card saves for each byte that it keeps there; less than nothing where it is slower.
    pub fn density(&self, processor: &Machine, card: &Machine) -> f64 {
        let time = |machine| Prediction::of_work(&self.work, machine).limit();
        match self.resident {
            0 => 0.0,
            bytes => (time(processor) - time(card)) / bytes as f64,
        }
    }
}

/// A processor and a card beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardBeside {
    /// What the processor can do at most.
    pub processor: Machine,
    /// What the card can.
    pub card: Machine,
    /// Bytes of the card's memory for weights and cache.
    pub memory: f64,
    /// Seconds until the processor has what it asked the card for, for each time that it asks.
    pub submission: f64,
}

/// Layers and experts on a card, and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlacedStep {
    /// The last so many layers are on the card, the output counting as one.
    pub layers: usize,
    /// But for the experts of the first so many layers.
    pub apart: usize,
    /// Bytes that the card keeps.
    pub card_bytes: u64,
    /// Times that a step asks the card.
    pub submissions: usize,
    /// Seconds of a step, at the limit: processor and card take turns.
    pub seconds: f64,
}

/// The pieces of a model, and what they cost.
#[derive(Clone, Debug)]
pub struct Placements {
    /// By layer: the layer but for its experts, and these.
    layers: Vec<[PlacedPiece; 2]>,
    /// What stands before the layers goes with the first of them.
    before: PlacedPiece,
    output: PlacedPiece,
}

impl Placements {
    /// The pieces of `program`, and what a step does that ends a context of `cache.capacity` positions.
    pub fn of(program: &Program, cache: &CacheOptions) -> Placements {
        let options =
            CostOptions { k: cache.k, v: cache.v, policy: cache.policy, ..CostOptions::default() };
        let cost = Cost::of(program, &options);
        let pass = cost.pass(&Load::step((cache.capacity as u64).saturating_sub(1)));
        let layered = |node: &program::Node| node.layer.is_some();
        let n_layers =
            program.nodes.iter().filter_map(|node| node.layer).max().map_or(0, |last| last + 1);
        let behind = program.nodes.iter().rposition(layered).map_or(0, |last| last + 1);
        let mut placements = Placements {
            layers: vec![Default::default(); n_layers],
            before: PlacedPiece::default(),
            output: PlacedPiece::default(),
        };
        // what several nodes use lies where the first of them is
        let mut caches_seen = vec![false; program.caches.len()];
        for ((index, node), (_, work)) in program.nodes.iter().enumerate().zip(pass.ops()) {
            let facts = node.op.facts();
            let weights = facts.weights.iter().map(|used| program.weight(used.id).bytes());
            let mut resident: u64 = weights.fold(0, u64::saturating_add);
            if let Some(used) = facts.state {
                let id = used.cache.0 as usize;
                if !std::mem::replace(&mut caches_seen[id], true) {
                    let bytes = program.caches[id].kind.bytes(cache.capacity, cache);
                    resident = resident.saturating_add(bytes);
                }
            }
            let is_expert = matches!(node.op, Op::Route(_) | Op::Experts { .. });
            let piece = match node.layer {
                Some(layer) => &mut placements.layers[layer][usize::from(is_expert)],
                None if index >= behind => &mut placements.output,
                None => &mut placements.before,
            };
            piece.add(&PlacedPiece { resident, work: *work });
        }
        placements
    }

    /// All pieces of a kind together.
    pub fn of_kind(&self, kind: PlacedKind) -> PlacedPiece {
        let which = match kind {
            PlacedKind::Output => return self.output,
            PlacedKind::Layer => 0,
            PlacedKind::Experts => 1,
        };
        let mut sum = PlacedPiece::default();
        self.layers.iter().for_each(|layer| sum.add(&layer[which]));
        sum
    }

    /// Whether a layer has experts.
    fn has_experts(&self, layer: usize) -> bool {
        self.layers[layer][1].resident > 0
    }

    /// What comes of the last `layers` on the card, but for the experts of the first `apart` layers.
    pub fn step(&self, layers: usize, apart: usize, beside: &CardBeside) -> PlacedStep {
        let n = self.layers.len();
        let layers = layers.min(n + 1);
        let first = n + 1 - layers;
        let mut sides = [PlacedPiece::default(), PlacedPiece::default()];
        let mut submissions = usize::from(layers > 0);
        for (layer, [rest, experts]) in self.layers.iter().enumerate() {
            let on_card = layer >= first;
            sides[usize::from(on_card)].add(rest);
            let apart = layer < apart && self.has_experts(layer);
            sides[usize::from(on_card && !apart)].add(experts);
            submissions += usize::from(on_card && apart);
        }
        sides[usize::from(first == 0)].add(&self.before);
        sides[usize::from(layers > 0)].add(&self.output);
        let [processor, card] = sides;
        let time = |side: &PlacedPiece, machine| Prediction::of_work(&side.work, machine).limit();
        let asking = submissions as f64 * beside.submission;
        PlacedStep {
            layers,
            apart,
            card_bytes: card.resident,
            submissions,
            seconds: time(&processor, &beside.processor) + time(&card, &beside.card) + asking,
        }
    }

    /// The fastest placement that the card has room for, which may be none of the model; of equally fast ones that which
    /// keeps least there.
    pub fn best(&self, beside: &CardBeside) -> PlacedStep {
        let n = self.layers.len();
        let with_experts = (0..n).filter(|layer| self.has_experts(*layer));
        // another number of layers apart changes nothing
        let aparts: Vec<usize> =
            std::iter::once(0).chain(with_experts.map(|layer| layer + 1)).collect();
        let all = (0..=n + 1).flat_map(|layers| aparts.iter().map(move |apart| (layers, *apart)));
        let all = all.map(|(layers, apart)| self.step(layers, apart, beside));
        let fits = all.filter(|placed| placed.card_bytes as f64 <= beside.memory);
        let order = |a: &PlacedStep, b: &PlacedStep| {
            a.seconds.total_cmp(&b.seconds).then(a.card_bytes.cmp(&b.card_bytes))
        };
        fits.min_by(order).unwrap_or_else(|| self.step(0, 0, beside))
    }
}
