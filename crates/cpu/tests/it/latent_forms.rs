//! The forms of latent attention against each other and against the interpreter, on random shapes and cuts.

use std::sync::Arc;

use conformance::{MemoryWeights, Random, nmse};
use cpu::{Cpu, MlaChoice, MlaForm, Options};
use kernels::Isa;
use program::interpreter::Interpreter;
use program::{
    CacheKind, CacheOptions, CacheSpec, CacheType, Executor, LatentAttention, LatentUp, Model,
    OutputKind, Outputs, Program, Prompt, Recorder, Result, Rope, RopePairs, RopeScaling, RowsOut,
    Sequence, SessionId, Step, StepOut, WeightSpec,
};
use quant::GgmlType;

const VOCAB: usize = 61;
const HIDDEN: usize = 32;

/// Heads, `dn`, `dr`, `dv`, `r`.
type Widths = [usize; 5];

/// One latent attention between an embedding and its outputs.
fn layer([heads, dn, dr, dv, rank]: Widths, joint: bool, ty: GgmlType) -> Program {
    let r = Recorder::new();
    let weight = |name: &str, ty, rows, cols| {
        r.weight(WeightSpec { name: name.into(), ty, rows, cols, start: 0 })
    };
    let record = || -> Result<_> {
        let x = r.embed(weight("table", GgmlType::F32, VOCAB, HIDDEN))?;
        let q = r.linear("q", x, weight("q", GgmlType::F32, heads * (dn + dr), HIDDEN))?;
        let q = r.view("q_heads", q, heads)?;
        let kv = r.linear("kv", x, weight("kv", GgmlType::F32, rank + dr, HIDDEN))?;
        let c = r.slice("c", kv, 0, rank)?;
        let c = r.rms_norm("c_norm", c, weight("c_norm", GgmlType::F32, 1, rank), 1e-6)?;
        let inputs = [
            r.slice("q_nope", q, 0, dn)?,
            r.slice("q_pe", q, dn, dr)?,
            c,
            r.slice("k", kv, rank, dr)?,
        ];
        let up = if joint {
            LatentUp::Joint { kv_b: weight("kv_b", ty, heads * (dn + dv), rank) }
        } else {
            let k_b = weight("k_b", ty, heads * rank, dn);
            LatentUp::Split { k_b, v_b: weight("v_b", ty, heads * dv, rank) }
        };
        let rope = Rope {
            pairs: RopePairs::Interleaved,
            dims: dr,
            theta: 1e4,
            scaling: RopeScaling::None,
            factors: None,
        };
        let scale = ((dn + dr) as f32).powf(-0.5);
        let cache = r.cache(CacheSpec { layer: 0, kind: CacheKind::Latent { rank, rope_dim: dr } });
        let at = LatentAttention::causal(cache, Some(rope), up, scale);
        r.select_rows("rows", r.latent_attention("attn", at, inputs)?)
    };
    let out = record().expect("shapes fit");
    r.finish(&[(OutputKind::Logits, out)])
}

fn load(executor: &dyn Executor, program: &Program) -> Box<dyn Model> {
    let weights = MemoryWeights::random(program, 1);
    executor.load(Arc::new(program.clone()), &weights, &mut |_| {}).expect("weights fit")
}

fn cpu(form: MlaForm, threads: usize) -> Cpu {
    choosing(MlaChoice::Always(form), threads)
}

fn choosing(mla: MlaChoice, threads: usize) -> Cpu {
    Cpu::new(&Options { threads: Some(threads), mla, ..Options::default() })
}

fn open(model: &dyn Model, ty: CacheType) -> SessionId {
    model.open(&CacheOptions::new(ty, ty, 4096)).expect("it opens")
}

/// Outputs of the last `n` tokens: a context in chunks of `chunk`, then those tokens in steps of `cut`.
fn outputs(
    model: &dyn Model,
    ty: CacheType,
    tokens: &[u32],
    n: usize,
    (chunk, cut): (usize, usize),
) -> Vec<f32> {
    let session = open(model, ty);
    let (context, last) = tokens.split_at(tokens.len() - n);
    let step = |tokens: &[u32], outputs| {
        let sequence = Sequence { session, tokens, outputs, prompt: None, rows: &[] };
        let out = model.step(&Step { sequences: &[sequence] }).and_then(StepOut::single);
        out.expect("it steps").into_logits().logits
    };
    context.chunks(chunk).for_each(|tokens| assert!(step(tokens, Outputs::NONE).is_empty()));
    let out = last.chunks(cut).flat_map(|tokens| step(tokens, Outputs::ALL)).collect();
    model.close(session);
    out
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}

#[test]
fn forms_agree_on_random_shapes() {
    let mut random = Random::new(9);
    let mut below = |n: usize| random.tokens(1, n)[0] as usize;
    for case in 0..40 {
        let widths =
            [1 + below(20), 1 + below(40), 2 + 2 * below(12), 1 + below(40), 1 + below(100)];
        let (context, n, joint) = (below(1001), 1 + below(64), below(2) == 0);
        let program = layer(widths, joint, [GgmlType::F32, GgmlType::F16][case % 2]);
        let tokens = Random::new(case as u64).tokens(context + n, VOCAB);
        let whole = (tokens.len(), n);
        let want = (context < 150)
            .then(|| outputs(&*load(&Interpreter, &program), CacheType::F32, &tokens, n, whole));
        let [first, others @ ..] = MlaForm::ALL.map(|form| {
            outputs(&*load(&cpu(form, 2), &program), CacheType::F32, &tokens, n, whole)
        });
        for (form, other) in MlaForm::ALL[1..].iter().zip(&others) {
            let error = nmse(other, &first);
            assert!(error < 1e-11, "{widths:?}, {n} after {context}, {form:?}: NMSE {error:e}");
        }
        if let Some(want) = want {
            let error = nmse(&first, &want);
            assert!(error < 1e-6, "{widths:?}, {n} after {context}: NMSE {error:e}");
        }
    }
}

