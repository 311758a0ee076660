//! [`Uses`]: who writes and who reads each value of a program.

use crate::{Op, OutputKind, Program, ValueId};

/// The writers and readers of a program's values. Views are looked through: they give another name to a value, and what
/// reads them reads its root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// By value: the node that writes it.
    writers: Vec<Option<usize>>,
    /// By value: the value that a chain of views starts from.
    roots: Vec<ValueId>,
    /// By root: the nodes that read it, in order, one that reads it twice standing twice.
    readers: Vec<Vec<usize>>,
    /// By root.
    outputs: Vec<HandedOut>,
}

/// Whether a step's caller gets a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum HandedOut {
    #[default]
    Never,
    /// Where a step asks for it, which is seldom: hidden rows.
    Asked,
    /// What programs are run for.
    Always,
}

impl Uses {
    /// Of the values of `program`.
    pub fn of(program: &Program) -> Uses {
        let n = program.values.len();
        let mut uses = Uses {
            writers: vec![None; n],
            roots: (0..n as u32).map(ValueId).collect(),
            readers: vec![Vec::new(); n],
            outputs: vec![HandedOut::Never; n],
        };
        for (index, node) in program.nodes.iter().enumerate() {
            uses.writers[node.output.0 as usize] = Some(index);
            if node.op == Op::View {
                uses.roots[node.output.0 as usize] = uses.root(node.inputs[0]);
                continue;
            }
            for input in &node.inputs {
                let root = uses.root(*input);
                uses.readers[root.0 as usize].push(index);
            }
        }
        for (kind, output) in &program.outputs {
            let handed = match kind {
                OutputKind::Hidden => HandedOut::Asked,
                OutputKind::Logits | OutputKind::Rows => HandedOut::Always,
            };
            let known = &mut uses.outputs[uses.roots[output.0 as usize].0 as usize];
            *known = handed.max(*known);
        }
        uses
    }

    /// The value that a chain of views starts from; the value itself if it is no view.
    pub fn root(&self, id: ValueId) -> ValueId {
        self.roots[id.0 as usize]
    }

    /// The node that writes the value; `None` for one that the caller gives.
    pub fn writer(&self, id: ValueId) -> Option<usize> {
        self.writers[id.0 as usize]
    }

    /// The nodes that read the value or its root's other views, in order; views are none of them.
    pub fn readers(&self, id: ValueId) -> &[usize] {
        &self.readers[self.root(id).0 as usize]
    }

    /// Whether the value, or a view of its root, is an output of the program.
    pub fn is_output(&self, id: ValueId) -> bool {
        self.outputs[self.root(id).0 as usize] != HandedOut::Never
    }

    /// The only node that reads the value, if there is exactly one and the value is no output.
    pub fn only_reader(&self, id: ValueId) -> Option<usize> {
        match self.readers(id) {
            &[only] if !self.is_output(id) => Some(only),
            _ => None,
        }
    }

    /// Whether something reads the value, and nothing but such nodes.
    pub fn feeds_only(&self, id: ValueId, such: impl Fn(usize) -> bool) -> bool {
        !self.is_output(id) && self.feeds_only_unasked(id, such)
    }

    /// [`feeds_only`](Self::feeds_only) but for steps that ask for the value: who lets its readers compute it for
    /// themselves computes it apart in those.
    pub fn feeds_only_unasked(&self, id: ValueId, such: impl Fn(usize) -> bool) -> bool {
        let readers = self.readers(id);
        let always = self.outputs[self.root(id).0 as usize] == HandedOut::Always;
        !readers.is_empty() && !always && readers.iter().all(|&node| such(node))
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{OutputKind, Recorder, WeightSpec};

    #[test]
    fn views_are_looked_through() {
        let r = Recorder::new();
        let spec =
            WeightSpec { name: "table".into(), ty: GgmlType::F32, rows: 3, cols: 8, start: 0 };
        let x = r.embed(r.weight(spec)).unwrap();
        let heads = r.view("heads", x, 4).unwrap();
        let pairs = r.view("pairs", heads, 2).unwrap();
        let a = r.scale("a", pairs, 2.0).unwrap();
        let joined = r.view("joined", a, 1).unwrap();
        let b = r.add("b", x, x).unwrap();
        let c = r.add("c", joined, b).unwrap();
        let uses = Uses::of(&r.finish(&[(OutputKind::Logits, joined)]));
        assert_eq!([heads, pairs, joined, b].map(|id| uses.root(id)), [x, x, a, b]);
        assert_eq!((uses.writer(x), uses.writer(b)), (Some(0), Some(5)));
        for id in [x, heads, pairs] {
            assert_eq!(uses.readers(id), [3, 5, 5]);
        }
        assert_eq!((uses.only_reader(b), uses.only_reader(x)), (Some(6), None));
        // an output is read by the caller, too
        assert!(uses.is_output(a) && !uses.is_output(b));
        assert_eq!((uses.readers(a), uses.only_reader(a)), (&[6][..], None));
        assert!(uses.feeds_only(x, |node| node >= 3) && !uses.feeds_only(x, |node| node > 3));
        assert!(!uses.feeds_only(a, |_| true) && !uses.feeds_only(c, |_| true));
        assert!(!uses.feeds_only_unasked(a, |_| true));
    }

    #[test]
    fn what_is_asked_for_has_readers_of_its_own() {
        let of = |kinds: &[OutputKind]| {
            let r = Recorder::new();
            let spec =
                WeightSpec { name: "table".into(), ty: GgmlType::F32, rows: 3, cols: 8, start: 0 };
            let x = r.embed(r.weight(spec)).unwrap();
            r.scale("a", x, 2.0).unwrap();
            let outputs: Vec<_> = kinds.iter().map(|kind| (*kind, x)).collect();
            let uses = Uses::of(&r.finish(&outputs));
            [uses.is_output(x), uses.feeds_only(x, |_| true), uses.feeds_only_unasked(x, |_| true)]
        };
        assert_eq!(of(&[]), [false, true, true]);
        assert_eq!(of(&[OutputKind::Hidden]), [true, false, true]);
        for other in [OutputKind::Logits, OutputKind::Rows] {
            assert_eq!(of(&[other, OutputKind::Hidden]), [true, false, false]);
            assert_eq!(of(&[OutputKind::Hidden, other]), [true, false, false]);
        }
    }
}
