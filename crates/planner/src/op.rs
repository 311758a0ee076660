//! [`OpCost`]: what one op reads and computes, from its fact sheet.

use program::{
    CacheKind, CacheType, Counted, Mask, MlaDims, Node, Program, Reading, Rows, Selection,
    StateCopies, ValueId,
};

use crate::cost::{CostKind, CostOptions, Load, Numbers, Work, n_weights};
use crate::formula::{positions_seen, product};
use crate::latent::LatentCost;
use crate::moe::most_experts;
use crate::reads::{Reads, choosing};

/// One op and what its cost depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct OpCost {
    /// The node's name, e.g. `blk.3.attn_q`.
    pub name: String,
    /// Its layer, if any.
    pub layer: Option<usize>,
    /// Its part of the model.
    pub kind: CostKind,
    /// Rows that are computed; `None` if nothing needs any.
    rows: Option<Rows>,
    reads: Vec<Read>,
    /// Of each row: multiply-adds with weights, elements. And the barriers of a pass.
    per_row: Work,
    state: Option<StateCost>,
    /// Inputs and output: their rows, and bytes of a row.
    values: Vec<(Rows, u64)>,
    processor_cache: u64,
}

/// Weights that are read alike.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Read {
    reading: Reading,
    /// Of which they consist: rows of a table, experts.
    parts: u64,
    /// Of one part.
    weights: u64,
    /// Of one part.
    bytes: u64,
}

impl Read {
    /// In a pass of `rows` rows, at least one.
    fn work(&self, rows: u64) -> Work {
        let (least, most) = match self.reading {
            Reading::Matrix | Reading::Vector => (1, 1),
            Reading::TableRow => (rows.min(self.parts), rows.min(self.parts)),
            Reading::Copies { n, n_used } | Reading::Vectors { n, n_used } => (
                most_experts(n as u64, n_used as u64, 1),
                most_experts(n as u64, n_used as u64, rows),
            ),
            Reading::OnLoad => (0, 0),
        };
        Work {
            weights: self.weights.saturating_mul(least),
            weight_bytes: self.bytes.saturating_mul(least),
            most_weight_bytes: self.bytes.saturating_mul(most),
            ..Work::default()
        }
    }
}

/// What an op does with its cache.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StateCost {
    Heads(HeadsCost),
    Latent(LatentCost),
    Indexer(IndexerCost),
    Recurrent(RecurrentCost),
}

/// Scores of positions of which some are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
struct IndexerCost {
    /// Of one key.
    position_bytes: u64,
    /// Multiply-adds per query and position.
    macs: (Numbers, u64),
    /// Queries that share one read of the keys.
    tile: u64,
    select: Selection,
}

impl IndexerCost {
    /// `rows` queries, the last ones of `tokens` new positions after `past`: those that read all they see score nothing.
    fn work(&self, past: u64, tokens: u64, rows: u64) -> Work {
        let before = past.saturating_add(tokens - rows);
        let [all, choosing] = choosing(&self.select, before, rows);
        let before = before.saturating_add(all);
        let pairs = positions_seen(Mask::Causal, before, choosing, 1);
        let read = positions_seen(Mask::Causal, before, choosing, self.tile);
        let (numbers, macs) = self.macs;
        Work {
            cache_read_bytes: read.saturating_mul(self.position_bytes),
            cache_write_bytes: tokens.saturating_mul(self.position_bytes),
            barriers: u64::from(tokens > 0),
            ..Work::of_macs(numbers, pairs.saturating_mul(macs))
        }
    }
}

/// A state of fixed size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecurrentCost {
    /// Of the state.
    bytes: u64,
    /// Of what a row gives.
    row_bytes: u64,
    /// Multiply-adds of a row.
    products: u64,
}

/// Rows from one state that is written to the next, at least.
const ROWS_PER_STATE: u64 = 8;
/// Last rows of a long pass that are kept beside the state that it writes: the others are in that.
const ROWS_KEPT: u64 = 16;
/// Most rows of a pass that are all kept.
const SHORT: u64 = StateCopies::ROWS as u64;

impl RecurrentCost {
    fn of(kind: Option<CacheKind>, products: u64) -> RecurrentCost {
        let Some(kind @ CacheKind::State { row, .. }) = kind else {
            unreachable!("the recorder gave it a state")
        };
        let (bytes, row_bytes) = (kind.state_bytes(), (row as u64).saturating_mul(4));
        RecurrentCost { bytes, row_bytes, products }
    }

