//! [`Placements`]: what of a model a card should have that cannot hold all of it, by arithmetic intensity: what saves most
//! seconds for each byte that it keeps there. Executors place whole layers, and experts apart from the rest of their layers;
//! of all such placements the fastest is found by looking at each.

use program::{CacheOptions, Node, Op, Program, beside_experts};

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
    /// Bytes that the processor keeps.
    pub processor_bytes: u64,
    /// Times that a step asks the card.
    pub submissions: usize,
    /// For how many of these the processor waits: not for what the card computes of a layer while the processor has its
    /// experts.
    pub waits: usize,
    /// Seconds of a step, at the limit: processor and card take turns, but for that.
    pub seconds: f64,
}

/// The pieces of a model, and what they cost.
#[derive(Clone, Debug)]
pub struct Placements {
    layers: Vec<PlacedLayer>,
    /// What stands before the layers goes with the first of them.
    before: PlacedPiece,
    output: PlacedPiece,
    /// Bytes of tables that are read before the layers and behind them: kept once where both are on one side.
    tied: u64,
}

#[derive(Clone, Debug, Default)]
struct PlacedLayer {
    /// The layer but for its experts, and these.
    rest: PlacedPiece,
    experts: PlacedPiece,
    /// What of the rest needs nothing of the experts, nor they of it.
    meanwhile: PlacedPiece,
    /// Layers that share a cache are not divided: the first and the last of them.
    first: usize,
    last: usize,
}

impl PlacedLayer {
    fn has_experts(&self) -> bool {
        self.experts.resident > 0
    }
}

impl Placements {
    /// The pieces of `program`, and what a step does that ends a context of `cache.capacity` positions.
    pub fn of(program: &Program, cache: &CacheOptions) -> Placements {
        let options =
            CostOptions { k: cache.k, v: cache.v, policy: cache.policy, ..CostOptions::default() };
        let cost = Cost::of(program, &options);
        let pass = cost.pass(&Load::step((cache.capacity as u64).saturating_sub(1)));
        let layered = |node: &Node| node.layer.is_some();
        let n_layers =
            program.nodes.iter().filter_map(|node| node.layer).max().map_or(0, |last| last + 1);
        let behind = program.nodes.iter().rposition(layered).map_or(0, |last| last + 1);
        let whole = |layer| PlacedLayer { first: layer, last: layer, ..PlacedLayer::default() };
        let mut placements = Placements {
            layers: (0..n_layers).map(whole).collect(),
            before: PlacedPiece::default(),
            output: PlacedPiece::default(),
            tied: 0,
        };
        // by cache: the first layer that uses it, which keeps it
        let mut keeper = vec![None; program.caches.len()];
        let mut read_before = Vec::new();
        let beside = beside_experts(program);
        for ((index, node), (_, work)) in program.nodes.iter().enumerate().zip(pass.ops()) {
            let facts = node.op.facts();
            let weights = facts.weights.iter().map(|used| program.weight(used.id).bytes());
            let mut resident: u64 = weights.fold(0, u64::saturating_add);
            if let (Some(used), Some(layer)) = (facts.state, node.layer) {
                let spec = &program.caches[used.cache.0 as usize];
                match keeper[used.cache.0 as usize] {
                    Some(keeper) => placements.join(keeper, layer),
                    None => {
                        keeper[used.cache.0 as usize] = Some(layer);
                        resident = resident.saturating_add(spec.kind.bytes(cache.capacity, cache));
                    }
                }
            }
            let ids = || facts.weights.iter().map(|used| used.id);
            let is_expert = matches!(node.op, Op::Route(_) | Op::Experts { .. });
            let piece = match node.layer {
                Some(layer) if is_expert => &mut placements.layers[layer].experts,
                Some(layer) => &mut placements.layers[layer].rest,
                None if index >= behind => {
                    let again = ids().filter(|id| read_before.contains(id));
                    placements.tied += again.map(|id| program.weight(id).bytes()).sum::<u64>();
                    &mut placements.output
                }
                None => {
                    read_before.extend(ids());
                    &mut placements.before
                }
            };
            let its = PlacedPiece { resident, work: *work };
            piece.add(&its);
            if let Some(layer) = node.layer.filter(|_| beside[index]) {
                placements.layers[layer].meanwhile.add(&its);
            }
        }
        placements
    }

