//! Blocks that guess, at the end of a model's own file: what they guess, and that it changes no text.

use std::sync::Arc;

use conformance::{Random, golden};
use engine::{Drafters, Generated, Request, Sampler, SamplerOptions, Session, TokenIds, Turn};
use executors::ExecutorOptions;
use gguf::{Gguf, Writer};
use models::GgufWeights;
use program::{CacheOptions, CacheType, Model, Outputs, Sequence, SessionId, Step};
use quant::GgmlType;

use crate::common::{Place, text};

const CACHE: CacheOptions = CacheOptions::new(CacheType::F32, CacheType::F32, 256);
const TOKENS: usize = 40;

/// The numbers of a tensor, changed by its name and dimensions.
type Change<'a> = &'a dyn Fn(&str, &[u64], &mut Vec<f32>);

/// A file of [`guessing_bytes`].
fn guessing(name: &str, of: usize, change: Change<'_>) -> Gguf {
    Gguf::from_bytes(guessing_bytes(name, of, change)).unwrap()
}

/// The model of a golden test with one block more, which guesses: a copy of the block `of`, what is around it made up. And
/// its head a matrix of its own, all of it changed by `change`.
fn guessing_bytes(name: &str, of: usize, change: Change<'_>) -> Vec<u8> {
    let gguf = Gguf::from_bytes(golden::model(name)).unwrap();
    let mut writer = Writer::new();
    gguf.metadata().iter().for_each(|(key, value)| {
        writer.set(key, value);
    });
    let architecture = gguf.metadata().architecture().unwrap();
    let key = |key: &str| format!("{architecture}.{key}");
    let count = |name: &str| gguf.metadata().u64(&key(name)).unwrap().unwrap();
    let (n_layers, hidden_size) = (count("block_count"), count("embedding_length"));
    writer.set(key("block_count"), u32::try_from(n_layers).unwrap() + 1);
    writer.set(key("nextn_predict_layers"), 1u32);
    let mut add = |name: &str, dims: &[u64], mut numbers: Vec<f32>| {
        change(name, dims, &mut numbers);
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        writer.tensor(name, GgmlType::F32, dims, bytes);
    };
    let has_head = gguf.tensor("output.weight").is_some();
    for tensor in gguf.tensors() {
        let mut numbers = vec![0.0; tensor.elements() as usize];
        let format = quant::format(tensor.ty().unwrap()).unwrap();
        format.dequantize(&gguf.bytes(tensor).unwrap(), &mut numbers);
        if let Some(rest) = tensor.name.strip_prefix(&format!("blk.{of}.")) {
            add(&format!("blk.{n_layers}.{rest}"), &tensor.dims, numbers.clone());
        }
        if tensor.name == "token_embd.weight" && !has_head {
            add("output.weight", &tensor.dims, numbers.clone());
        }
        add(&tensor.name, &tensor.dims, numbers);
    }
    let mut random = Random::new(7);
    let mut made = |name: &str, dims: &[u64], mean: f32, spread: f32| {
        let n = dims.iter().product::<u64>();
        let numbers = (0..n).map(|_| mean + spread * random.normal() as f32).collect();
        add(&format!("blk.{n_layers}.nextn.{name}.weight"), dims, numbers);
    };
    made("eh_proj", &[2 * hidden_size, hidden_size], 0.0, 0.1);
    for norm in ["enorm", "hnorm", "shared_head_norm"] {
        made(norm, &[hidden_size], 1.0, 0.1);
    }
    writer.to_bytes().unwrap()
}

/// A model and what guesses for it, loaded beside it and alone.
struct Both {
    model: Arc<dyn Model>,
    beside: Arc<dyn Model>,
    alone: Arc<dyn Model>,
    n_tokens: usize,
}

fn load(gguf: &Gguf) -> Both {
    let loaded = models::load(gguf).unwrap().with_guesses(gguf).unwrap();
    assert_eq!(loaded.notes, Vec::<String>::new());
    let guesses = loaded.guesses.unwrap();
    let cpu = ExecutorOptions { threads: Some(2), ..ExecutorOptions::default() }.start().unwrap();
    let weights = GgufWeights(gguf);
    let model = cpu.load(Arc::clone(&loaded.program), &weights, &mut |_| ()).unwrap();
    let beside = model.load_beside(Arc::clone(&guesses), &weights, &mut |_| ()).unwrap();
    let alone = cpu.load(guesses, &weights, &mut |_| ()).unwrap();
    let n_tokens = loaded.config.vocab_size;
    Both { model: model.into(), beside: beside.into(), alone: alone.into(), n_tokens }
}

