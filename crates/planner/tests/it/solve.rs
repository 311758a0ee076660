//! Plans, types side by side, and goals.

use std::sync::Arc;

use models::{Mixture, find_published};
use planner::devices::{DeviceMatch, find};
use planner::formula::{ModelShape, Roofline, Units};
use planner::goal::{Goal, Goals, solve};
use planner::{
    Cost, CostOptions, CountedProgram, Estimate, Forecast, Lengths, Machine, ModelVariant,
    Resource, what_if,
};
use program::{BlockAnchor, CacheType, ContextMemory, KvPolicy, Smoothing};

const MACHINE: Machine = Machine {
    bandwidth: 40e9,
    int8_macs: 1600e9,
    f16_macs: 100e9,
    bf16_macs: 100e9,
    f32_macs: 100e9,
    barrier: 1e-6,
};

/// A published model with weights of a file type.
fn estimate(model: &str, weights: &str, kv: CacheType) -> Estimate {
    let config = find_published(model).expect("a published model");
    let mixture = Mixture::from_name(weights).expect("a file type");
    let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
    let program = models::from_config(&config, &ty).expect("whole blocks").program;
    let options = CostOptions { k: kv, v: kv, ..CostOptions::default() };
    let cost = Cost::of(&program, &options);
    Estimate::Counted(Box::new(CountedProgram {
        cost,
        machine: MACHINE,
        chunk: 512,
        kernels: None,
    }))
}

fn candidates(model: &str) -> Vec<ModelVariant> {
    let mut all = Vec::new();
    for weights in ["F16", "Q8_0", "Q4_K_M", "Q2_K"] {
        for kv in [CacheType::F16, CacheType::Q8_0] {
            let estimate = estimate(model, weights, kv);
            all.push(ModelVariant { weights: weights.into(), cache: kv.name().into(), estimate });
        }
    }
    all
}

#[test]
fn a_plan_says_what_its_parts_say() {
    let estimate = estimate("qwen2.5-7b", "Q4_K_M", CacheType::F16);
    let plan = Forecast::of(&estimate, Some(16e9), &Lengths::up_to(8192));
    let p = plan.parameters;
    assert_eq!(p.resident(), 7_615_616_512);
    assert_eq!(p.active(), 7_615_616_512 - 3584 * 152_064);
    assert!((4.6e9..4.75e9).contains(&plan.resident_bytes), "{}", plan.resident_bytes);
    let bytes: u64 = plan.types.iter().map(|ty| ty.bytes).sum();
    assert_eq!(bytes as f64, plan.resident_bytes);
    assert_eq!(plan.cache_bytes_per_token, 57_344.0);
    let longest = plan.longest_context.unwrap();
    let left = 16e9 - estimate.memory(longest);
    assert!((0.0..57_344.0).contains(&left), "{left}");
    assert_eq!(
        plan.prompts.iter().map(|p| p.tokens).collect::<Vec<_>>(),
        [16, 64, 128, 512, 2048, 8192]
    );
    assert_eq!(plan.steps.iter().map(|p| p.tokens).collect::<Vec<_>>(), [0, 1024, 4096, 8192]);
    // Reading binds below the first inflection, arithmetic above.
    let first = plan.turns.first.unwrap();
    assert!((16.0..64.0).contains(&first), "{first}");
    let binds: Vec<_> = plan.prompts.iter().map(|p| p.limit.binds()).collect();
    assert_eq!((binds[0], binds[1]), (Resource::Memory, Resource::Int8));
    // `B + depth / W` is what a step reads, but for the row of the cache that it writes.
    let line = plan.first_step_seconds + 8192.0 / plan.tokens_per_extra_second;
    assert!((line / plan.steps[3].limit.memory - 1.0).abs() < 1e-4, "{line}");
    let none = Forecast::of(&estimate, Some(1e9), &Lengths::default());
    assert_eq!((none.longest_context, none.prompts.len()), (Some(0), 0));
    assert_eq!(Forecast::of(&estimate, None, &Lengths::default()).longest_context, None);
}

