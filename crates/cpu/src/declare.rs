//! What the CPU says of itself before it loads: [`program::Executor`]'s `supports`, `memory` and `promises`.

use kernels::Isa;
use kernels::linear::linear;
use program::{
    Error, MemoryNeeds, MemoryOptions, Op, Program, Promises, Prompt, Reading, Result, StateCopies,
    Variation,
};
use quant::GgmlType;

use crate::cache::{CacheShape, cache_shapes, least_bytes, most_bytes, state_bytes, table_specs};
use crate::exec::{SequenceRows, StepRows};
use crate::load::{Workshop, place};
use crate::lower::lower;
use crate::mla::MlaChoice;
use crate::model::bound_of;
use crate::needs::{Needs, StepShape};
use crate::schedule::Schedule;

/// Whether kernels read the weights of `op`; phases compute every op.
pub(crate) fn supports(op: &Op, types: &[GgmlType], isa: Isa) -> Result<()> {
    let latent = matches!(op, Op::LatentAttention(_));
    for (used, ty) in op.facts().weights.iter().zip(types) {
        let numbers = quant::format(*ty).is_some();
        let known = match used.reading {
            Reading::TableRow | Reading::Vector | Reading::Vectors { .. } | Reading::OnLoad => {
                numbers
            }
            // small matrices of heads may have to be turned
            Reading::Matrix if latent => numbers && linear(*ty, isa).is_some(),
            Reading::Matrix | Reading::Copies { .. } => linear(*ty, isa).is_some(),
        };
        if !known {
            let op = op.name();
            return Err(Error::Unsupported(format!("op `{op}` with weights of type {ty}")));
        }
    }
    Ok(())
}

/// [`supports`] for every node.
pub(crate) fn supports_all(program: &Program, isa: Isa) -> Result<()> {
    program.nodes.iter().try_for_each(|node| {
        let weights = node.op.facts().weights;
        let types: Vec<_> = weights.iter().map(|used| program.weight(used.id).ty).collect();
        supports(&node.op, &types, isa)
    })
}

/// One lane owns one output (decision 001), so nothing but the form of latent attention can change a bit.
pub(crate) fn promises(mla: MlaChoice) -> Promises {
    let by_prompt = "latent attention: its form follows from the length of the prompt (decision 004), so a token of a \
                     long prompt has other bits than one that comes alone, or whose prompt was cached in part";
    let exceptions = match mla {
        MlaChoice::Auto => vec![by_prompt],
        MlaChoice::Always(_) => Vec::new(),
    };
    Promises { same_bits: Variation::ALL.to_vec(), exceptions }
}

/// Memory of a load, and of the steps that fill the caches.
pub(crate) fn memory(
    program: &Program,
    workshop: Workshop<'_>,
    options: &MemoryOptions,
) -> Result<MemoryNeeds> {
    supports_all(program, workshop.tuning.isa())?;
    let narrowed = program::passes::narrow(program);
    let placed = place(program, lower(&narrowed, workshop.mla)?, workshop)?;
    let caches = cache_shapes(program, &placed.schedule, &options.cache)?;
    let (specs, workers) = (table_specs(&caches), workshop.pool.n());
    let (capacity, chunk) = (options.cache.capacity, options.chunk);
    let states = |copies| state_bytes(&caches, copies);
    let tables = most_bytes(&specs, capacity, chunk);
    let all = |session: u64| session.saturating_mul(options.sessions as u64);
    let bounded = all(tables.saturating_add(states(StateCopies::Least)));
    let least = if program.keeps_positions() {
        let least = least_bytes((&caches, &specs), capacity, chunk, workers);
        bound_of(all(least.saturating_add(states(StateCopies::Least))))
    } else {
        bounded
    };
    let steps = Steps { schedule: &placed.schedule, caches: &caches, mla: workshop.mla, workers };
    let most = all(tables.saturating_add(states(StateCopies::Most)));
    Ok(MemoryNeeds {
        weights: placed.weight_bytes(program),
        cache: most.min(workshop.storage.memory.unwrap_or(u64::MAX)),
        bounded_cache: bounded,
        least_cache: least,
        work: steps.of(options).bytes(workers),
        on_card: 0,
        cache_on_card: 0,
    })
}

