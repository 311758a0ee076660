//! Counted costs of recorded programs equal the closed forms.

use models::{ModelConfig, Outline};
use planner::formula::{Head, ModelShape, Roofline, longest_context, positions_read, triangle};
use planner::{Cost, CostKind, CostOptions, Load, Machine, Prediction, Work, first_inflection};
use program::{CacheType, Program};
use quant::GgmlType;

/// `head_dim` of its own, grouped heads, sizes that whole blocks of 256 fit.
fn config(architecture: &str) -> ModelConfig {
    let mut outline = Outline::new(architecture, 1000);
    for (key, count) in [
        ("block_count", 3u32),
        ("embedding_length", 512),
        ("feed_forward_length", 1280),
        ("attention.head_count", 6),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 128),
        ("context_length", 4096),
    ] {
        outline.set(key, count);
    }
    outline.set("attention.layer_norm_rms_epsilon", 1e-6f32).tensor("output.weight");
    outline.config().expect("a valid outline")
}

fn shape(c: &ModelConfig) -> ModelShape {
    let layer = c.first_layer();
    ModelShape {
        n_layers: c.layers.len() as u64,
        hidden_size: c.hidden_size as u64,
        intermediate_size: layer.intermediate_size as u64,
        vocab_size: c.vocab_size as u64,
        n_heads: layer.n_heads as u64,
        n_kv_heads: layer.n_kv_heads as u64,
        head_dim: layer.head_dim as u64,
        tied_embeddings: c.tied_embeddings,
        qkv_bias: c.architecture == "qwen2",
        norms: true,
        qk_norms: c.architecture == "qwen3",
    }
}

/// Matrices of type `matrix`, vectors in f32; no optional tensors.
fn of_queries_keys_values(name: &str) -> bool {
    ["attn_q.", "attn_k.", "attn_v."].iter().any(|of| name.contains(of))
}

fn program(c: &ModelConfig, matrix: GgmlType) -> Program {
    let ty = |name: &str, dims: &[u64]| match dims.len() {
        1 if name.starts_with("rope_freqs") => None,
        1 if name.ends_with(".bias")
            && !(c.architecture == "qwen2" && of_queries_keys_values(name)) =>
        {
            None
        }
        1 => Some(GgmlType::F32),
        _ => Some(matrix),
    };
    Program::clone(&models::from_config(c, &ty).expect("whole blocks").program)
}

/// As recorded, every query reading the cache for itself: what the closed forms say.
const RECORDED: CostOptions = CostOptions {
    policy: program::KvPolicy::Full,
    k: CacheType::F16,
    v: CacheType::F16,
    query_tile: 1,
    narrow: false,
    processor_cache: u64::MAX,
};

fn configs() -> Vec<ModelConfig> {
    let mut all = Vec::new();
    for architecture in ["qwen2", "llama", "qwen3"] {
        for n_kv_heads in [6, 2, 1] {
            for tied_embeddings in [false, true] {
                let mut c = ModelConfig { tied_embeddings, ..config(architecture) };
                c.layers.iter_mut().for_each(|layer| layer.n_kv_heads = n_kv_heads);
                all.push(c);
            }
        }
    }
    all
}

/// Weights read per token: `Ap` and one row of the embedding.
#[test]
fn weights_of_a_step_are_the_active_parameters() {
    for c in configs() {
        let program = program(&c, GgmlType::F16);
        let cost = Cost::of(&program, &RECORDED);
        let p = shape(&c).parameters();
        let step = cost.step(0);
        let embed = step.of_kind(CostKind::Embed);
        assert_eq!(embed.weights, c.hidden_size as u64);
        assert_eq!(step.total().weights - embed.weights, p.active(), "{c:?}");
        assert_eq!(step.of_kind(CostKind::Head).weights, p.head);
        // The article's own Ap: biases, no norms.
        assert_eq!(cost.parameters(), p, "{c:?}");
        let article = ModelShape { norms: false, ..shape(&c) }.parameters().active();
        assert_eq!(step.of_kind(CostKind::Linear).weights + p.head, article);
        let types = cost.weight_types();
        let resident: u64 = types.iter().map(|ty| ty.weights).sum();
        assert_eq!(resident, p.resident(), "{c:?}");
        assert_eq!(step.total().weight_bytes, program.weight_bytes_per_token());
    }
}

