//! Texts with drafts equal the texts without: the bundled model, many prompts, every kind of draft.

#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

use std::sync::{Arc, Mutex};

use conformance::golden;
use engine::{
    DraftMode, Drafters, Generated, Request, Sampler, SamplerOptions, Scheduler, SchedulerOptions,
    Session, Suffixes, TokenIds, Turn,
};
use executors::ExecutorOptions;
use gguf::{Gguf, Writer};
use models::GgufWeights;
use program::{CacheOptions, CacheType, Model};
use quant::GgmlType;

const PROMPTS: usize = 200;
const TOKENS: usize = 24;
const CACHE: CacheOptions = CacheOptions::new(CacheType::F16, CacheType::F16, 128);
/// Turns side by side.
const TOGETHER: usize = 8;

static TEXT: &str = include_str!("../../../../assets/heldout/story-en.txt");

fn load(gguf: &Gguf) -> Arc<dyn Model> {
    let options = ExecutorOptions { threads: Some(2), ..ExecutorOptions::default() };
    let loaded = models::load(gguf).unwrap();
    let model =
        options.start().expect("it starts").load(loaded.program, &GgufWeights(gguf), &mut |_| ());
    Arc::from(model.unwrap())
}

/// The same model in fewer bits: it often says the same, and not always.
fn smaller(gguf: &Gguf) -> Gguf {
    let mut writer = Writer::new();
    gguf.metadata().iter().for_each(|(key, value)| {
        writer.set(key, value);
    });
    for tensor in gguf.tensors() {
        let (ty, bytes) = (tensor.ty().unwrap(), gguf.bytes(tensor).unwrap());
        let new = if tensor.rows() > 1 { GgmlType::Q2K } else { ty };
        let mut weights = vec![0.0; tensor.elements() as usize];
        quant::format(ty).unwrap().dequantize(&bytes, &mut weights);
        let mut out = vec![0; new.row_bytes(weights.len()).unwrap()];
        assert!(quant::format(new).unwrap().quantize(&weights, &mut out), "{new}");
        writer.tensor(&tensor.name, new, &tensor.dims, out);
    }
    Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()
}

/// Pieces of a text the model never saw, of many lengths.
fn prompts(gguf: &Gguf) -> Vec<Vec<u32>> {
    let tokenizer = tokenizer::Tokenizer::from_gguf(gguf.metadata()).unwrap();
    let ids = tokenizer.encode(&TEXT[..TEXT.len().min(20_000)]).unwrap();
    (0..PROMPTS).map(|i| ids[i * 11..][..3 + i % 40].to_vec()).collect()
}

/// What follows each prompt.
fn replies(
    model: &Arc<dyn Model>,
    prompts: &[Vec<u32>],
    seed: Option<u64>,
    drafters: &dyn Fn() -> Drafters,
) -> Vec<Generated> {
    let options = SchedulerOptions { running: TOGETHER, waiting: PROMPTS, rows: 64 };
    let mut scheduler = Scheduler::new(Arc::clone(model), options);
    let ids = prompts.iter().map(|prompt| {
        let request = Request {
            prompt,
            max_tokens: Some(TOKENS),
            stop: &[],
            ignore_eog: true,
            split_thoughts: false,
            cancel: &Arc::default(),
        };
        let session = Session::new(Arc::clone(model), CACHE, 64).unwrap();
        let sampler = Sampler::new(match seed {
            Some(seed) => SamplerOptions { seed: Some(seed), ..SamplerOptions::default() },
            None => SamplerOptions::greedy(),
        });
        let turn = Turn::new(session, sampler.unwrap(), &TokenIds, &request).drafted(drafters());
        scheduler.join(turn).unwrap()
    });
    let ids: Vec<_> = ids.collect();
    let mut done = std::collections::HashMap::new();
    while !scheduler.is_empty() {
        for (id, turn) in scheduler.step(&mut |_, _| ()) {
            done.insert(id, turn.finish().unwrap());
        }
    }
    ids.iter().map(|id| done.remove(id).unwrap()).collect()
}

/// Compare texts with drafts of every kind with those without; how many were compared, and guesses of each kind: made and
/// kept.
fn compare(
    [model, second]: [&Arc<dyn Model>; 2],
    prompts: &[Vec<u32>],
    seed: Option<u64>,
) -> (usize, [[usize; 2]; 3]) {
    let mut compared = 0;
    let plain = replies(model, prompts, seed, &|| Drafters::of(Vec::new()));
    let suffixes: Arc<Mutex<Suffixes>> = Arc::default();
    let texts = |mode| Drafters::new(mode, &suffixes);
    let by_model = || Drafters::by_model(Session::new(Arc::clone(second), CACHE, 64).unwrap());
    let ways: [(&str, &dyn Fn() -> Drafters); 3] = [
        ("lookup", &|| texts(DraftMode::Lookup)),
        ("suffix", &|| texts(DraftMode::Suffix)),
        ("draft", &by_model),
    ];
    let guesses = ways.map(|(name, drafters)| {
        let drafted = replies(model, prompts, seed, &|| drafters().whatever_it_costs());
        let count = |f: fn(&Generated) -> usize| drafted.iter().map(f).sum::<usize>();
        let guessed = count(|reply| reply.stats.drafts.drafted);
        let kept = count(|reply| reply.stats.drafts.kept);
        eprintln!("{name}, seed {seed:?}: {kept} of {guessed} guesses kept");
        for (i, (with, without)) in drafted.iter().zip(&plain).enumerate() {
            assert_eq!(with.tokens, without.tokens, "{name}, prompt {i}, seed {seed:?}");
            assert_eq!(with.tokens.len(), TOKENS);
            compared += 1;
        }
        [guessed, kept]
    });
    (compared, guesses)
}

#[test]
fn drafts_change_no_text() {
    let gguf = demo_model::open().unwrap();
    let (model, second) = (load(&gguf), load(&smaller(&gguf)));
    let prompts = prompts(&gguf);
    let full = testing::full("drafts: 200 prompts of the bundled model");
    let prompts = if full { &prompts } else { &prompts[..PROMPTS / 4] };
    let mut all = 0;
    for seed in [None, Some(5)] {
        let (compared, guesses) = compare([&model, &second], prompts, seed);
        // guesses that hold and guesses that do not
        assert!(guesses.iter().all(|[made, kept]| kept > &0 && kept < made), "{guesses:?}");
        all += compared;
    }
    eprintln!("{all} texts with drafts equal those without");
    assert_eq!(all, prompts.len() * 6);
}

/// Guesses of what recurs, and for what recurs: wrong ones change a state that has to be had again.
#[test]
fn drafts_change_no_text_of_models_that_recur() {
    let file = |name| Gguf::from_bytes(golden::model(name)).unwrap();
    for (name, second) in [("qwen35", "qwen35"), ("mamba2", "rwkv7"), ("rwkv7", "lfm2")] {
        let gguf = file(name);
        let (model, second) = (load(&gguf), load(&file(second)));
        let prompts = &prompts(&gguf)[..40];
        for seed in [None, Some(5)] {
            let (compared, guesses) = compare([&model, &second], prompts, seed);
            assert_eq!(compared, 3 * prompts.len());
            let [made, kept] =
                guesses.iter().fold([0; 2], |all, [made, kept]| [all[0] + made, all[1] + kept]);
            assert!(kept < made, "{name}: {guesses:?}");
        }
    }
}