/// Lengths of prompts that are looked at: so many parts of a chunk.
const CHUNK_PARTS: usize = 8;

/// Rotations number positions with 32 bits: beyond that no step is looked at.
const MOST_POSITIONS: usize = u32::MAX as usize;

/// The steps that fill a cache.
struct Steps<'a> {
    schedule: &'a Schedule,
    caches: &'a [CacheShape],
    mla: MlaChoice,
    workers: usize,
}

impl Steps<'_> {
    /// The greatest needs of a prompt's chunks and of steps of all sessions, at depths up to the whole capacity.
    fn of(&self, options: &MemoryOptions) -> Needs {
        let capacity = options.cache.capacity.clamp(1, MOST_POSITIONS);
        let chunk = options.chunk.clamp(1, capacity);
        let mut needs = self.step(&[SequenceRows { first_row: 0, n: chunk, start: 0 }], true);
        // how results are split depends on the depth, and ends where they find no room
        let depths = std::iter::successors(Some(capacity), |depth| Some(depth / 2));
        for depth in depths.take_while(|depth| *depth > 0) {
            // and on the rows: those of a short prompt may be split where those of a long one are not
            for part in 1..=CHUNK_PARTS {
                let n = (chunk * part / CHUNK_PARTS).clamp(1, depth);
                let prompt = [SequenceRows { first_row: 0, n, start: depth - n }];
                needs = needs.max(&self.step(&prompt, true)).max(&self.step(&prompt, false));
            }
            let one = |first_row| SequenceRows { first_row, n: 1, start: depth - 1 };
            let steps: Vec<SequenceRows> = (0..options.sessions.max(1)).map(one).collect();
            needs = needs.max(&self.step(&steps, false));
        }
        needs
    }

    /// Those of one step, of a long prompt or not.
    fn step(&self, sequences: &[SequenceRows], is_prompt: bool) -> Needs {
        let whole = |s: &SequenceRows| Prompt { start: 0, len: s.start + s.n };
        let prompts = sequences.iter().map(|s| is_prompt.then(|| whole(s)));
        let forms = self.schedule.forms(self.mla, prompts);
        let shape = StepShape {
            n_tokens: sequences.iter().map(|s| s.n).sum(),
            n_selected: sequences.len(),
            caches: self.caches,
            rows: StepRows { sequences, forms: &forms },
        };
        Needs::of(self.schedule, &shape, self.workers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use conformance::{MemoryWeights, tiny_config, tiny_model};
    use program::{
        BlockAnchor, BlockSharing, CacheOptions, CacheType, Certificate, ContextMemory, Executor,
        FarPositions, KvPolicy, Model, Outputs, Sequence, Smoothing, Step, StepOut,
    };

    use super::*;
    use crate::mla::MlaForm;
    use crate::model::CpuModel;
    use crate::{Cpu, Options};

    /// Fill the caches of some sessions as `options` say: prompts in chunks and short ones, then one step of all. What is
    /// not committed yet is never more than a chunk. The most bytes that each cache took, added up.
    fn fill(model: &CpuModel, options: &MemoryOptions) -> u64 {
        let open = |_| model.open(&options.cache).expect("a session");
        let sessions: Vec<_> = (0..options.sessions).map(open).collect();
        let len = options.cache.capacity - 1;
        let tokens: Vec<u32> = (0..len as u32).map(|i| i * 31 % 97).collect();
        let sequence = |session, tokens, prompt| Sequence {
            session,
            tokens,
            outputs: Outputs::LAST,
            prompt,
            rows: &[],
        };
        let step = |sequences: &[Sequence<'_>]| {
            model.step(&Step { sequences }).and_then(StepOut::all).expect("a step");
        };
        let bytes = |session| model.cache_bytes(session).expect("a session");
        let mut most = vec![0; sessions.len()];
        for (&session, most) in sessions.iter().zip(&mut most) {
            for tokens in tokens.chunks(options.chunk) {
                step(&[sequence(session, tokens, Some(Prompt { start: 0, len }))]);
                *most = bytes(session).max(*most);
                let held = model.len(session).expect("a session");
                model.commit(session, held.min(len - options.chunk)).expect("they are there");
            }
            // short prompts, which may be computed otherwise
            for part in 1..=CHUNK_PARTS {
                let kept = len - options.chunk * part / CHUNK_PARTS;
                assert_eq!(model.truncate(session, kept), Ok(kept), "what is not committed can go");
                step(&[sequence(session, &tokens[kept..], None)]);
            }
        }
        let last: Vec<_> = sessions.iter().map(|id| sequence(*id, &[5], None)).collect();
        step(&last);
        sessions.iter().zip(most).map(|(id, most)| bytes(*id).max(most)).sum()
    }

    /// A model and how it is used.
    struct Case {
        arch: &'static str,
        width: usize,
        ty: GgmlType,
        cache: CacheType,
        capacity: usize,
        sessions: usize,
        threads: usize,
        softcap: Option<f32>,
        policy: KvPolicy,
    }

    const CASE: Case = Case {
        arch: "qwen2",
        width: 256,
        ty: GgmlType::Q8_0,
        cache: CacheType::F16,
        capacity: 300,
        sessions: 1,
        threads: 2,
        softcap: None,
        policy: KvPolicy::Full,
    };

    impl Case {
        fn program(&self) -> Arc<Program> {
            let mut program = tiny_model(&tiny_config(self.arch, self.width, true), self.ty);
            for node in &mut Arc::make_mut(&mut program).nodes {
                match &mut node.op {
                    Op::Attention(at) => at.score.softcap = at.score.softcap.or(self.softcap),
                    Op::LatentAttention(at) => at.score.softcap = self.softcap,
                    _ => {}
                }
            }
            program
        }
    }

    /// Weights as packed, caches as kept and workspace as grown are what was foretold, within 2 %.
    #[test]
    fn memory_is_what_a_load_and_steps_take() {
        let (q8, q4_k, q6_k) = (CacheType::Q8_0, GgmlType::Q4K, GgmlType::Q6K);
        let deepseek = |width, capacity| Case { arch: "deepseek2", width, capacity, ..CASE };
        let qwen3moe = |width, capacity| Case { arch: "qwen3moe", width, capacity, ..CASE };
        let gemma = |arch, capacity| Case { arch, capacity, ..CASE };
        let few = |change: fn(&mut ContextMemory)| {
            let suited = ContextMemory::suited(1024);
            let small = ContextMemory { n_init: 64, n_local: 128, n_blocks: 2, ..suited };
            let mut memory = ContextMemory { n_supers: 0, ..small };
            change(&mut memory);
            KvPolicy::Memory(memory)
        };
        let mut off = Vec::new();
        for case in [
            Case { width: 64, ty: GgmlType::Q4_0, capacity: 737, ..CASE },
            Case { width: 1024, ty: q4_k, sessions: 3, ..CASE },
            Case {
                arch: "llama",
                ty: GgmlType::F16,
                cache: q8,
                capacity: 1000,
                threads: 3,
                ..CASE
            },
            Case { ty: q4_k, ..qwen3moe(256, 600) },
            Case { sessions: 2, threads: 1, ..qwen3moe(512, 260) },
            deepseek(256, 900),
            Case { ty: q6_k, cache: q8, sessions: 2, ..deepseek(512, 300) },
            // a score that only some forms compute
            Case { softcap: Some(20.0), ..deepseek(256, 900) },
            // what is not committed lies in as many blocks as it can
            gemma("gemma3", 900),
            Case { cache: q8, sessions: 2, ..gemma("gemma2", 900) },
            // of a long past few blocks: two tables of keys, and anchors
            Case { policy: few(|_| ()), capacity: 900, ..CASE },
            Case { policy: few(|m| m.n_blocks = 0), capacity: 1000, cache: q8, ..CASE },
            Case {
                policy: few(|m| {
                    (m.sharing, m.positions) = (BlockSharing::KvHead, FarPositions::Exact);
                }),
                sessions: 2,
                ..gemma("gemma3", 900)
            },
            Case { policy: few(|m| m.certificate = Certificate::new(0.5)), capacity: 900, ..CASE },
            Case { policy: few(|m| m.anchor = BlockAnchor::Products), capacity: 900, ..CASE },
            Case { policy: few(|m| m.anchor = BlockAnchor::Mass), capacity: 900, ..CASE },
            // of super-blocks the fewest, on a past that has more
            Case { policy: few(|m| (m.n_init, m.n_supers) = (0, 1)), capacity: 2308, ..CASE },
            Case { policy: few(|m| m.anchor = BlockAnchor::All), capacity: 900, ..CASE },
            // choices that serve several tokens, and layers
            Case { policy: few(|m| m.token_step = 4), capacity: 900, ..CASE },
            Case {
                policy: few(|m| {
                    (m.sharing, m.positions) = (BlockSharing::KvHead, FarPositions::Exact);
                    (m.token_step, m.layer_step) = (2, 2);
                }),
                capacity: 900,
                ..CASE
            },
            Case { policy: few(|m| m.smoothing = Smoothing::new(0.5)), capacity: 900, ..CASE },
            Case { policy: few(|m| m.layer_step = 2), capacity: 900, sessions: 2, ..CASE },
        ] {
            let Case { arch, width, ty, cache, capacity, sessions, threads, softcap, policy } =
                case;
            let name = format!("{arch} {width} {ty} {softcap:?} {policy}");
            let cpu = Cpu::new(&Options { threads: Some(threads), ..Options::default() });
            let program = case.program();
            let cache = CacheOptions { policy, ..CacheOptions::new(cache, cache, capacity) };
            let options = MemoryOptions { cache, sessions, chunk: 128 };
            let foretold = cpu.memory(&program, &options).expect("it can be told");
            let weights = MemoryWeights::random(&program, 3);
            let model =
                CpuModel::load(program, &weights, cpu.workshop(), &mut |_| {}).expect("it loads");
            let cache = fill(&model, &options);
            let weights = model.stats().weight_memory;
            let taken = MemoryNeeds { weights, cache, work: model.work_bytes(), ..foretold };
            for (what, foretold, taken) in [
                ("weights", foretold.weights, taken.weights),
                ("cache", foretold.cache, taken.cache),
                ("work", foretold.work, taken.work),
            ] {
                let ratio = foretold as f64 / taken as f64;
                eprintln!("{name} {what}: {foretold} foretold, {taken} taken");
                if (ratio - 1.0).abs() > 0.02 {
                    off.push(format!("{name} {what}: {ratio}"));
                }
            }
        }
        assert!(off.is_empty(), "{off:?}");
    }

    #[test]
    fn the_form_of_latent_attention_is_the_only_exception() {
        let with = |mla| Cpu::new(&Options { threads: Some(1), mla, ..Options::default() });
        let elided = with(MlaChoice::Always(MlaForm::Elided)).promises();
        assert_eq!(elided, Promises::all());
        let auto = with(MlaChoice::Auto).promises();
        assert!(auto.cover(&Variation::ALL) && auto.exceptions.len() == 1);
        assert!(auto.exceptions[0].contains("latent attention"));
    }
}