    /// Layers from one to the other are not divided.
    fn join(&mut self, from: usize, to: usize) {
        let first = self.layers[from].first.min(self.layers[to].first);
        let last = self.layers[from].last.max(self.layers[to].last);
        for layer in &mut self.layers[first..=last] {
            (layer.first, layer.last) = (first, last);
        }
    }

    /// All pieces of a kind together.
    pub fn of_kind(&self, kind: PlacedKind) -> PlacedPiece {
        let mut sum = PlacedPiece::default();
        match kind {
            PlacedKind::Output => return self.output,
            PlacedKind::Layer => self.layers.iter().for_each(|layer| sum.add(&layer.rest)),
            PlacedKind::Experts => self.layers.iter().for_each(|layer| sum.add(&layer.experts)),
        }
        sum
    }

    /// What comes of the last `layers` on the card, but for the experts of the first `apart` layers: what is not divided
    /// goes there whole or not at all.
    pub fn step(&self, layers: usize, apart: usize, beside: &CardBeside) -> PlacedStep {
        let n = self.layers.len();
        let layers = layers.min(n + 1);
        let from = n + 1 - layers;
        let mut sides = [PlacedPiece::default(), PlacedPiece::default()];
        // where each piece lies, in the order of a step
        let mut order = Vec::with_capacity(2 * n + 1);
        let time = |piece: &PlacedPiece, machine| Prediction::of_work(&piece.work, machine).limit();
        let (mut at_once, mut besides) = (0.0, 0);
        let on_card = |layer: &PlacedLayer| {
            let splits = layer.last > layer.first
                && (layer.first..apart.min(layer.last + 1)).any(|i| self.layers[i].has_experts());
            layer.first >= from && !splits
        };
        for (index, layer) in self.layers.iter().enumerate() {
            let on_card = on_card(layer);
            sides[usize::from(on_card)].add(&layer.rest);
            order.push(on_card);
            if layer.has_experts() {
                let with_it = on_card && index >= apart;
                sides[usize::from(with_it)].add(&layer.experts);
                order.push(with_it);
                if on_card && !with_it && layer.meanwhile.resident > 0 {
                    // the layer ends when both have, the card once it was asked
                    let asked = time(&layer.meanwhile, &beside.card) + beside.submission;
                    let experts = time(&layer.experts, &beside.processor);
                    at_once += asked.min(experts) - beside.submission;
                    besides += 1;
                }
            }
        }
        let (before, output) = (order.first().is_some_and(|first| *first), layers > 0);
        sides[usize::from(before)].add(&self.before);
        sides[usize::from(output)].add(&self.output);
        if before == output {
            sides[usize::from(output)].resident -= self.tied;
        }
        order.push(output);
        let begins = |i: usize| order[i] && (i == 0 || !order[i - 1]);
        let waits = (0..order.len()).filter(|i| begins(*i)).count();
        let [processor, card] = sides;
        let in_turn = time(&processor, &beside.processor) + time(&card, &beside.card);
        let asking = waits as f64 * beside.submission;
        PlacedStep {
            layers,
            apart,
            card_bytes: card.resident,
            processor_bytes: processor.resident,
            submissions: waits + besides,
            waits,
            seconds: in_turn - at_once + asking,
        }
    }

    /// The fastest placement that the card has room for, which may be none of the model; of equally fast ones that which
    /// keeps least there.
    pub fn best(&self, beside: &CardBeside) -> PlacedStep {
        let n = self.layers.len();
        let with_experts = (0..n).filter(|layer| self.layers[*layer].has_experts());
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

    /// The same where it is known better what the card would take of a placement (`taken`, in bytes: weights as they lie there,
    /// what steps work in): the fastest by the figures here of those that take no more than `room`.
    pub fn best_within(
        &self,
        beside: &CardBeside,
        room: f64,
        taken: &mut dyn FnMut(&PlacedStep) -> Option<u64>,
    ) -> PlacedStep {
        let mut beside = *beside;
        loop {
            let placed = self.best(&beside);
            let excess = taken(&placed).map_or(0.0, |bytes| bytes as f64 - room);
            if placed.layers == 0 || excess <= 0.0 {
                return placed;
            }
            // the next one keeps less by so much, and by something at least
            beside.memory = (placed.card_bytes as f64 - excess.max(1.0)).max(0.0);
        }
    }
}