fn reply(
    model: &Arc<dyn Model>,
    session: &mut Session,
    prompt: &[u32],
    seed: Option<u64>,
    drafters: &mut Drafters,
) -> Generated {
    let request = Request {
        prompt,
        max_tokens: Some(TOKENS),
        stop: &[],
        ignore_eog: true,
        split_thoughts: false,
        cancel: &Arc::default(),
    };
    assert!(Arc::ptr_eq(session.model(), model));
    let options = match seed {
        Some(seed) => SamplerOptions { seed: Some(seed), ..SamplerOptions::default() },
        None => SamplerOptions::greedy(),
    };
    let mut sampler = Sampler::new(options).unwrap();
    let turn = Turn::new(session, &mut sampler, &TokenIds, &request);
    turn.drafted(drafters).alone(&mut |_| ()).unwrap()
}

fn session(model: &Arc<dyn Model>, chunk: usize) -> Session {
    Session::new(Arc::clone(model), CACHE, chunk).unwrap()
}

/// The blocks of each golden model of a family that guesses, one of those that attend.
const FAMILIES: [(&str, usize); 5] =
    [("qwen35", 3), ("qwen35moe", 3), ("qwen3next", 3), ("glm4moe", 2), ("deepseek2", 2)];

/// Turns of a chat, edits and other chunks included: wrong guesses, rows that were left out, states that go back.
#[test]
fn guesses_change_no_text() {
    for (name, of) in FAMILIES {
        let both = load(&guessing(name, of, &|_, _, _| ()));
        let mut random = Random::new(3);
        for (seed, chunk) in [(None, 7), (Some(5), 64)] {
            let mut drafters = Drafters::by_own_guesses(session(&both.beside, chunk));
            let mut plain = (session(&both.model, chunk), session(&both.model, chunk));
            let (mut made, mut prompt) = (0, random.tokens(30, both.n_tokens));
            for turn in 0..4 {
                drafters = drafters.whatever_it_costs();
                let with = reply(&both.model, &mut plain.0, &prompt, seed, &mut drafters);
                let none = &mut Drafters::of(Vec::new());
                let without = reply(&both.model, &mut plain.1, &prompt, seed, none);
                assert_eq!(with.tokens, without.tokens, "{name}, turn {turn}, seed {seed:?}");
                let drafts = with.stats.drafts;
                assert!(drafts.drafted > 0 && drafts.kept < drafts.drafted, "{name}: {drafts:?}");
                made += drafts.drafted;
                // the third turn goes back to before the second
                prompt.truncate(if turn == 1 { 25 } else { prompt.len() });
                prompt.extend(&with.tokens[..if turn == 1 { 0 } else { 20 }]);
                prompt.extend(random.tokens(5, both.n_tokens));
            }
            eprintln!("{name}: {made} guesses, texts as without");
        }
    }
}

/// Where the next token follows from the last alone, both halves of what the block reads know what comes after it: the
/// token, and what the model made of the one before. Then every guess holds, also those after guesses.
#[test]
fn a_block_reads_the_next_token_and_the_row_before_it() {
    let next = |token: usize, n: usize| (5 * token + 3) % n;
    for (name, of) in FAMILIES {
        // a stream that has one number is after any norm what it was, but for its length
        for half in ["embedding", "row", "both"] {
            let gguf = guessing(name, of, &|tensor, dims, numbers| {
                let n = dims[0] as usize;
                let kind = tensor.rsplit_once('.').map_or("", |(stem, _)| stem);
                let kind = kind.rsplit('.').next().unwrap_or_default();
                let blank =
                    ["attn_output", "ssm_out", "ffn_down", "ffn_down_exps", "ffn_down_shexp"];
                match kind {
                    _ if blank.contains(&kind) => numbers.fill(0.0),
                    "token_embd" => {
                        numbers.fill(0.0);
                        numbers
                            .chunks_exact_mut(n)
                            .enumerate()
                            .for_each(|(t, row)| row[t % n] = 1.0);
                    }
                    "output" => {
                        numbers.fill(0.0);
                        (0..n).for_each(|token| numbers[next(token, n) * n + token] = 1.0);
                    }
                    "eh_proj" => {
                        numbers.fill(0.0);
                        let n = n / 2;
                        for token in 0..n {
                            if half != "row" {
                                numbers[token * 2 * n + token] = 1.0;
                            }
                            if half != "embedding" {
                                numbers[next(token, n) * 2 * n + n + token] = 1.0;
                            }
                        }
                    }
                    _ => {}
                }
            });
            let both = load(&gguf);
            let mut drafters = Drafters::by_own_guesses(session(&both.beside, 16));
            let mut plain = session(&both.model, 16);
            let hidden_size = gguf.metadata().u64(&format!("{name}.embedding_length"));
            let n = hidden_size.unwrap().unwrap() as usize;
            let mut prompt = Random::new(1).tokens(20, n);
            for turn in 0..2 {
                drafters = drafters.whatever_it_costs().at_most(4);
                let reply = reply(&both.model, &mut plain, &prompt, None, &mut drafters);
                let mut last = *prompt.last().unwrap() as usize;
                for &token in &reply.tokens {
                    assert_eq!(token as usize, next(last, n), "{name}: the model");
                    last = token as usize;
                }
                let drafts = reply.stats.drafts;
                assert_eq!(drafts.kept, drafts.drafted, "{name}, {half}, turn {turn}: {drafts:?}");
                assert!(drafts.kept >= TOKENS * 3 / 4, "{name}, {half}: {drafts:?}");
                prompt.extend(&reply.tokens);
                prompt.extend(Random::new(2).tokens(5, n));
            }
        }
    }
}

