//! What each phase reads and writes.

use super::{AttentionPhase, Job, LatentInputs, Operand, Phase, Routes, RowOp, TableRows};

/// How a phase uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UseKind {
    /// Written before, and left as it is.
    Read,
    /// Written here for later phases.
    Write,
    /// Written before, and changed where it is: nobody reads it afterwards.
    Change,
    /// Written here for this phase alone.
    Inside,
}

/// One value that a phase uses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Use {
    pub(crate) access: UseKind,
    pub(crate) operand: Operand,
}

fn uses(access: UseKind, operands: impl IntoIterator<Item = Operand>) -> impl Iterator<Item = Use> {
    operands.into_iter().map(move |operand| Use { access, operand })
}

fn read(operands: impl IntoIterator<Item = Operand>) -> impl Iterator<Item = Use> {
    uses(UseKind::Read, operands)
}

fn write(operand: Operand) -> impl Iterator<Item = Use> {
    uses(UseKind::Write, [operand])
}

impl Phase {
    /// Every use of a value, in order; what a row phase makes and reads again is listed as both.
    pub(crate) fn uses(&self) -> Vec<Use> {
        match self {
            Phase::Embed { by, out, .. } => {
                let ids = match by {
                    TableRows::By(_) => None,
                    TableRows::Grams { ids, .. } => Some(*ids),
                };
                read(ids).chain(write(*out)).collect()
            }
            Phase::SelectRows { x, out } | Phase::MeanRows { x, out } => {
                read([*x]).chain(write(*out)).collect()
            }
            Phase::Rows(ops) => {
                ops.iter().flat_map(|op| read(op.inputs()).chain(write(op.out()))).collect()
            }
            Phase::Linear(linear) => {
                let jobs = linear.jobs.iter().flat_map(|job| {
                    let (links, out) = match job {
                        Job::One { links, out, .. } => (links.as_slice(), *out),
                        Job::Gated { out, .. } => (&[][..], *out),
                    };
                    read(links.iter().filter_map(|link| link.operand())).chain(write(out))
                });
                read([linear.x]).chain(jobs).collect()
            }
            Phase::Experts(phase) => {
                let links = phase.links.iter().filter_map(|link| link.operand());
                let all = read([phase.x]).chain(routes(&phase.routes)).chain(read(links));
                all.chain(write(phase.out)).collect()
            }
            Phase::Attention(AttentionPhase { q, new, chosen, out, .. }) => {
                let changed = [*q].into_iter().chain(new.map(|new| new.k));
                let others = new.map(|new| new.v).into_iter().chain(chosen.map(|c| c.units));
                uses(UseKind::Change, changed).chain(read(others)).chain(write(*out)).collect()
            }
            Phase::Conv(phase) => read([phase.x.operand]).chain(write(phase.out)).collect(),
            Phase::Scan(phase) => {
                let inputs = phase.inputs.iter().map(|input| input.operand);
                read(inputs).chain(write(phase.out)).collect()
            }
            Phase::Indexer(phase) => read([phase.q].into_iter().chain(phase.weights))
                .chain(read([phase.k]))
                .chain(write(phase.out))
                .collect(),
            Phase::Latent(phase) => read(latent(&phase.inputs))
                .chain(read(phase.chosen.map(|chosen| chosen.units)))
                .chain(write(phase.out))
                .collect(),
            Phase::Expand(phase) => read(latent(&phase.inputs))
                .chain(uses(UseKind::Inside, [phase.rows]))
                .chain(uses(UseKind::Write, [phase.q, phase.k, phase.v]))
                .collect(),
        }
    }
}

fn routes(routes: &Routes) -> impl Iterator<Item = Use> {
    let (given, made) = match routes {
        Routes::Given(routes) => (*routes, None),
        Routes::Scores { scores, routes, .. } => (*scores, Some(*routes)),
    };
    read([given]).chain(uses(UseKind::Inside, made))
}

fn latent(inputs: &LatentInputs) -> [Operand; 4] {
    [inputs.q_nope.operand, inputs.q_pe.operand, inputs.c.operand, inputs.k_pe.operand]
}

impl RowOp {
    /// What it reads.
    fn inputs(&self) -> Vec<Operand> {
        match self {
            RowOp::Norm { x, .. }
            | RowOp::Act { x, .. }
            | RowOp::Scale { x, .. }
            | RowOp::Shift { x, .. }
            | RowOp::Softmax { x, .. }
            | RowOp::Turn { x, .. }
            | RowOp::SignedRoot { x, .. }
            | RowOp::Sinkhorn { x, .. }
            | RowOp::Multiply { x, .. }
            | RowOp::Slice { x, .. }
            | RowOp::Excess { x, .. }
            | RowOp::Sums { x, .. }
            | RowOp::Route { scores: x, .. } => vec![*x],
            RowOp::GatedAct { gate: a, up: b, .. }
            | RowOp::Add { a, b, .. }
            | RowOp::Mix { weights: a, x: b, .. }
            | RowOp::Resize { x: a, y: b, .. } => vec![*a, *b],
            RowOp::Concat { values, .. } => values.clone(),
            RowOp::Ids { .. } => Vec::new(),
        }
    }
}
