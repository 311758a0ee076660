//! Rates of latent attention: one layer in a small program, in the forms that prompts take.

use program::{
    CacheKind, CacheOptions, CacheSpec, Executor, LatentAttention, LatentUp, MlaDims, MlaForm,
    Outputs, Program, Prompt, Result, Rope, RopePairs, RopeScaling, WeightSpec,
};
use quant::GgmlType;

use crate::{
    CHUNK, EPS, Run, Steps, WIDTH, Weights, attend, begin, depth, finish, over, steps, weight,
};
use planner::latent_form;
use planner::{MlaRate, MlaShape, Overheads};

/// Seconds of one layer, and what a step costs outside its phases.
pub(super) fn measure(
    executor: &dyn Executor,
    weights: &mut Weights<'_>,
    shape: MlaShape,
) -> Result<(MlaRate, Overheads)> {
    let dims = shape.dims;
    let deep = depth(dims.pair_macs(MlaForm::Elided));
    let program = one_layer(&dims)?;
    let n_logits = program.vocab_size() as f64;
    let cache = CacheOptions::new(shape.k, shape.k, deep);
    let run = Run::new(executor, weights, program, cache)?;
    // a chunk as part of no prompt is in the form of steps, whatever it costs
    let start = deep - CHUNK;
    for _ in 0..deep / CHUNK {
        run.pass(CHUNK, Outputs::NONE)?;
    }
    let per_mac = |form, prompt| -> Result<(f64, f64)> {
        let passes = run.repeat(start, &|| run.pass_of(CHUNK, Outputs::NONE, prompt))?;
        let rows = over(&passes, |pass| pass.sum(|_, kind| kind == "rows").1);
        let macs = dims.macs(form, start as u64, CHUNK as u64);
        Ok((over(&passes, attend) / macs.max(1) as f64, rows))
    };
    let (elided, rows) = per_mac(MlaForm::Elided, None)?;
    let positions = start as u64..deep as u64;
    let compressed = match latent_form(&dims, positions) {
        form @ MlaForm::Compressed => {
            let prompt = Some(Prompt { start, len: CHUNK });
            run.model.truncate(run.session, start)?;
            // its workspace is taken in a pass that is not timed
            run.pass_of(CHUNK, Outputs::NONE, prompt)?;
            per_mac(form, prompt)?.0
        }
        MlaForm::Expanded | MlaForm::Absorbed | MlaForm::Elided => elided,
    };
    let Steps { step, position, overheads } = steps(&run, deep, n_logits)?;
    let elements = (CHUNK * dims.n_heads * dims.key_dim()) as f64;
    let overheads = Overheads { element: rows / elements, ..overheads };
    Ok((MlaRate { shape, step, position, elided, compressed }, overheads))
}

/// Latent attention with a norm of its queries, before a head as far away as the other layers of a model.
fn one_layer(dims: &MlaDims) -> Result<Program> {
    let MlaDims { n_heads, rank, nope_dim, rope_dim, value_dim } = *dims;
    let (r, x) = begin()?;
    let f32 = |name: &str, rows, cols| weight(&r, name, rows, cols);
    let q = r.linear("q", x, f32("q", n_heads * dims.key_dim(), WIDTH))?;
    let q = r.view("q", q, n_heads)?;
    let q = r.rms_norm("q_norm", q, f32("q_norm", 1, dims.key_dim()), EPS)?;
    let kv = r.linear("kv", x, f32("kv", rank + rope_dim, WIDTH))?;
    let inputs = [
        r.slice("q_nope", q, 0, nope_dim)?,
        r.slice("q_pe", q, nope_dim, rope_dim)?,
        r.slice("c", kv, 0, rank)?,
        r.slice("k_pe", kv, rank, rope_dim)?,
    ];
    let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Latent { rank, rope_dim } });
    let rope = Rope {
        pairs: RopePairs::Interleaved,
        dims: rope_dim,
        theta: 1e4,
        scaling: RopeScaling::None,
        factors: None,
    };
    let rows = n_heads * (nope_dim + value_dim);
    let kv_b = WeightSpec { name: "kv_b".into(), ty: GgmlType::F16, rows, cols: rank, start: 0 };
    let kv_b = r.weight(kv_b);
    let scale = 1.0 / (dims.key_dim() as f32).sqrt();
    let at = LatentAttention::causal(cache, Some(rope), LatentUp::Joint { kv_b }, scale);
    let out = r.latent_attention("attention", at, inputs)?;
    finish(r, out, n_heads * value_dim)
}