/// Without norms and biases: the article's `Ap`, which is what is multiplied.
#[test]
fn multiply_adds_are_the_closed_form() {
    for c in configs() {
        let program = program(&c, GgmlType::F16);
        let cost = Cost::of(&program, &RECORDED);
        let plain = ModelShape { qkv_bias: false, norms: false, ..shape(&c) };
        let roof = Roofline::new(&plain, 1.0, 1.0);
        for n in [1, 2, 77, 500] {
            for head in [Head::LastToken, Head::EveryToken] {
                let counted = cost.prefill(n, head).total().flop();
                assert_eq!(counted as f64, roof.prefill_flop(n, head), "{n} {head:?} {c:?}");
            }
            let step = cost.step(n - 1).total();
            assert_eq!(step.flop() as f64, roof.step_flop(n));
        }
    }
}

#[test]
fn bytes_are_the_closed_form() {
    for c in configs() {
        let program = program(&c, GgmlType::F16);
        let s = shape(&c);
        assert_eq!(program.cache_elements_per_token(), s.cache_elements_per_token());
        for tile in [1, 7, 64] {
            let cost = Cost::of(&program, &CostOptions { query_tile: tile, ..RECORDED });
            let per_token = s.cache_elements_per_token() * 2;
            assert_eq!(cost.cache_bytes_per_token(), per_token);
            for n in [1, 6, 64, 300] {
                let work = cost.prefill(n, Head::LastToken).total();
                assert_eq!(work.cache_read_bytes, positions_read(n, tile as u64) * per_token);
                assert_eq!(work.cache_write_bytes, n * per_token);
                // Steps have no tile to share.
                assert_eq!(cost.step(n - 1).total().cache_read_bytes, n * per_token);
            }
        }
    }
}

/// All matrices and vectors in 16 bits: seconds equal those of the closed form.
#[test]
fn seconds_of_the_articles_model() {
    let mut c = config("qwen2");
    c.layers.iter_mut().for_each(|layer| (layer.n_heads, layer.n_kv_heads) = (4, 4));
    let there = |name: &str| !name.ends_with(".bias") || of_queries_keys_values(name);
    let ty = |name: &str, _: &[u64]| there(name).then_some(GgmlType::F16);
    let program = models::from_config(&c, &ty).unwrap().program;
    let cost = Cost::of(&program, &RECORDED);
    let roof = Roofline::new(&shape(&c), 50e9, 1e12);
    let read = |work: Work, rows: u64| {
        let embed = rows * c.hidden_size as u64 * 2;
        (work.weight_bytes - embed + work.cache_read_bytes) as f64 / 50e9
    };
    assert_eq!(read(cost.step(99).total(), 1), roof.step_read(100));
    assert_eq!(read(cost.prefill(100, Head::LastToken).total(), 100), roof.prefill_read(100));
}

#[test]
fn block_formats_and_cache_types_have_their_own_bytes() {
    let c = config("qwen3");
    let f16 = Cost::of(&program(&c, GgmlType::F16), &RECORDED);
    let options = CostOptions { k: CacheType::Q8_0, v: CacheType::F32, ..RECORDED };
    let q4 = Cost::of(&program(&c, GgmlType::Q4K), &options);
    let (plain, blocks) = (f16.step(9), q4.step(9));
    for kind in [CostKind::Embed, CostKind::Linear, CostKind::Head] {
        let (plain, blocks) = (plain.of_kind(kind), blocks.of_kind(kind));
        assert_eq!(plain.weight_bytes * 9, blocks.weight_bytes * 32, "16 to 4.5 bits");
        assert_eq!((plain.f16_macs, plain.int8_macs), (blocks.int8_macs, 0));
        assert_eq!((blocks.f16_macs, plain.f32_macs, blocks.f32_macs), (0, 0, 0));
    }
    let head_bytes = 128 * 34 / 32 + 128 * 4;
    assert_eq!(q4.cache_bytes_per_token(), 3 * 2 * head_bytes);
    // scores with keys in blocks, sums of values in f32; in f16 both
    let [plain, blocks] = [plain, blocks].map(|pass| pass.of_kind(CostKind::Attention));
    assert_eq!((plain.f16_macs, plain.macs()), (blocks.macs(), plain.f16_macs));
    assert_eq!((blocks.int8_macs, blocks.f32_macs), (plain.macs() / 2, plain.macs() / 2));
    let names: Vec<_> = q4.weight_types().iter().map(|ty| ty.name).collect();
    assert_eq!(names, ["Q4_K", "F32"]);
}