/// What was read of a text stays read from turn to turn: its block attends to all of it. A chunk that is less than a prompt,
/// and replies whose last rows come when the block has nothing more to guess.
#[test]
fn a_block_keeps_the_texts_of_a_chat() {
    for (name, of) in FAMILIES {
        let both = load(&guessing(name, of, &|_, _, _| ()));
        let mut random = Random::new(6);
        let mut drafters = Drafters::by_own_guesses(session(&both.beside, 16));
        let mut plain = session(&both.model, 16);
        let mut prompt = random.tokens(40, both.n_tokens);
        for turn in 0..3 {
            drafters = drafters.whatever_it_costs();
            let reply = reply(&both.model, &mut plain, &prompt, None, &mut drafters);
            // the only session there is
            let len = (0..100).find_map(|id| both.beside.len(SessionId(id)).ok()).unwrap();
            let text = prompt.len() + reply.tokens.len();
            // what was guessed last may be behind it, and rows since the last pass before it
            assert!(len + 17 > text, "{name}, turn {turn}: {len} rows of {text} tokens");
            prompt.extend(&reply.tokens);
            prompt.extend(random.tokens(20, both.n_tokens));
        }
    }
}

/// Weights that both read are kept once, and are the same.
#[test]
fn what_guesses_shares_the_weights_of_its_model() {
    for (name, of) in FAMILIES {
        let gguf = guessing(name, of, &|_, _, _| ());
        let both = load(&gguf);
        let bytes = |model: &Arc<dyn Model>| model.stats().weight_memory;
        let shared = ["token_embd.weight", "output.weight"].map(|name| {
            let tensor = gguf.tensor(name).unwrap();
            tensor.byte_len() as u64
        });
        let saved = bytes(&both.alone) - bytes(&both.beside);
        assert!(saved >= shared.iter().sum(), "{name}: {saved} of {shared:?}");
        let input = both.beside.program().inputs[0];
        let width = both.beside.program().value(input).shape.cols();
        let mut random = Random::new(4);
        let tokens = random.tokens(9, both.n_tokens);
        let rows: Vec<f32> = (0..9 * width).map(|_| random.normal() as f32).collect();
        let logits = |model: &Arc<dyn Model>| {
            let session = model.open(&CACHE).unwrap();
            let rows: &[&[f32]] = &[&rows];
            let outputs = Outputs::ALL;
            let sequence = Sequence { session, tokens: &tokens, outputs, prompt: None, rows };
            let out = model.step(&Step { sequences: &[sequence] }).unwrap();
            out.single().unwrap().into_logits().logits
        };
        assert_eq!(logits(&both.beside), logits(&both.alone), "{name}");
    }
}

/// `show` tells of such blocks, `complete` drafts by them and writes what it writes without, `bench` compares.
#[test]
fn the_commands_use_them() {
    let place = Place::new();
    place.write("guessing.gguf", guessing_bytes("qwen35", 3, &|_, _, _| ()));
    let shown = place.run(&["show", "guessing.gguf"]);
    assert!(text(&shown.stdout).contains("1 block behind the layers: --spec mtp"));
    let complete = |spec| {
        let prompt = ["complete", "guessing.gguf", "-p", "the end of it", "--temp", "0"];
        let how = ["-n", "40", "--ignore-eos", "--json", "-c", "200", "--spec", spec];
        let out = place.run(&[prompt.as_slice(), how.as_slice()].concat());
        assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
        let out: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        (out["tokens"].clone(), out["timings"]["draft_n"].as_u64().unwrap_or_default())
    };
    let ((with, drafted), (without, none)) = (complete("mtp"), complete("off"));
    assert_eq!(with, without);
    assert!(drafted > 0 && none == 0, "{drafted} guesses");
    let bench = place.run(&["bench", "guessing.gguf", "--spec", "mtp", "-r", "1", "-o", "json"]);
    assert!(text(&bench.stdout).contains("mtp, its own text"), "{}", text(&bench.stderr));
}
