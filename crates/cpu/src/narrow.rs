//! Moves row selection as early as it can go, so that the last layer works only for rows whose outputs are wanted.

use std::collections::HashMap;

use program::{Node, Op, Program, Rows, Value, ValueId};

/// Whether a row of the op's output depends on the same row of its inputs only.
fn is_row_wise(op: &Op) -> bool {
    matches!(
        op,
        Op::RmsNorm { .. }
            | Op::Linear { .. }
            | Op::Act(_)
            | Op::GatedAct(_)
            | Op::Add
            | Op::Scale(_)
            | Op::Route(_)
            | Op::Experts { .. }
            | Op::View
            | Op::Slice { .. }
    )
}

/// An equal program in which everything that only selected rows read is computed for those rows only.
pub(crate) fn narrow(program: &Program) -> Program {
    let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
    for (index, node) in program.nodes.iter().enumerate() {
        for input in &node.inputs {
            readers.entry(*input).or_default().push(index);
        }
    }
    // backwards: a row-wise op all of whose readers want selected rows
    let mut narrowed = vec![false; program.nodes.len()];
    for (index, node) in program.nodes.iter().enumerate().rev() {
        let wanted =
            |&reader: &usize| program.nodes[reader].op == Op::SelectRows || narrowed[reader];
        let is_output = program.outputs.iter().any(|(_, output)| *output == node.output);
        narrowed[index] = is_row_wise(&node.op)
            && program.value(node.output).shape.rows == Rows::Tokens
            && !is_output
            && readers.get(&node.output).is_some_and(|readers| readers.iter().all(wanted));
    }
    let mut out = Program { nodes: Vec::new(), ..program.clone() };
    let mut selected: HashMap<ValueId, ValueId> = HashMap::new();
    let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
    for (node, narrowed) in program.nodes.iter().zip(narrowed) {
        if node.op == Op::SelectRows {
            let input = node.inputs[0];
            let source = select(&mut out, &mut selected, input, node.layer);
            // what read the selection reads its source; an output keeps its own value
            if out.outputs.iter().any(|(_, output)| *output == node.output) {
                out.nodes.push(Node {
                    op: Op::View,
                    inputs: vec![source],
                    output: node.output,
                    layer: node.layer,
                });
            } else {
                renamed.insert(node.output, source);
            }
            continue;
        }
        let mut node = node.clone();
        for input in &mut node.inputs {
            *input = renamed.get(input).copied().unwrap_or(*input);
            if narrowed {
                *input = select(&mut out, &mut selected, *input, node.layer);
            }
        }
        if narrowed {
            out.values[node.output.0 as usize].shape.rows = Rows::Selected;
        }
        out.nodes.push(node);
    }
    out
}

/// The value that holds the selected rows of `id`, made if there is none.
fn select(
    out: &mut Program,
    selected: &mut HashMap<ValueId, ValueId>,
    id: ValueId,
    layer: Option<usize>,
) -> ValueId {
    if let Some(known) = selected.get(&id) {
        return *known;
    }
    let value = out.value(id).clone();
    if value.shape.rows == Rows::Selected {
        return id;
    }
    let output = ValueId(out.values.len() as u32);
    let shape = program::Shape { rows: Rows::Selected, ..value.shape };
    out.values.push(Value { name: format!("{}.selected", value.name), shape });
    out.nodes.push(Node { op: Op::SelectRows, inputs: vec![id], output, layer });
    selected.insert(id, output);
    output
}