#[test]
fn kinds_and_layers_add_up() {
    for c in configs() {
        let cost = Cost::of(&program(&c, GgmlType::Q8_0), &CostOptions::default());
        let pass = cost.pass(&Load { past: 100, tokens: 37, outputs: 1 });
        let kinds: Work = CostKind::ALL.iter().map(|&kind| pass.of_kind(kind)).sum();
        assert_eq!(kinds, pass.total());
        let layers = (0..c.layers.len()).map(Some).chain([None]);
        assert_eq!(layers.map(|layer| pass.of_layer(layer)).sum::<Work>(), pass.total());
        // q, k, v | attention | output | gate, up | down; embedding and head.
        assert_eq!(pass.total().barriers, 5 * c.layers.len() as u64 + 2);
    }
}

/// Ops that cost the same are counted once and taken as often as they are there: nothing else comes of it.
#[test]
fn totals_are_the_sums_of_all_ops() {
    let mixture = models::Mixture::from_name("Q4_K_M").expect("a file type");
    let mut families = std::collections::BTreeSet::new();
    for (family, name) in models::published_names() {
        if !families.insert(family) {
            continue;
        }
        let c = models::find_published(&name).expect("it is listed");
        let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&c, name, dims);
        let program = models::from_config(&c, &ty).expect("whole blocks").program;
        let cost = Cost::of(&program, &CostOptions::default());
        for cost in [cost.untiled(), cost] {
            for load in [
                Load::step(0),
                Load::step(5000),
                Load::prompt(77, Head::LastToken),
                Load::prompt(300, Head::EveryToken),
                Load { past: 512, tokens: 512, outputs: 0 },
                Load { past: u64::MAX, tokens: 1 << 40, outputs: 1 },
            ] {
                assert_eq!(cost.total(&load), cost.pass(&load).total(), "{name} {load:?}");
            }
        }
    }
    assert!(families.len() > 5, "{families:?}");
}

/// A prompt in chunks does what it does in one, but for the weights; positions before a chunk are read by each tile.
#[test]
fn chunks_add_up() {
    let cost = Cost::of(&program(&config("qwen2"), GgmlType::Q8_0), &RECORDED);
    let whole = cost.prefill(300, Head::LastToken).total();
    let loads: Vec<Load> = planner::cost::chunks(0..300, 128).collect();
    assert_eq!(
        loads.iter().map(|l| (l.past, l.tokens, l.outputs)).collect::<Vec<_>>(),
        [(0, 128, 0), (128, 128, 0), (256, 44, 1)]
    );
    let parts: Work = loads.iter().map(|load| cost.pass(load).total()).sum();
    assert_eq!(parts.flop(), whole.flop());
    assert_eq!(parts.cache_read_bytes, whole.cache_read_bytes);
    assert_eq!(parts.cache_write_bytes, whole.cache_write_bytes);
    let head = cost.step(0).of_kind(CostKind::Head).weight_bytes;
    assert!(parts.weight_bytes > 3 * (whole.weight_bytes - head) - 1000 * 512 * 2);
    assert_eq!(planner::cost::chunks(0..0, 128).count(), 0);
}