/// What the issue of limits that are none began with: 97 ms by the shaders' rate, where matrix units take 6.6.
#[test]
fn a_prompt_in_halves_is_bound_by_matrix_units() {
    let DeviceMatch::One(h100) = find("H100 SXM") else { panic!("it is in the table") };
    let Estimate::Counted(counted) = estimate("qwen2.5-7b", "F16", CacheType::F16) else {
        unreachable!("it was counted")
    };
    let at = |chunk| {
        let machine = h100.machine;
        let counted = CountedProgram { machine, chunk, ..(*counted).clone() };
        Estimate::Counted(Box::new(counted)).prefill(512)
    };
    let limit = at(512);
    assert_eq!((limit.binds(), at(64)), (Resource::F16, limit));
    assert!((6.5e-3..6.7e-3).contains(&limit.limit()), "{}", limit.limit());
}

/// Five of six layers of Gemma 3 see 1024 positions: three times as many as all layers were counted to hold.
#[test]
fn windows_bound_what_a_long_context_takes() {
    let Estimate::Counted(counted) = estimate("gemma-3-27b", "Q4_K_M", CacheType::F16) else {
        unreachable!("it was counted")
    };
    let cost = &counted.cost;
    let estimate = Estimate::Counted(counted.clone());
    let (all, lasting) = (cost.cache_bytes_per_token(), cost.lasting_bytes_per_token());
    assert!(lasting > 0 && lasting < all / 5);
    assert_eq!(cost.cache_bytes(1000), 1000 * all);
    assert_eq!(cost.cache_bytes(100_000) - cost.cache_bytes(50_000), 50_000 * lasting);
    let room = estimate.resident_bytes() + 1e9;
    let longest = estimate.longest_context(room);
    assert!(longest > 3 * (1e9 / all as f64) as u64);
    assert!(estimate.memory(longest) <= room && estimate.memory(longest + 1) > room);
    assert_eq!(estimate.tokens_per_extra_second(), MACHINE.bandwidth / lasting as f64);
    line_is_what_a_deep_step_reads(&estimate);
}

/// `B + depth / W`, the bounded reads counted to `B`.
fn line_is_what_a_deep_step_reads(estimate: &Estimate) {
    assert!(estimate.bounded_seconds() > 0.0);
    let b = estimate.first_step_seconds() + estimate.bounded_seconds();
    let line = b + 65_536.0 / estimate.tokens_per_extra_second();
    let read = estimate.step(65_536).memory;
    assert!((line / read - 1.0).abs() < 1e-4, "{line} {read}");
}

/// All latents are kept and few of them read, but keys of the indexers are all read.
#[test]
fn choices_bound_what_a_deep_step_reads() {
    let estimate = estimate("deepseek-v3.2", "Q8_0", CacheType::F16);
    assert_eq!(estimate.cache_bytes_per_token(), f64::from(61 * 2 * (512 + 64 + 128)));
    let per_token = f64::from(61 * 2 * 128);
    assert_eq!(estimate.tokens_per_extra_second(), MACHINE.bandwidth / per_token);
    line_is_what_a_deep_step_reads(&estimate);
    // a prompt reads no latent twice
    let Estimate::Counted(counted) = &estimate else { unreachable!("it was counted") };
    let read = |n: u64| {
        let pass = counted.cost.prefill(n, planner::formula::Head::LastToken);
        pass.total().cache_read_bytes
    };
    assert!(read(100_000) < 61 * 2 * (100_000 + 2048) * (512 + 64 + 128));
}

