//! A plan for programs: stable keys, bytes, seconds, tokens. What is not known is null.

use planner::plan::Timed;
use planner::{Prediction, WhatIf};
use serde_json::{Value, json};

use crate::predictions::ErrorBar;
use rooflight::plan::Plan;

/// The whole report.
pub(super) fn report(r: &Plan<'_>) -> Value {
    let plan = &r.forecast;
    let p = &plan.parameters;
    let whole = |n: f64| n.round() as u64;
    // what reads texts writes none
    let writes = r.subject.config.text.is_none();
    // the machine alone has no speeds if a part of the model has to run elsewhere
    let is_alone = r.misfit.is_some() || r.runs();
    let prompts = if is_alone { &plan.prompts[..] } else { &[] };
    let steps = if writes && is_alone { &plan.steps[..] } else { &[] };
    let writes = writes && is_alone;
    let what_if = if writes { &r.what_if[..] } else { &[] };
    let types = plan.types.iter().map(|ty| {
        json!({"type": ty.name, "n_tensors": ty.tensors, "weights": ty.weights, "bytes": ty.bytes})
    });
    let caches = r.caches.iter().map(|c| {
        json!({
            "type": c.cache,
            "bytes_per_token": c.bytes_per_token,
            "longest_context": c.longest_context,
        })
    });
    json!({
        "model": {
            "name": r.subject.name,
            "source": r.subject.source,
            "architecture": r.subject.config.architecture,
            "context_length": r.subject.config.context_length,
            "parameters": {
                "layers": p.layers,
                "idle_experts": p.idle,
                "head": p.head,
                "embedding": p.embedding,
                "active": p.active(),
                "total": p.total(),
                "resident": p.resident(),
                "tied_embeddings": p.tied_embeddings(),
            },
        },
        "machine": {
            "name": r.target.name,
            "source": r.target.source,
            "busy": r.target.busy,
            "memory_bytes": r.target.memory.map(whole),
            "bytes_per_second": r.machine.bandwidth,
            "f32_macs_per_second": r.machine.f32_macs,
            "f16_macs_per_second": r.machine.f16_macs,
            "bf16_macs_per_second": r.machine.bf16_macs,
            "int8_macs_per_second": r.machine.int8_macs,
            "barrier_seconds": r.machine.barrier,
        },
        "placement": r.placing.as_ref().map(super::placement::json),
        "units": if r.article() { "article" } else { "decimal" },
        "context": r.context,
        "fits": r.target.memory.map(|_| r.misfit.is_none()),
        "verdict": r.verdict(),
        "weights": {
            "type": r.weights,
            "bytes": whole(plan.resident_bytes),
            "bytes_per_step": whole(plan.step_weight_bytes),
            "types": types.collect::<Vec<_>>(),
        },
        "cache": {
            "type": r.cache,
            "policy": r.policy.to_string(),
            "bytes_per_token": plan.cache_bytes_per_token,
            "state_bytes": plan.state_bytes[0],
            "kept_state_bytes": plan.state_bytes[1],
            "longest_context": plan.longest_context,
            "types": caches.collect::<Vec<_>>(),
        },
        "kv_memory": r.bound.as_ref().map(|bound| json!({
            "bytes": bound.most,
            "cache_bytes": bound.cache,
            "longest_context": bound.longest,
        })),
        "memory": r.needs.map(|needs| json!({
            "weight_bytes": needs.weights,
            "cache_bytes": needs.cache,
            "work_bytes": needs.work,
        })),
        "prompts": prompts.iter().map(|point| self::point(point, point.prompt_rate())).collect::<Vec<_>>(),
        "inflections": { "first": plan.turns.first, "second_untiled": plan.turns.second },
        "chunk": r.chunk,
        "chunk_measured": r.chunk_measured,
        "steps": steps.iter().map(|point| self::point(point, point.step_rate())).collect::<Vec<_>>(),
        "expected_error": {
            "prompts": r.error_bars[0].map(error_bar),
            "steps": r.error_bars[1].map(error_bar),
        },
        "first_step_seconds": writes.then_some(plan.first_step_seconds),
        "tokens_per_extra_second": writes.then_some(plan.tokens_per_extra_second),
        "what_if": what_if.iter().map(row).collect::<Vec<_>>(),
        "goal": goal(r),
    })
}

fn point(point: &Timed, rate: f64) -> Value {
    let Prediction { memory, memory_most, int8, f16, bf16, f32, barriers } = point.limit;
    json!({
        "tokens": point.tokens,
        "read_seconds": memory,
        "read_most_seconds": memory_most,
        "int8_seconds": int8,
        "f16_seconds": f16,
        "bf16_seconds": bf16,
        "f32_seconds": f32,
        "barrier_seconds": barriers,
        "limit_seconds": point.limit.limit(),
        "expected_seconds": point.expected,
        "binds": point.limit.binds().name(),
        "tokens_per_second": rate,
        "activation_bytes": point.activation_bytes,
    })
}

fn error_bar(bar: ErrorBar) -> Value {
    json!({ "part": bar.part, "runs": bar.runs })
}

fn row(row: &WhatIf) -> Value {
    json!({
        "weights": row.weights,
        "cache": row.cache,
        "bytes": row.resident_bytes.round() as u64,
        "longest_context": row.longest_context,
        "tokens_per_second_empty": row.empty.step_rate(),
        "tokens_per_second_full": row.full.step_rate(),
    })
}

/// Null where nothing was asked for.
fn goal(r: &Plan<'_>) -> Value {
    let Some((goals, answer)) = &r.goals else { return Value::Null };
    let misses = answer.misses.iter().map(|miss| {
        json!({
            "goal": miss.goal.name(),
            "wanted": miss.wanted,
            "possible": miss.possible,
            "factor": miss.factor(),
        })
    });
    json!({
        "met": answer.met(),
        "expected": answer.expected,
        "ttft_seconds": goals.first_token,
        "tokens_per_second": goals.tokens_per_second,
        "context": goals.context,
        "prompt": goals.prompt,
        "memory_bytes": goals.memory,
        "answer": {
            "weights": r.weights,
            "cache": r.cache,
            "ttft_seconds": answer.first_token,
            "tokens_per_second": answer.tokens_per_second,
            "memory_bytes": answer.memory,
        },
        "misses": misses.collect::<Vec<_>>(),
    })
}