    /// `tokens` rows after `past` positions: a pass reads the state once, where there is one, and writes it if it has enough
    /// rows, and the last ones beside it.
    fn work(&self, past: u64, tokens: u64) -> Work {
        let written = match past {
            0 if tokens <= ROWS_KEPT => 0,
            _ => product(&[self.bytes, tokens.min(ROWS_PER_STATE)]) / ROWS_PER_STATE,
        };
        let kept = if tokens <= SHORT { tokens } else { ROWS_KEPT };
        let kept = product(&[kept, self.row_bytes]);
        Work {
            cache_read_bytes: if tokens == 0 || past == 0 { 0 } else { self.bytes },
            cache_write_bytes: written.saturating_add(kept),
            f32_macs: product(&[tokens, self.products]),
            ..Work::default()
        }
    }
}

/// Attention over keys and values.
#[derive(Clone, Copy, Debug, PartialEq)]
struct HeadsCost {
    /// Of one cached position.
    position_bytes: u64,
    /// Whether new positions are written.
    appends: bool,
    /// Multiply-adds per query and position: for scores, and for sums.
    macs: [(Numbers, u64); 2],
    /// Queries that share one read of the cache.
    tile: u64,
    reads: Reads,
    kind: CacheKind,
}

impl HeadsCost {
    /// `rows` queries, the last ones of `tokens` new positions after `past`.
    fn work(&self, past: u64, tokens: u64, rows: u64) -> Work {
        // Keys and values enter the cache even if nothing is asked of this layer.
        let before = past.saturating_add(tokens - rows);
        let written = if self.appends { tokens } else { 0 };
        let read = self.reads.positions(before, rows, self.tile);
        let pairs = self.reads.positions(before, rows, 1);
        let anchors = self.reads.index_bytes(before, rows, self.tile, &self.kind);
        let promises = self.reads.index_bytes(before, rows, 1, &self.kind) / 4;
        let (keys, all) = (self.macs[0].1, self.macs[0].1 + self.macs[1].1);
        let key_bytes = self.position_bytes.saturating_mul(keys) / all.max(1);
        let asked = self.reads.asked_keys(before, rows, self.tile).saturating_mul(key_bytes);
        let asking = self.reads.asked_keys(before, rows, 1).saturating_mul(keys);
        let of =
            |(numbers, macs): (Numbers, u64)| Work::of_macs(numbers, pairs.saturating_mul(macs));
        let moved = Work {
            cache_read_bytes: read
                .saturating_mul(self.position_bytes)
                .saturating_add(anchors)
                .saturating_add(asked),
            cache_write_bytes: written.saturating_mul(self.position_bytes),
            barriers: u64::from(tokens > 0),
            ..Work::default()
        };
        let chosen = Work::of_macs(Numbers::of_cache(CacheType::F32), promises);
        let asking = Work::of_macs(self.macs[0].0, asking);
        self.macs.into_iter().map(of).chain([moved, chosen, asking]).sum()
    }
}