/// A context memory reads as many keys at any depth; what stands for them grows, a sixteenth as fast by super-blocks.
#[test]
fn memories_bound_what_a_deep_step_reads() {
    let config = find_published("qwen2.5-0.5b").expect("a published model");
    let mixture = Mixture::from_name("Q4_0").expect("a file type");
    let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
    let program = models::from_config(&config, &ty).expect("whole blocks").program;
    let usual = ContextMemory::suited(32_768);
    assert!(usual.n_supers > 0);
    let mut lasting = Vec::new();
    let every = ContextMemory { n_supers: 0, ..usual };
    let all = ContextMemory { anchor: BlockAnchor::All, ..every };
    let serves = |memory, token_step| ContextMemory { token_step, ..memory };
    for memory in [every, usual, all, serves(all, 8), serves(every, 8)] {
        let options = CostOptions { policy: KvPolicy::Memory(memory), ..CostOptions::default() };
        let (cost, machine) = (Cost::of(&program, &options), MACHINE);
        lasting.push(cost.lasting_bytes_per_token());
        let counted = CountedProgram { cost, machine, chunk: 512, kernels: None };
        let estimate = Estimate::Counted(Box::new(counted));
        for depth in [131_072_u64, 1 << 20] {
            let b = estimate.first_step_seconds() + estimate.bounded_seconds();
            let line = b + depth as f64 / estimate.tokens_per_extra_second();
            let read = estimate.step(depth).memory;
            assert!((line / read - 1.0).abs() < 0.01, "{memory}: {line} {read}");
        }
    }
    // two vectors a block, and a super-block; all keys, by each query and by every eighth
    let (anchors, keys) = (24 * 2 * 64 * 2 * 4 / 128, 24 * 2 * 64 * 2);
    assert_eq!(lasting, [anchors, anchors / 16, keys, keys / 8, anchors / 8]);
}

/// First positions lie beside the latest ones: those that are both are kept twice.
#[test]
fn first_positions_are_kept_beside_the_latest() {
    let config = find_published("qwen2.5-0.5b").expect("a published model");
    let mixture = Mixture::from_name("Q4_0").expect("a file type");
    let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
    let program = models::from_config(&config, &ty).expect("whole blocks").program;
    let suited = ContextMemory::suited(32_768);
    let position = 24 * 2 * 64 * 2 * 2;
    for (n_init, n, kept) in [
        (512 << 10, 1000, 2000),
        (512 << 10, 100_000, 104_096),
        (128, 1000, 1128),
        (128, 100_000, 4096 + 128),
        (0, 100_000, 4096),
    ] {
        let policy = KvPolicy::Memory(ContextMemory { n_init, n_blocks: 0, n_supers: 0, ..suited });
        let cost = Cost::of(&program, &CostOptions { policy, ..CostOptions::default() });
        assert_eq!(cost.cache_bytes(n), kept * position, "{n_init} {n}");
    }
}

/// Choices that serve several tokens, and layers: a share of what stands for blocks is looked at, less of it is kept.
#[test]
fn shared_choices_read_and_keep_less() {
    let program = |name: &str| {
        let config = find_published(name).expect("a published model");
        let mixture = Mixture::from_name("Q4_0").expect("a file type");
        let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
        models::from_config(&config, &ty).expect("whole blocks").program
    };
    let choosers = |name: &str, layer_step: u32| {
        let policy =
            KvPolicy::Memory(ContextMemory { layer_step, ..ContextMemory::suited(32_768) });
        let (program, caches) = (program(name), 0u32..);
        let caches = caches.take(program.caches.len()).map(program::CacheId);
        let layer = |cache: program::CacheId| program.cache(cache).layer;
        let chooser = |cache| Some((layer(cache), layer(policy.chooser(&program, cache)?)));
        caches.filter_map(chooser).collect::<Vec<_>>()
    };
    assert_eq!(choosers("qwen2.5-0.5b", 1), []);
    let each: Vec<_> = (0..24).map(|layer| (layer, layer - layer % 5)).collect();
    assert_eq!(choosers("qwen2.5-0.5b", 5), each);
    // layers with windows do not count
    assert_eq!(choosers("gemma-3-1b", 3), [(5, 5), (11, 5), (17, 5), (23, 23)]);

    let (program, suited) = (program("qwen2.5-0.5b"), ContextMemory::suited(32_768));
    let of = |token_step, layer_step| {
        let memory = ContextMemory { token_step, layer_step, n_supers: 0, ..suited };
        let policy = KvPolicy::Memory(memory);
        Cost::of(&program, &CostOptions { policy, ..CostOptions::default() })
    };
    let (depth, each) = (100_000, of(1, 1));
    let read = |cost: &Cost| cost.step(depth).total().cache_read_bytes;
    let anchors = 24 * 2 * 64 * 2 * 4 * suited.finished(depth as usize).len() as u64;
    let kept = |cost: &Cost| cost.cache_bytes(depth);
    let all = 24 * 2 * 64 * 2 * 4 * (depth / 128);
    for (token_step, layer_step) in [(8, 1), (1, 2), (4, 3), (64, 24)] {
        let cost = of(token_step, layer_step);
        let (tokens, layers) = (u64::from(token_step), u64::from(layer_step));
        let less = read(&each) - read(&cost);
        assert_eq!(less, anchors - anchors / tokens / layers, "{tokens} {layers}");
        // 16 numbers for each run of the near positions
        let choices = if tokens > 1 { 24 / layers * 4096 * 4 * 16 / tokens } else { 0 };
        let without = kept(&cost) + all - all / layers;
        assert_eq!(kept(&each) + choices, without, "{tokens} {layers}");
    }
    // what queries ask for together, of two blocks of positions
    let smoothing = Smoothing::new(0.05);
    let policy = KvPolicy::Memory(ContextMemory { smoothing, n_supers: 0, ..suited });
    let smooth = Cost::of(&program, &CostOptions { policy, ..CostOptions::default() });
    assert_eq!(kept(&smooth) - kept(&each), 24 * 2 * 64 * 2 * 4 * 2 * 128);
    assert_eq!(read(&smooth), read(&each));
}