/// However many chunks there are, few are looked at, and none is left out.
#[test]
fn many_chunks_are_counted_together() {
    for c in [config("qwen2"), config("llama")] {
        let cost = Cost::of(&program(&c, GgmlType::Q8_0), &CostOptions::default());
        for (positions, chunk) in [(0..0, 1), (5..6, 1), (0..2999, 1), (7..6000, 2), (3..1030, 9)] {
            let passes = planner::cost::chunks(positions.clone(), chunk);
            let sum: Work = passes.map(|load| cost.pass(&load).total()).sum();
            assert_eq!(cost.prefill_in_chunks(positions.clone(), chunk), sum, "{positions:?}");
        }
        let whole = cost.prefill(1 << 40, Head::LastToken).total();
        assert_eq!(cost.prefill_in_chunks(0..1 << 40, 1 << 40), whole);
        assert!(cost.prefill_in_chunks(0..1 << 40, 1).weight_bytes > whole.weight_bytes);
    }
}

/// Of the last layer only keys and values are needed for every token; a step needs all.
#[test]
fn narrowing_drops_what_no_output_needs() {
    for c in configs() {
        let program = program(&c, GgmlType::Q8_0);
        let recorded = Cost::of(&program, &RECORDED);
        let narrow = Cost::of(&program, &CostOptions { narrow: true, ..RECORDED });
        assert_eq!(narrow.step(50).total(), recorded.step(50).total());
        let n = 40;
        let (h, q) =
            (c.hidden_size as u64, (c.first_layer().n_heads * c.first_layer().head_dim) as u64);
        let dropped = (n - 1) * (2 * h * q + 3 * h * c.first_layer().intermediate_size as u64);
        let attended = (triangle(n) - n) * 2 * q;
        let macs = |cost: &Cost| cost.prefill(n, Head::LastToken).total().macs();
        assert_eq!(macs(&recorded) - macs(&narrow), dropped + attended, "{c:?}");
        let every = |cost: &Cost| cost.prefill(n, Head::EveryToken).total();
        assert_eq!(every(&recorded), every(&narrow));
        // A chunk without outputs leaves the last layer after its keys and values.
        let none = narrow.pass(&Load { past: 0, tokens: n, outputs: 0 });
        let last = none.of_layer(Some(c.layers.len() - 1));
        assert_eq!(
            last.macs(),
            n * h * 2 * (c.first_layer().n_kv_heads * c.first_layer().head_dim) as u64
        );
        assert_eq!(last.cache_read_bytes, 0);
        assert!(last.cache_write_bytes > 0);
    }
}

#[test]
fn contexts_that_fit() {
    let cost = Cost::of(&program(&config("qwen2"), GgmlType::Q4_0), &RECORDED);
    let (weights, position) = (cost.resident_bytes() as f64, cost.cache_bytes_per_token() as f64);
    let longest = |memory| longest_context(memory, weights, position);
    assert_eq!(longest(weights + 10.5 * position), Some(10));
    assert_eq!(longest(weights + 9.9 * position), Some(9));
    assert_eq!(longest(weights - 1.0), None);
}

/// The counted inflection is that of the closed form, but for the rows of the embedding and the writes to the cache,
/// which the closed form leaves out.
#[test]
fn counted_inflections_are_near_the_closed_form() {
    for c in configs() {
        let cost = Cost::of(&program(&c, GgmlType::F16), &RECORDED);
        for balance in [10.0, 40.0, 100.0] {
            let (bandwidth, flops) = (10e9, balance * 10e9);
            let machine = Machine { int8_macs: flops, ..Machine::uniform(bandwidth, flops / 2.0) };
            let counted = first_inflection(&cost, &machine, 1 << 20);
            let closed = Roofline::new(&shape(&c), bandwidth, flops).inflections(Head::LastToken);
            let (Some(counted), Some(closed)) = (counted, closed) else {
                assert_eq!((counted, closed), (None, None), "{balance} {c:?}");
                continue;
            };
            let ratio = counted as f64 / closed.first;
            assert!((0.98..1.15).contains(&ratio), "{counted} {closed:?} {c:?}");
            assert_eq!(first_inflection(&cost, &machine, counted), Some(counted));
            assert_eq!(first_inflection(&cost, &machine, counted - 1), None);
        }
    }
}