impl OpCost {
    /// Of a node, given the rows of each value that are computed. `shares_input`: the matrices before it read the same
    /// value, so that all threads have met already.
    pub(crate) fn of(
        program: &Program,
        node: &Node,
        rows: &[Option<Rows>],
        options: &CostOptions,
        shares_input: bool,
    ) -> OpCost {
        let facts = node.op.facts();
        let mut reads: Vec<Read> = Vec::new();
        let mut macs = Work::default();
        let mut biases = 0u64;
        for used in &facts.weights {
            let spec = program.weight(used.id);
            let parts = used.reading.parts(spec);
            let (weights, bytes) = (n_weights(spec) / parts, spec.bytes() / parts);
            match reads.iter_mut().find(|read| read.reading == used.reading && read.parts == parts)
            {
                Some(read) => {
                    read.weights = read.weights.saturating_add(weights);
                    read.bytes = read.bytes.saturating_add(bytes);
                }
                None => reads.push(Read { reading: used.reading, parts, weights, bytes }),
            }
            let per_row = weights.saturating_mul(used.reading.parts_per_row());
            match used.reading {
                Reading::Matrix | Reading::Copies { .. } => {
                    macs = macs.plus(&Work::of_macs(Numbers::of_weights(spec.ty), per_row));
                }
                Reading::Vector | Reading::Vectors { .. } => {
                    biases = biases.saturating_add(per_row);
                }
                Reading::TableRow | Reading::OnLoad => {}
            }
        }
        let cols = |id: &ValueId| program.value(*id).shape.cols() as u64;
        let tile = options.query_tile.max(1) as u64;
        let position_bytes = facts
            .state
            .map_or(0, |used| program.cache(used.cache).kind.position_bytes(options.k, options.v));
        let (kind, per_row, state) = match facts.counted {
            Counted::Lookup => (CostKind::Embed, Work { barriers: 1, ..Work::default() }, None),
            Counted::Matrices => {
                let kind = if node.layer.is_none() { CostKind::Head } else { CostKind::Linear };
                let barriers = u64::from(!shares_input);
                (kind, Work { elements: biases, barriers, ..macs }, None)
            }
            Counted::Experts { n_used, down, .. } => {
                // two tasks, each with all experts in it: to the activations, and to their weighted sum
                let each = (program.weight(down).cols as u64).saturating_add(cols(&node.output));
                let elements = product(&[n_used as u64, each]);
                (CostKind::Linear, Work { elements, barriers: 2, ..macs }, None)
            }
            Counted::Attention { mask, select } => {
                let appends = node.appends_to().is_some();
                // a query's width for scores, an output's for sums
                let macs = [
                    (Numbers::of_cache(options.k), cols(&node.inputs[0])),
                    (Numbers::of_cache(options.v), cols(&node.output)),
                ];
                let cache = facts.state.expect("attention has a cache").cache;
                let seen = Reads::of(program, node, cache, mask, &options.policy);
                let reads = select.map_or(seen, Reads::Selected);
                let kind = program.cache(cache).kind;
                let heads = HeadsCost { position_bytes, appends, macs, tile, reads, kind };
                (CostKind::Attention, Work::default(), Some(StateCost::Heads(heads)))
            }
            Counted::LatentAttention { select } => {
                let numbers = Numbers::of_cache(options.k);
                let dims = MlaDims::of(program, node);
                let latent = LatentCost { dims, numbers, position_bytes, tile, select };
                (CostKind::Attention, Work::default(), Some(StateCost::Latent(latent)))
            }
            Counted::Indexer { select } => {
                let macs = (Numbers::of_cache(options.k), cols(&node.inputs[0]));
                let indexer = IndexerCost { position_bytes, macs, tile, select };
                (CostKind::Attention, Work::default(), Some(StateCost::Indexer(indexer)))
            }
            Counted::State { products } => {
                let kind = facts.state.map(|used| program.cache(used.cache).kind);
                let recurrent = RecurrentCost::of(kind, products as u64);
                let once = Work { barriers: 1, ..Work::default() };
                (CostKind::States, once, Some(StateCost::Recurrent(recurrent)))
            }
            Counted::Norm | Counted::Elements => {
                let elements = node.inputs.iter().map(cols).max().unwrap_or(0);
                (CostKind::Rest, Work { elements, ..Work::default() }, None)
            }
            Counted::Nothing => (CostKind::Rest, Work::default(), None),
        };
        let rows_of = |value: ValueId| rows[value.0 as usize];
        let passed_on = |value: &ValueId| Some((rows_of(*value)?, 4 * cols(value)));
        let values = node.inputs.iter().chain([&node.output]).filter_map(passed_on);
        let moves = facts.counted != Counted::Nothing;
        OpCost {
            name: program.value(node.output).name.clone(),
            layer: node.layer,
            kind,
            rows: rows_of(node.output),
            reads,
            per_row,
            state,
            values: values.filter(|_| moves).collect(),
            processor_cache: options.processor_cache,
        }
    }

    /// Whether all passes cost the same of both.
    pub(crate) fn costs_as(&self, other: &OpCost) -> bool {
        let OpCost {
            name: _,
            layer: _,
            kind,
            rows,
            reads,
            per_row,
            state,
            values,
            processor_cache,
        } = self;
        (kind, rows, per_row) == (&other.kind, &other.rows, &other.per_row)
            && (reads, state, values) == (&other.reads, &other.state, &other.values)
            && *processor_cache == other.processor_cache
    }