/// Of its tables by layer a token reads a row, and memory holds them whole; layers that read others' caches keep none.
#[test]
fn tables_by_layer_and_shared_caches_are_counted() {
    let config = find_published("gemma-3n-e4b").expect("a published model");
    let mixture = Mixture::from_name("F16").expect("a file type");
    let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&config, name, dims);
    let program = models::from_config(&config, &ty).expect("whole blocks").program;
    let weights = |of: &dyn Fn(&str) -> bool| -> u64 {
        let specs = program.weights.iter().filter(|spec| of(&spec.name));
        specs.map(|spec| (spec.rows * spec.cols) as u64).sum()
    };
    let cost = Cost::of(&program, &CostOptions::default());
    let p = cost.parameters();
    assert_eq!(p.resident(), weights(&|_| true));
    // each block asks twice how much of each stream it takes
    let twice = weights(&|name| name.contains("altup_router"));
    let read = weights(&|name| !name.starts_with("per_layer_token_embd"));
    assert_eq!((p.active(), twice), (read + twice, 35 * 5 * 2048));
    assert_eq!(p.embedding, 262_144 * (2048 + 35 * 256));
    assert!(p.tied_embeddings());
    // 20 of 35 layers keep keys and values of 2 heads of 256, four of them all
    assert_eq!(cost.cache_bytes_per_token(), 20 * 2 * 2 * 256 * 2);
    assert_eq!(cost.lasting_bytes_per_token(), 4 * 2 * 2 * 256 * 2);
    assert_eq!(cost.bounded_bytes(), 16 * 512 * 2 * 2 * 256 * 2);
}

#[test]
fn lengths_end_with_the_context() {
    let lengths = Lengths::up_to(1);
    assert_eq!((lengths.prompts, lengths.depths), (vec![1], vec![0, 1]));
    assert_eq!(Lengths::up_to(100_000).prompts.last(), Some(&100_000));
}

#[test]
fn fewer_bits_are_smaller_and_faster() {
    let rows = what_if(&candidates("qwen2.5-1.5b"), Some(4e9), 4096);
    assert_eq!(rows.len(), 8);
    for (a, b) in rows.iter().zip(&rows[2..]) {
        assert!(b.resident_bytes < a.resident_bytes && b.longest_context > a.longest_context);
        assert!(
            b.empty.step_rate() > a.empty.step_rate() && b.full.step_rate() > a.full.step_rate()
        );
    }
    let (f16, q8) = (&rows[0], &rows[1]);
    assert_eq!(f16.resident_bytes, q8.resident_bytes);
    assert!(q8.longest_context > f16.longest_context);
    assert!(q8.full.step_rate() > f16.full.step_rate());
}