/// Where some matrices are multiplied in 8 bits and others are not, the longer of both kinds crosses the reading.
#[test]
fn an_inflection_is_where_compute_crosses_read() {
    let c = config("llama");
    let ty = |name: &str, dims: &[u64]| match dims.len() {
        1 => (!name.starts_with("rope_freqs") && !name.ends_with(".bias")).then_some(GgmlType::F32),
        _ if name.contains("ffn") => Some(GgmlType::Q8_0),
        _ => Some(GgmlType::F16),
    };
    let program = models::from_config(&c, &ty).unwrap().program;
    let cost = Cost::of(&program, &CostOptions::default());
    let machine = Machine { int8_macs: 1e12, ..Machine::uniform(10e9, 4e11) };
    let at = first_inflection(&cost, &machine, 1 << 20).expect("arithmetic binds");
    let of = |n: u64| Prediction::of_prefill(&cost, 0..n, &machine);
    let (below, above) = (of(at - 1), of(at));
    assert!(above.int8 > 0.1 * above.memory && above.f16 > 0.1 * above.memory, "{above:?}");
    assert!(below.compute() <= below.memory && above.compute() > above.memory, "{at}");
    assert_eq!(above.limit(), above.compute());
}

/// A value is written by one op and read by others; it counts where it is larger than the processor's cache.
#[test]
fn activations_count_where_they_leave_the_processors_cache() {
    let c = config("llama");
    let cost = |processor_cache| {
        Cost::of(&program(&c, GgmlType::Q8_0), &CostOptions { processor_cache, ..RECORDED })
    };
    let n = 100;
    let prefill = |cost: &Cost| cost.prefill(n, Head::LastToken).total();
    let row = |width: usize| 4 * n * width as u64;
    assert_eq!(prefill(&cost(u64::MAX)).activation_bytes, 0);
    // Only the two halves of the feed-forward layer are wider than 1000; gate and up are written, both are read by the
    // activation, whose output of the same width is read once more.
    let wide = cost(row(1000));
    assert_eq!(prefill(&wide).activation_bytes, 3 * 6 * row(c.first_layer().intermediate_size));
    assert_eq!(wide.step(10).total().activation_bytes, 0);
    // The logits of all tokens leave it too.
    let every = wide.prefill(n, Head::EveryToken).total().activation_bytes;
    assert_eq!(every, prefill(&wide).activation_bytes);
    let every = cost(row(999)).prefill(n, Head::EveryToken).total().activation_bytes;
    assert_eq!(every, prefill(&wide).activation_bytes + row(c.vocab_size));
    // Nothing else of the work changes, and limits do not.
    let all = prefill(&cost(0));
    assert!(all.activation_bytes > prefill(&wide).activation_bytes);
    assert_eq!(Work { activation_bytes: 0, ..all }, prefill(&cost(u64::MAX)));
    assert_eq!(all.bytes(), prefill(&cost(u64::MAX)).bytes());
}

#[test]
fn attention_without_tiles() {
    let program = program(&config("qwen3"), GgmlType::Q8_0);
    let tiled = Cost::of(&program, &CostOptions { query_tile: 64, ..RECORDED });
    assert_eq!(tiled.untiled(), Cost::of(&program, &RECORDED));
}

/// Of Qwen3.5-0.8B: 18 layers of 16 matrices of 128 x 128, and three rows of 6,144 channels before each convolution.
#[test]
fn states_are_counted_apart_from_what_grows() {
    let c = models::find_published("Qwen3.5-0.8B").expect("published");
    let f16 = models::Mixture::from_name("F16").expect("a file type");
    let ty = |name: &str, dims: &[u64]| f16.tensor_type(&c, name, dims);
    let program = models::from_config(&c, &ty).expect("whole blocks").program;
    let cost = Cost::of(&program, &RECORDED);
    let [once, kept] = cost.state_bytes();
    assert_eq!(once, 18 * 4 * (16 * 128 * 128 + 3 * 6144));
    assert_eq!(kept, cost.cache_bytes(1) - cost.cache_bytes_per_token());
    // six layers attend: two heads of 256, keys and values
    assert_eq!(cost.cache_bytes_per_token(), 6 * 2 * 2 * 256 * 2);
    // a step reads the states once, and the positions before it
    let states = cost.step(100).of_kind(CostKind::States);
    assert!(states.cache_read_bytes >= once, "{states:?}");
    assert_eq!(cost.step(0).of_kind(CostKind::Attention).weights, 0);
}
