//! Which buffer each value lives in: values whose lives do not overlap share one.

use std::collections::{BTreeMap, HashSet};

use program::{Rows, ValueId};

use super::uses::{Use, UseKind};
use super::{Operand, Phase, Plan};

/// Index of a buffer in [`Buffers::specs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BufferId(pub(crate) usize);

/// Memory for `[rows, cols]` f32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferSpec {
    pub(crate) rows: Rows,
    pub(crate) cols: usize,
}

/// The buffers of a plan, and who lives where.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Buffers {
    pub(crate) specs: Vec<BufferSpec>,
    /// By value; `None` for values that no phase keeps.
    pub(crate) of: Vec<Option<BufferId>>,
}

/// When a value is used: numbers of phases, both included.
#[derive(Clone, Copy, Debug)]
struct Life {
    first: usize,
    last: usize,
    operand: Operand,
}

/// The life of every value: what is given lives from the beginning, what is handed out to the end.
fn lives(plan: &Plan) -> BTreeMap<ValueId, Life> {
    let given = plan.inputs.iter().map(|&operand| Life { first: 0, last: 0, operand });
    let mut lives: BTreeMap<ValueId, Life> = given.map(|life| (life.operand.value, life)).collect();
    for (index, phase) in plan.phases.iter().enumerate() {
        for Use { operand, .. } in phase.uses() {
            let life = Life { first: index, last: index, operand };
            lives.entry(operand.value).or_insert(life).last = index;
        }
    }
    for kept in plan.handed.iter().chain(&plan.logits).chain(&plan.hidden) {
        if let Some(life) = lives.get_mut(&kept.value) {
            life.last = usize::MAX;
        }
    }
    lives
}

impl Buffers {
    /// Give values buffers; a buffer is free again after the phase that uses its value last.
    pub(crate) fn assign(plan: &Plan) -> Buffers {
        let lives = lives(plan);
        let n_values = lives.keys().last().map_or(0, |value| value.0 as usize + 1);
        let mut buffers = Buffers { specs: Vec::new(), of: vec![None; n_values] };
        let mut free: Vec<BufferId> = Vec::new();
        for &operand in &plan.inputs {
            let buffer = buffers.take(&mut free, operand);
            buffers.of[operand.value.0 as usize] = Some(buffer);
        }
        for (index, phase) in plan.phases.iter().enumerate() {
            let mut used = Vec::new();
            for Use { operand, .. } in phase.uses() {
                if buffers.of[operand.value.0 as usize].is_none() {
                    let buffer = buffers.take(&mut free, operand);
                    buffers.of[operand.value.0 as usize] = Some(buffer);
                }
                used.push(operand.value);
            }
            used.sort();
            used.dedup();
            let done = used.into_iter().filter(|value| lives[value].last == index);
            free.extend(done.filter_map(|value| buffers.of[value.0 as usize]));
        }
        buffers
    }

    /// A free buffer that `operand` fits into once it is widened, or a new one.
    fn take(&mut self, free: &mut Vec<BufferId>, operand: Operand) -> BufferId {
        match free.iter().position(|b| self.specs[b.0].rows == operand.rows) {
            Some(at) => {
                let buffer = free.swap_remove(at);
                let cols = &mut self.specs[buffer.0].cols;
                *cols = (*cols).max(operand.cols);
                buffer
            }
            None => {
                self.specs.push(BufferSpec { rows: operand.rows, cols: operand.cols });
                BufferId(self.specs.len() - 1)
            }
        }
    }
}

