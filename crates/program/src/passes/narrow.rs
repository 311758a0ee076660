//! Moves row selection as early as it can go, so that the last layer works only for rows whose outputs are wanted.

use std::collections::HashMap;

use crate::{Node, Op, Program, RowRule, Rows, Shape, Uses, ValueId, ValueSpec};

/// An equal program in which everything that only selected rows read is computed for those rows only.
pub fn narrow(program: &Program) -> Program {
    let uses = Uses::of(program);
    // backwards: a value that row-wise ops make of rows, and all of whose readers want selected rows
    let mut narrowed = vec![false; program.values.len()];
    for (index, node) in program.nodes.iter().enumerate().rev() {
        let wanted = |reader: usize| {
            let Node { op, output, .. } = &program.nodes[reader];
            *op == Op::SelectRows || narrowed[output.0 as usize]
        };
        let root = uses.root(node.output);
        narrowed[root.0 as usize] |= uses.writer(root) == Some(index)
            && node.op.facts().rows == RowRule::SameRow
            && program.value(root).shape.rows == Rows::Tokens
            && uses.feeds_only(root, wanted);
    }
    let mut out = Program { nodes: Vec::new(), ..program.clone() };
    let mut selected: HashMap<ValueId, ValueId> = HashMap::new();
    let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
    for node in &program.nodes {
        if node.op == Op::SelectRows {
            let input = node.inputs[0];
            let known = match out.value(input).shape.rows {
                Rows::Selected => Some(input),
                Rows::Tokens => selected.get(&input).copied(),
            };
            let Some(source) = known else {
                selected.insert(input, node.output);
                out.nodes.push(node.clone());
                continue;
            };
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
        let narrowed = narrowed[uses.root(node.output).0 as usize];
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
    let shape = Shape { rows: Rows::Selected, ..value.shape };
    out.values.push(ValueSpec { name: format!("{}.selected", value.name), shape });
    out.nodes.push(Node { op: Op::SelectRows, inputs: vec![id], output, layer });
    selected.insert(id, output);
    output
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{Attention, CacheKind, CacheSpec, OutputKind, Recorder, WeightSpec};

    /// Attention, a sum over two branches, a norm; rows are selected last.
    #[test]
    fn selection_moves_up_to_attention() {
        let r = Recorder::new();
        let weight = |name: &str, rows| {
            r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols: 4, start: 0 })
        };
        let kind = CacheKind::Heads { n_kv_heads: 1, key_dim: 4, value_dim: 4, window: None };
        let at = Attention::causal(r.cache(CacheSpec { layer: 0, kind }), None, 1.0);
        let x = r.embed(weight("table", 8)).unwrap();
        let [q, k] = ["q", "k"].map(|name| r.linear(name, x, weight(name, 4)).unwrap());
        let a = r.attention("a", at, &[q, k, k]).unwrap();
        let sum = r.add("sum", x, a).unwrap();
        let heads = r.view("heads", sum, 2).unwrap();
        let twice = r.scale("twice", heads, 2.0).unwrap();
        let flat = r.view("flat", twice, 1).unwrap();
        let norm = r.rms_norm("norm", flat, weight("norm", 1), 1e-6).unwrap();
        let rows = r.select_rows("rows", norm).unwrap();
        let logits = r.linear("logits", rows, weight("out", 8)).unwrap();
        let program = r.finish(&[(OutputKind::Logits, logits)]);
        let narrowed = narrow(&program);
        let rows = |id: ValueId| narrowed.value(id).shape.rows;
        for id in [x, q, k, a] {
            assert_eq!(rows(id), Rows::Tokens, "{}", program.value(id).name);
        }
        for id in [sum, heads, twice, flat, norm, logits] {
            assert_eq!(rows(id), Rows::Selected, "{}", program.value(id).name);
        }
        let selected = narrowed.nodes.iter().filter(|node| node.op == Op::SelectRows);
        let inputs: Vec<ValueId> = selected.map(|node| node.inputs[0]).collect();
        assert_eq!(inputs, [x, a]);
        assert_eq!(narrow(&narrowed), narrowed);
    }

    /// What the caller receives for every token is computed for every token.
    #[test]
    fn outputs_keep_their_rows() {
        let r = Recorder::new();
        let spec =
            WeightSpec { name: "table".into(), ty: GgmlType::F32, rows: 3, cols: 8, start: 0 };
        let x = r.embed(r.weight(spec)).unwrap();
        let all = r.scale("all", x, 2.0).unwrap();
        let rows = r.select_rows("rows", all).unwrap();
        let outputs = [(OutputKind::Logits, rows), (OutputKind::Logits, all)];
        let narrowed = narrow(&r.finish(&outputs));
        assert_eq!(narrowed.value(all).shape.rows, Rows::Tokens);
        assert_eq!(narrowed.value(rows).shape.rows, Rows::Selected);
        assert_eq!(narrowed.outputs, outputs);
    }
}