#[test]
fn the_best_that_meets_all_goals() {
    let all = candidates("qwen2.5-7b");
    let answer = |goals: Goals| {
        let answer = solve(&all, &goals).unwrap();
        (format!("{} {}", all[answer.index].weights, all[answer.index].cache), answer)
    };
    let easy = Goals { context: 4096, prompt: 512, ..Goals::default() };
    assert_eq!(answer(easy).0, "F16 f16", "nothing asked for, most bits taken");
    let (name, met) = answer(Goals { tokens_per_second: Some(4.0), ..easy });
    assert!(met.met() && met.tokens_per_second >= 4.0 && met.factor() == 1.0);
    assert_eq!(name, "Q8_0 f16", "F16 reads 14 GB in 40 GB/s");
    // The cache of 65536 tokens: 3.8 GB in f16.
    let tight = Goals { context: 65_536, memory: Some(7e9), ..easy };
    assert_eq!(answer(tight).0, "Q4_K_M q8_0");
    // Impossible: the nearest is the fastest, and what it misses is said.
    let (name, missed) =
        answer(Goals { tokens_per_second: Some(40.0), first_token: Some(60.0), ..easy });
    assert_eq!(name, "Q2_K q8_0");
    assert_eq!(missed.misses.len(), 1);
    let miss = missed.misses[0];
    assert_eq!((miss.goal, miss.wanted), (Goal::TokensPerSecond, 40.0));
    assert_eq!(miss.possible, missed.tokens_per_second);
    assert!((miss.factor() - 40.0 / miss.possible).abs() < 1e-12 && missed.factor() > 2.0);
    // A first token as quick as that is missed by all alike; the other goal decides, among those that fit.
    let both = Goals { first_token: Some(0.01), tokens_per_second: Some(40.0), ..easy };
    assert_eq!(answer(both).0, "Q2_K q8_0");
    assert_eq!(answer(Goals { memory: Some(9e9), ..both }).0, "Q2_K q8_0");
    let alike = Goals { first_token: Some(0.01), tokens_per_second: Some(4.0), ..easy };
    assert_eq!(answer(Goals { memory: Some(6e9), ..alike }).0, "Q4_K_M f16", "F16 does not fit");
    let (_, missed) = answer(Goals { first_token: Some(0.01), memory: Some(5e9), ..easy });
    assert!(missed.misses.iter().any(|miss| miss.goal == Goal::FirstToken));
    assert!(!missed.met());
    assert_eq!(solve(&[], &easy), None);
}

/// The article's cells through the path of a plan: published shapes, closed form, its units.
#[test]
fn the_articles_cells() {
    let closed = |model: &str, bits: f64| {
        let c = find_published(model).unwrap();
        let shape = ModelShape {
            n_layers: c.layers.len() as u64,
            hidden_size: c.hidden_size as u64,
            intermediate_size: c.first_layer().intermediate_size as u64,
            vocab_size: c.vocab_size as u64,
            n_heads: c.first_layer().n_heads as u64,
            n_kv_heads: c.first_layer().n_kv_heads as u64,
            head_dim: c.first_layer().head_dim as u64,
            tied_embeddings: false,
            qkv_bias: true,
            norms: false,
            qk_norms: false,
        };
        let units = Units::Article;
        let roof = Roofline::new(&shape, units.giga(1008.0), units.tera(82.58));
        Estimate::Closed(roof.weight_bits(bits))
    };
    let memory = Some(Units::Article.giga(24.0));
    for (model, longest, turns, w, b) in [
        ("qwen1.5-0.5b", [252_705, 257_424, 259_784], ["-", "-", "44\\106"], "11010", "0.86"),
        ("qwen1.5-4b", [45_525, 54_220, 58_567], ["-", "55\\317", "25\\347"], "2642", "6.58"),
        (
            "qwen1.5-7b",
            [22_072, 35_612, 42_382],
            ["113\\481", "50\\544", "23\\571"],
            "2064",
            "13.12",
        ),
        ("qwen1.5-14b", [0, 15_114, 23_285], ["103\\638", "47\\694", "22\\718"], "1321", "24.74"),
        ("qwen1.5-32b", [0, 0, 37_778], ["87\\5898", "43\\5942", "21\\5964"], "4129", "58.64"),
        ("qwen1.5-110b", [0, 0, 0], ["85\\17400", "42\\17443", "21\\17464"], "3303", "203.20"),
    ] {
        for (i, bits) in [16.0, 8.0, 4.0].into_iter().enumerate() {
            let plan = Forecast::of(&closed(model, bits), memory, &Lengths::up_to(512));
            assert_eq!(plan.longest_context, Some(longest[i]), "{model} {bits}");
            let floor = |n: Option<f64>| n.map_or("-".into(), |n| n.floor().to_string());
            let found = match plan.turns.first {
                None => "-".into(),
                first => format!("{}\\{}", floor(first), floor(plan.turns.second)),
            };
            assert_eq!(found, turns[i], "{model} {bits}");
            if i == 0 {
                assert_eq!(format!("{:.0}", plan.tokens_per_extra_second / 1000.0), w, "{model}");
                assert_eq!(format!("{:.2}", plan.first_step_seconds * 1000.0), b, "{model}");
            }
        }
    }
}