    /// In one pass.
    pub(crate) fn work(&self, load: &Load) -> Work {
        let outputs = load.outputs.min(load.tokens);
        let count = |rows: Rows| match rows {
            Rows::Tokens => load.tokens,
            Rows::Selected => outputs,
        };
        let rows = self.rows.map_or(0, count);
        let mut work = match self.state {
            Some(StateCost::Heads(heads)) => heads.work(load.past, load.tokens, rows),
            Some(StateCost::Latent(latent)) => latent.work(load.past, load.tokens, rows),
            Some(StateCost::Indexer(indexer)) => indexer.work(load.past, load.tokens, rows),
            Some(StateCost::Recurrent(recurrent)) => recurrent.work(load.past, load.tokens),
            None => Work::default(),
        };
        if rows > 0 {
            let each = Work { barriers: 0, ..self.per_row }.times(rows);
            let once = Work { barriers: self.per_row.barriers, ..Work::default() };
            let read: Work = self.reads.iter().map(|read| read.work(rows)).sum();
            work = work.plus(&read).plus(&each).plus(&once);
        }
        let bytes = self.values.iter().map(|(rows, bytes)| count(*rows).saturating_mul(*bytes));
        let far = bytes.filter(|bytes| *bytes > self.processor_cache);
        Work { activation_bytes: far.fold(0, u64::saturating_add), ..work }
    }

    /// Weights of embedding tables, all rows.
    pub(crate) fn table_weights(&self) -> u64 {
        self.weights_of(|read| match read.reading {
            Reading::TableRow => read.parts,
            Reading::Matrix
            | Reading::Vector
            | Reading::Vectors { .. }
            | Reading::Copies { .. }
            | Reading::OnLoad => 0,
        })
    }

    /// Weights of the experts that one row does not use.
    pub(crate) fn idle_weights(&self) -> u64 {
        self.weights_of(|read| match read.reading {
            Reading::Copies { n, n_used } | Reading::Vectors { n, n_used } => {
                n.saturating_sub(n_used) as u64
            }
            Reading::Matrix | Reading::Vector | Reading::TableRow | Reading::OnLoad => 0,
        })
    }

    fn weights_of(&self, parts: impl Fn(&Read) -> u64) -> u64 {
        let each = |read: &Read| parts(read).saturating_mul(read.weights);
        self.reads.iter().map(each).fold(0, u64::saturating_add)
    }

    /// The same where every query reads the cache for itself.
    pub(crate) fn untile(&mut self) {
        match &mut self.state {
            Some(StateCost::Heads(heads)) => heads.tile = 1,
            Some(StateCost::Latent(latent)) => latent.tile = 1,
            Some(StateCost::Indexer(indexer)) => indexer.tile = 1,
            Some(StateCost::Recurrent(_)) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys are written for all rows, and read by those that choose.
    #[test]
    fn an_indexer_reads_where_there_is_a_choice() {
        let select = Selection { unit: 1, n_units: 100, has_tail: false };
        let macs = (Numbers::F16, 64);
        let cost = IndexerCost { position_bytes: 10, macs, tile: u64::MAX, select };
        let work = |past, tokens, rows| {
            let work = cost.work(past, tokens, rows);
            (work.f16_macs, work.cache_read_bytes, work.cache_write_bytes)
        };
        assert_eq!(work(0, 100, 100), (0, 0, 1000));
        assert_eq!(work(100, 1, 1), (64 * 101, 10 * 101, 10));
        assert_eq!(work(0, 102, 102), (64 * (101 + 102), 10 * 102, 1020));
        assert_eq!(work(200, 5, 0), (0, 0, 50));
    }

    /// What a session reads and writes of a state by rule: every eighth step writes one, a prompt one and its last rows.
    #[test]
    fn states_are_written_when_rows_have_come_together() {
        let cost = RecurrentCost { bytes: 8000, row_bytes: 10, products: 3 };
        let moved = |past, tokens| {
            let work = cost.work(past, tokens);
            assert_eq!(work.f32_macs, 3 * tokens);
            (work.cache_read_bytes, work.cache_write_bytes)
        };
        assert_eq!(moved(0, 0), (0, 0));
        assert_eq!(moved(0, 1), (0, 10), "there is no state yet, and none is made");
        assert_eq!(moved(0, 16), (0, 160));
        assert_eq!(moved(100, 32), (8000, 8000 + 320), "a short pass keeps all of its rows");
        assert_eq!(moved(100, 33), (8000, 8000 + 160));
        assert_eq!(moved(0, 512), (0, 8000 + 160), "rows that are in the state are not kept");
        assert_eq!(moved(100, 1), (8000, 1000 + 10));
        assert_eq!(moved(100, 4), (8000, 4000 + 40));
        assert_eq!(moved(100, 512), (8000, 8000 + 160));
    }
}