impl Plan {
    /// What the workers rely on when they share memory without locks: a phase writes nothing that it reads (row phases
    /// may, for each row is one worker's), what is read was written before, what is changed is not read again, and
    /// values alive at once have buffers of their own that hold them.
    ///
    /// # Errors
    /// A sentence that names the phase.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut written: HashSet<ValueId> = self.inputs.iter().map(|x| x.value).collect();
        let mut gone = HashSet::new();
        for (index, phase) in self.phases.iter().enumerate() {
            let by_row = matches!(phase, Phase::Rows(_));
            let (mut read, mut made) = (HashSet::new(), HashSet::new());
            let uses = phase.uses();
            for Use { access, operand: Operand { value, .. } } in &uses {
                let known = written.contains(value) || by_row && made.contains(value);
                let problem = match access {
                    UseKind::Read | UseKind::Change if !known => "reads before it is written",
                    UseKind::Read | UseKind::Change if gone.contains(value) => "reads once changed",
                    UseKind::Change if read.contains(value) => "reads and changes",
                    UseKind::Write | UseKind::Inside if written.contains(value) => "writes again",
                    UseKind::Write | UseKind::Inside if !made.insert(*value) => "writes twice",
                    UseKind::Write | UseKind::Inside => continue,
                    UseKind::Read => {
                        read.insert(*value);
                        continue;
                    }
                    UseKind::Change => {
                        gone.insert(*value);
                        continue;
                    }
                };
                return Err(format!("value {}, which phase {index} {problem}", value.0));
            }
            let kept = uses.iter().filter(|u| u.access == UseKind::Write);
            written.extend(kept.map(|u| u.operand.value));
        }
        self.check_buffers()
    }

    fn check_buffers(&self) -> Result<(), String> {
        let lives = lives(self);
        let mut placed: Vec<(BufferId, Life)> = Vec::new();
        for (value, life) in lives {
            let Some(buffer) = self.buffers.of.get(value.0 as usize).copied().flatten() else {
                return Err(format!("value {} has no buffer", value.0));
            };
            let spec = &self.buffers.specs[buffer.0];
            if spec.rows != life.operand.rows || spec.cols < life.operand.cols {
                return Err(format!("value {} does not fit buffer {}", value.0, buffer.0));
            }
            let meets = |other: &Life| life.first <= other.last && other.first <= life.last;
            if let Some((_, other)) = placed.iter().find(|(b, l)| *b == buffer && meets(l)) {
                let (a, b) = (other.operand.value.0, value.0);
                return Err(format!("values {a} and {b} share buffer {} alive", buffer.0));
            }
            placed.push((buffer, life));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use program::{Lookup, Score, WeightId};

    use super::*;
    use crate::plan::{AttentionPhase, NewRows, RowOp, TableRows};

    fn x(value: u32) -> Operand {
        Operand { value: ValueId(value), rows: Rows::Tokens, cols: 8 }
    }

    fn embed(out: u32) -> Phase {
        Phase::Embed { table: WeightId(0), by: TableRows::By(Lookup::Token), out: x(out) }
    }

    fn add(a: u32, b: u32, out: u32) -> RowOp {
        RowOp::Add { a: x(a), b: x(b), out: x(out) }
    }

    fn plan(phases: Vec<Phase>) -> Plan {
        let mut plan = Plan {
            phases,
            hidden_phase: None,
            buffers: Buffers::default(),
            ropes: Vec::new(),
            caches: Vec::new(),
            logits: None,
            hidden: None,
            inputs: Vec::new(),
            handed: Vec::new(),
        };
        plan.buffers = Buffers::assign(&plan);
        plan
    }

    #[test]
    fn buffers_are_used_again_once_their_values_are_done() {
        let rows = |a, b, out| Phase::Rows(vec![add(a, b, out)]);
        let plan = plan(vec![embed(0), rows(0, 0, 1), rows(1, 1, 2), rows(2, 1, 4)]);
        assert_eq!(plan.check(), Ok(()));
        let of: Vec<_> = plan.buffers.of.iter().map(|b| b.map(|b| b.0)).collect();
        assert_eq!(of, [Some(0), Some(1), Some(0), None, Some(2)]);
    }

    #[test]
    fn bad_plans_are_caught() {
        let attention = |q, k, v, out| {
            let [q, k, v, out] = [q, k, v, out].map(x);
            let (cache, rope, score) = (program::CacheId(0), None, Score::causal(1.0));
            let new = Some(NewRows { k, v });
            Phase::Attention(AttentionPhase {
                cache,
                rope,
                norm: None,
                score,
                group: 1,
                q,
                new,
                chosen: None,
                out,
            })
        };
        let rows = |ops: Vec<RowOp>| Phase::Rows(ops);
        for (phases, problem) in [
            (vec![rows(vec![add(0, 0, 1)])], "value 0, which phase 0 reads before it is written"),
            (
                vec![embed(0), Phase::SelectRows { x: x(0), out: x(0) }],
                "value 0, which phase 1 writes again",
            ),
            (
                vec![embed(0), rows(vec![add(0, 0, 1), add(1, 0, 1)])],
                "value 1, which phase 1 writes twice",
            ),
            (
                vec![embed(0), embed(1), attention(0, 1, 0, 2)],
                "value 0, which phase 2 reads once changed",
            ),
            (
                vec![embed(0), embed(1), embed(2), attention(0, 1, 2, 3), rows(vec![add(1, 3, 4)])],
                "value 1, which phase 4 reads once changed",
            ),
        ] {
            assert_eq!(plan(phases).check(), Err(problem.to_owned()));
        }
        // what a row phase makes it may read, row by row
        let mut good = plan(vec![embed(0), rows(vec![add(0, 0, 1), add(1, 0, 2)])]);
        assert_eq!(good.check(), Ok(()));
        good.buffers.of[1] = good.buffers.of[0];
        assert_eq!(good.check(), Err("values 0 and 1 share buffer 0 alive".to_owned()));
        good.buffers.of[1] = None;
        assert_eq!(good.check(), Err("value 1 has no buffer".to_owned()));
        let mut narrow = plan(vec![embed(0)]);
        narrow.buffers.specs[0].cols = 7;
        assert_eq!(narrow.check(), Err("value 0 does not fit buffer 0".to_owned()));
    }
}