#[test]
fn kernels_tell_what_is_to_be_expected() {
    use planner::{AttentionRate, AttentionShape, Executed, LinearRate, Rates};
    use quant::GgmlType;

    let config = find_published("qwen2.5-0.5b").unwrap();
    let f16 = Mixture::from_name("F16").unwrap();
    let ty = |name: &str, dims: &[u64]| f16.tensor_type(&config, name, dims);
    let program = models::from_config(&config, &ty).unwrap().program;
    let kv = CacheType::F16;
    let shape =
        AttentionShape { n_heads: 14, n_kv_heads: 2, key_dim: 64, value_dim: 64, k: kv, v: kv };
    let points = vec![(1, 1e-10), (64, 1e-9), (512, 8e-9)];
    let rates = Arc::new(Rates {
        linear: vec![LinearRate { ty: GgmlType::F16, points, phase: 0.0 }],
        attention: vec![AttentionRate {
            shape,
            step: 1e-6,
            position: 1e-8,
            token: 1e-7,
            pair: 1e-8,
        }],
        ..Rates::default()
    });
    let executed = Executed::of(&program, kv, kv);
    let cost = Cost::of(&program, &CostOptions::default());
    let with = |kernels| {
        Estimate::Counted(Box::new(CountedProgram {
            cost: cost.clone(),
            machine: MACHINE,
            chunk: 512,
            kernels,
        }))
    };
    let known = with(Some((executed, rates)));
    let plan = Forecast::of(&known, None, &Lengths::up_to(2048));
    for point in plan.steps.iter().chain(&plan.prompts) {
        assert_eq!(point.expected, Some(point.seconds()));
        assert!(point.seconds() >= point.limit.limit(), "{point:?}");
    }
    // kernels that seem to beat the machine were measured at another moment: the limit stays one
    let Estimate::Counted(counted) = &known else { unreachable!("it was counted") };
    let slow = Machine { f16_macs: 1e9, bandwidth: 1e8, ..MACHINE };
    let slow = Estimate::Counted(Box::new(CountedProgram { machine: slow, ..(**counted).clone() }));
    for point in &Forecast::of(&slow, None, &Lengths::up_to(2048)).prompts {
        assert_eq!(point.expected, Some(point.limit.limit()));
    }
    assert!(plan.steps[1].seconds() > plan.steps[0].seconds());
    let candidate =
        |estimate| vec![ModelVariant { weights: "F16".into(), cache: "f16".into(), estimate }];
    let goals =
        Goals { tokens_per_second: Some(1.0), context: 2048, prompt: 512, ..Goals::default() };
    let answer = solve(&candidate(known.clone()), &goals).unwrap();
    assert!(answer.expected && answer.tokens_per_second == plan.steps.last().unwrap().step_rate());
    assert!(!solve(&candidate(with(None)), &goals).unwrap().expected);
    // Beside a limit nothing is expected: it would look slower than it is.
    let mixed = [candidate(known), candidate(with(None))].concat();
    let rows = what_if(&mixed, None, 2048);
    assert_eq!((rows[0].empty, rows[0].full), (rows[1].empty, rows[1].full));
    assert!(what_if(&mixed[..1], None, 2048)[0].full.expected.is_some());
    assert!(!solve(&mixed, &goals).unwrap().expected);
}