#[test]
fn quantized_weights_agree_within_their_rounding() {
    for (ty, joint) in [(GgmlType::Q8_0, false), (GgmlType::Q8_0, true), (GgmlType::Q4_0, false)] {
        let program = layer([4, 32, 16, 32, 64], joint, ty);
        let tokens = Random::new(3).tokens(300, VOCAB);
        let want = outputs(&*load(&Interpreter, &program), CacheType::F32, &tokens, 40, (260, 40));
        for form in MlaForm::ALL {
            let model = load(&cpu(form, 2), &program);
            let found = outputs(&*model, CacheType::F32, &tokens, 40, (260, 40));
            let error = nmse(&found, &want);
            assert!(error < 1e-3, "{ty}, joint {joint}, {form:?}: NMSE {error:e}");
        }
    }
}

#[test]
fn threads_and_cuts_change_no_bit() {
    // more heads than a vector has lanes, and fewer than there are threads
    for widths in [[18, 24, 8, 40, 48], [3, 24, 8, 40, 48]] {
        let program = layer(widths, false, GgmlType::F16);
        let tokens = Random::new(4).tokens(1100, VOCAB);
        for form in MlaForm::ALL {
            for (ty, threads) in CacheType::ALL.into_iter().zip([3, 5, 1]) {
                let model = load(&cpu(form, 2), &program);
                let want = outputs(&*model, ty, &tokens, 30, (1070, 30));
                for cut in [(1070, 1), (512, 7), (100, 29)] {
                    let found = outputs(&*model, ty, &tokens, 30, cut);
                    assert!(same_bits(&found, &want), "{form:?}, {} cache, cut {cut:?}", ty.name());
                }
                let model = load(&cpu(form, threads), &program);
                let found = outputs(&*model, ty, &tokens, 30, (1070, 10));
                let what = format!("{form:?}, {} cache, {threads} threads", ty.name());
                assert!(same_bits(&found, &want), "{what}");
            }
        }
    }
}

#[test]
fn instruction_sets_change_no_bit() {
    let program = layer([18, 24, 8, 40, 48], false, GgmlType::F16);
    let tokens = Random::new(4).tokens(300, VOCAB);
    for form in MlaForm::ALL {
        let on = |isa| {
            let mla = MlaChoice::Always(form);
            let cpu =
                Cpu::new(&Options { threads: Some(2), isa: Some(isa), mla, ..Options::default() });
            outputs(&*load(&cpu, &program), CacheType::F16, &tokens, 20, (280, 20))
        };
        let want = on(Isa::detect());
        for (name, isa) in Isa::NAMES {
            assert!(same_bits(&on(*isa), &want), "{form:?}, {name}");
        }
    }
}

#[test]
fn sequences_of_one_step_keep_their_forms() {
    let program = layer([4, 24, 8, 16, 96], true, GgmlType::F32);
    let model = load(&choosing(MlaChoice::Auto, 3), &program);
    let lengths = [700, 1, 5, 300];
    let all: Vec<Vec<u32>> =
        lengths.iter().map(|&n| Random::new(n as u64).tokens(n + 20, VOCAB)).collect();
    let prompt = |i: usize| {
        [None, None, Some(Prompt { start: 20, len: 5 }), Some(Prompt { start: 20, len: 300 })][i]
    };
    let run = |wanted: &[usize]| -> Vec<Vec<f32>> {
        let sessions: Vec<SessionId> = wanted
            .iter()
            .map(|&i| {
                let session = open(&*model, CacheType::F16);
                let tokens = &all[i][..20];
                let sequence =
                    Sequence { session, tokens, outputs: Outputs::NONE, prompt: None, rows: &[] };
                model
                    .step(&Step { sequences: &[sequence] })
                    .and_then(StepOut::all)
                    .expect("it steps");
                session
            })
            .collect();
        let sequences: Vec<Sequence<'_>> = wanted
            .iter()
            .zip(&sessions)
            .map(|(&i, &session)| Sequence {
                session,
                tokens: &all[i][20..],
                outputs: Outputs::ALL,
                prompt: prompt(i),
                rows: &[],
            })
            .collect();
        let out = model.step(&Step { sequences: &sequences }).expect("it steps");
        let rows = |out: Result<RowsOut>| out.expect("its rows").into_logits().logits;
        out.sequences.into_iter().map(rows).collect()
    };
    let together = run(&[0, 1, 2, 3]);
    for (i, together) in together.iter().enumerate() {
        assert!(same_bits(&run(&[i])[0], together), "sequence {i}");
    }
}

#[test]
fn latents_take_a_row_per_position_and_expanded_heads_many() {
    let program = layer([16, 32, 16, 32, 64], false, GgmlType::F32);
    for (form, elements) in [(MlaForm::Elided, 64 + 16), (MlaForm::Expanded, 16 * (32 + 16 + 32))] {
        let model = load(&cpu(form, 1), &program);
        let session = open(&*model, CacheType::F16);
        let sequence = Sequence {
            session,
            tokens: &[1, 2, 3],
            outputs: Outputs::NONE,
            prompt: None,
            rows: &[],
        };
        model.step(&Step { sequences: &[sequence] }).and_then(StepOut::all).expect("it steps");
        let bytes = model.cache_bytes(session).expect("it is open");
        assert_eq!(bytes, 128 * elements * 2, "{form:?}");
    }
}
