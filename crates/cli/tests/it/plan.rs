//! `rooflight plan`: models that need not be there, on machines that need not be there.

use serde_json::Value;

use crate::common::{Place, text};
use crate::machine;

const CONFIG: &str = r#"{"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 32768, "tie_word_embeddings": false}"#;

/// What `plan` prints; 1 says that the model does not fit, or misses a goal, and the plan is made all the same.
fn printed(place: &Place, args: &[&str]) -> String {
    let output = place.run(&[&["plan"], args].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn json(place: &Place, args: &[&str]) -> Value {
    let printed = printed(place, &[&["--json"], args].concat());
    serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

/// Every key of an object, and of those in it, as paths.
fn keys(value: &Value, path: &str, all: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                all.push(format!("{path}{key}"));
                keys(value, &format!("{path}{key}."), all);
            }
        }
        Value::Array(array) => {
            if let Some(first) = array.first() {
                keys(first, path, all);
            }
        }
        _ => {}
    }
}

#[test]
fn a_published_model_a_config_and_its_folder_are_one_plan() {
    let place = Place::new();
    std::fs::create_dir(place.path("Qwen")).unwrap();
    place.write("Qwen/config.json", CONFIG);
    let of = |model: &str| json(&place, &[model, "--device", "rtx4090", "-c", "32k"]);
    let mut published = of("Qwen/Qwen2.5-7B-Instruct");
    assert_eq!(published["model"]["parameters"]["resident"], 7_615_616_512_u64);
    assert_eq!(published["weights"]["type"], "Q4_K_M");
    assert_eq!(published["context"], 32_768);
    assert_eq!(published["cache"]["bytes_per_token"], 57_344.0);
    assert_eq!(published["machine"]["source"], "device");
    let bytes = published["weights"]["bytes"].as_u64().unwrap();
    assert!((4_600_000_000..4_750_000_000).contains(&bytes), "{bytes}");
    for model in ["Qwen", "Qwen/config.json"] {
        let config = of(model);
        assert_eq!(config["model"]["source"], "config");
        assert_eq!(config["model"]["name"], "Qwen");
        published["model"] = config["model"].clone();
        assert_eq!(config, published);
    }
}

#[test]
fn a_file_is_planned_with_its_own_types() {
    let place = Place::new();
    let given = ["--bandwidth", "10GB/s", "--flops", "1T", "--memory", "1GiB"];
    let plan = json(&place, &[&["demo.gguf"], &given[..]].concat());
    let shown: Value = serde_json::from_str(&place.ok(&["show", "demo.gguf", "--json"])).unwrap();
    assert_eq!(plan["model"]["parameters"]["resident"], shown["parameters"]);
    assert_eq!(plan["weights"]["bytes_per_step"], shown["model"]["weight_bytes_per_token"]);
    assert!(plan["weights"]["type"].as_str().unwrap().starts_with("file ("));
    assert_eq!(plan["context"], shown["model"]["context_length"]);
    assert_eq!(plan["machine"]["memory_bytes"], 1_u64 << 30);
    assert_eq!(plan["machine"]["bytes_per_second"], 1e10);
    let named = [&["-m", "demo.gguf", "--type", "Q8_0"], &given[..]].concat();
    assert_eq!(json(&place, &named)["weights"]["type"], "Q8_0");
    let variable = place
        .command(&[&["plan"], &given[..]].concat())
        .env("ROOFLIGHT_MODEL", "demo.gguf")
        .output()
        .unwrap();
    assert!(text(&variable.stdout).contains("\ndemo.gguf, file ("), "{variable:?}");
}

#[test]
fn keys_are_stable() {
    let place = Place::new();
    let plan = json(
        &place,
        &["llama3.2:1b", "--device", "m1", "--tps", "5", "--memory", "8GB", "--kv-memory", "8GB"],
    );
    let mut found = Vec::new();
    keys(&plan, "", &mut found);
    let want = "model model.name model.source model.architecture model.context_length model.parameters \
        model.parameters.layers model.parameters.idle_experts model.parameters.head model.parameters.embedding \
        model.parameters.active model.parameters.total model.parameters.resident model.parameters.tied_embeddings machine machine.name \
        machine.source machine.busy machine.memory_bytes machine.bytes_per_second machine.f32_macs_per_second \
        machine.f16_macs_per_second machine.bf16_macs_per_second machine.int8_macs_per_second \
        machine.barrier_seconds placement units context fits verdict weights weights.type weights.bytes \
        weights.bytes_per_step weights.types weights.types.type weights.types.n_tensors weights.types.weights \
        weights.types.bytes cache cache.type cache.policy cache.bytes_per_token cache.state_bytes cache.kept_state_bytes cache.longest_context cache.types cache.types.type \
        cache.types.bytes_per_token cache.types.longest_context kv_memory kv_memory.bytes \
        kv_memory.cache_bytes kv_memory.longest_context memory prompts prompts.tokens prompts.read_seconds \
        prompts.read_most_seconds prompts.int8_seconds prompts.f16_seconds prompts.bf16_seconds prompts.f32_seconds prompts.barrier_seconds prompts.limit_seconds \
        prompts.expected_seconds prompts.binds prompts.tokens_per_second prompts.activation_bytes inflections \
        inflections.first inflections.second_untiled chunk chunk_measured steps steps.tokens steps.read_seconds \
        steps.read_most_seconds steps.int8_seconds steps.f16_seconds steps.bf16_seconds steps.f32_seconds steps.barrier_seconds steps.limit_seconds steps.expected_seconds \
        steps.binds steps.tokens_per_second steps.activation_bytes expected_error \
        expected_error.prompts expected_error.steps first_step_seconds tokens_per_extra_second what_if \
        what_if.weights what_if.cache what_if.bytes what_if.longest_context what_if.tokens_per_second_empty \
        what_if.tokens_per_second_full goal goal.met goal.expected goal.ttft_seconds goal.tokens_per_second \
        goal.context goal.prompt goal.memory_bytes goal.answer goal.answer.weights goal.answer.cache \
        goal.answer.ttft_seconds goal.answer.tokens_per_second goal.answer.memory_bytes goal.misses";
    assert_eq!(found, want.split_whitespace().collect::<Vec<_>>());
    assert_eq!(plan["model"]["parameters"]["tied_embeddings"], true);
    assert_eq!(plan["what_if"].as_array().map(Vec::len), Some(14));
    assert_eq!(
        plan["steps"][0]["expected_seconds"],
        Value::Null,
        "kernels were not measured there"
    );
}

/// Matrix units in half precision, whatever the chunk: the shaders' rate would say 97 ms.
#[test]
fn a_limit_is_one() {
    let place = Place::new();
    let h100 = ["qwen2.5-7b", "--type", "F16", "--device", "H100 SXM"];
    let of = |args: &[&str]| json(&place, &[&h100[..], args].concat())["prompts"].clone();
    let prompts = of(&[]);
    let limits = |prompts: &Value| -> Vec<Value> {
        prompts.as_array().unwrap().iter().map(|point| point["limit_seconds"].clone()).collect()
    };
    let at_512 = prompts.as_array().unwrap().iter().find(|point| point["tokens"] == 512).unwrap();
    let limit = at_512["limit_seconds"].as_f64().unwrap();
    assert!((6.5e-3..6.7e-3).contains(&limit) && at_512["binds"] == "f16", "{at_512}");
    let cut = of(&["--chunk", "16"]);
    assert_eq!(limits(&cut), limits(&prompts), "how a prompt is cut is no limit");
    let text = place.ok(&[&["plan"], &h100[..]].concat());
    for part in ["f32 495; bf16, f16 989; int8 1,979 TFLOP/s", "147.7", "295.3", "590.7"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // a prompt of a mixture reads some experts or all of them
    let mixture = json(&place, &["qwen3-30b-a3b", "--device", "h200 nvl"]);
    let at_16 = &mixture["prompts"][0];
    let read = |key: &str| at_16[key].as_f64().unwrap();
    assert!(read("read_most_seconds") > 4.0 * read("read_seconds"), "{at_16}");
    assert_eq!(mixture["steps"][0]["read_most_seconds"], mixture["steps"][0]["read_seconds"]);
    assert!(place.ok(&["plan", "qwen3-30b-a3b", "--device", "h200 nvl"]).contains(" us to "));
}

#[test]
fn what_does_not_fit_is_said_first() {
    let place = Place::new();
    let of = |args: &[&str]| {
        let output = place.run(&[&["plan"], args].concat());
        let first = text(&output.stdout).lines().next().unwrap_or_default().to_owned();
        (output.status.code(), first, text(&output.stderr))
    };
    let (code, first, stderr) =
        of(&["llama3.1:70b", "--type", "Q5_K_M", "--device", "4090", "--memory", "48GB"]);
    let want = "does not fit: 49.9 GB of weights, 48.0 GB of memory; --type Q4_K_M (";
    assert!(code == Some(1) && first.starts_with(want), "{first}");
    assert!(stderr.contains(&first), "{stderr}");
    // weights fit, so long a context does not: fewer tokens do, or a smaller cache
    let (code, first, _) =
        of(&["qwen2.5-7b", "--type", "F16", "--device", "4090", "-c", "32k", "--memory", "17GB"]);
    let want = "does not fit: 15.2 GB of weights and 1.88 GB of cache for 32,768 tokens, 17.0 GB of memory; -c ";
    assert!(code == Some(1) && first.starts_with(want), "{first}");
    assert!(first.ends_with(" does") && first.contains(" or -ctk q8_0 -ctv q8_0 ("), "{first}");
    let (_, first, _) = of(&["llama3.3:70b", "--device", "4090"]);
    assert!(first.ends_with("no type of weights does"), "{first}");
    // rates of what cannot run are not shown
    let table = printed(&place, &["llama3.1:70b", "--device", "4090", "--memory", "48GB"]);
    let f16 = table.lines().find(|line| line.starts_with("F16 ")).unwrap();
    assert_eq!(f16.split_whitespace().filter(|cell| *cell == "-").count(), 3, "{f16}");
    let (_, _, none) = of(&["llama3.1:70b", "--device", "4090"]);
    assert!(none.contains("does not fit"), "{none}");
    let none = printed(&place, &["llama3.1:70b", "--device", "4090"]);
    assert!(!none.contains("first token") && !none.contains("latency"), "{none}");
    assert_eq!(json(&place, &["qwen2.5-7b", "--device", "4090"])["fits"], true);
    assert_eq!(json(&place, &["qwen2.5-7b", "--device", "m1"])["fits"], Value::Null);
}

/// The first line says whether the model fits, in how much memory, up to which context and how fast.
#[test]
fn the_answer_comes_first() {
    let place = Place::new();
    let first = |args: &[&str]| printed(&place, args).lines().next().unwrap_or_default().to_owned();
    let fits = first(&["qwen2.5-7b", "--device", "4090"]);
    assert!(fits.starts_with("fits: 5.15 GB of 24.0 GB at 8,192 tokens, up to 3"), "{fits}");
    assert!(fits.ends_with(" tokens, at most 231 tok/s"), "{fits}");
    let unknown = first(&["qwen2.5-7b", "--device", "m1"]);
    let want = "needs 5.15 GB at 8,192 tokens; give --memory SIZE to see whether it fits";
    assert_eq!(unknown, want);
    let verdict = &json(&place, &["qwen2.5-7b", "--device", "4090"])["verdict"];
    assert_eq!(verdict, &Value::from(fits));
    // a type in which nobody publishes the model is not assumed
    let published = first(&["gpt-oss:20b", "--device", "4090"]);
    assert!(published.starts_with("fits: 12."), "{published}");
    // a short name means the model that is run by it
    let distilled = json(&place, &["deepseek-r1:7b", "--device", "4090"]);
    assert_eq!(distilled["model"]["name"], "DeepSeek-R1-Distill-Qwen-7B");
    assert_eq!(distilled["fits"], true);
}

/// A card that cannot hold all of a model leaves layers to this machine's processor, once that was measured.
#[test]
fn what_a_card_cannot_hold_is_placed() {
    let (place, _) = measured_place("qwen3-30b-a3b");
    let plan = ["plan", "qwen3-30b-a3b", "--device", "4090"];
    assert!(place.ok(&plan).starts_with("fits: "), "all of it has room");
    let output = place.run(&[&plan[..], &["--memory", "17GB"]].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{err}");
    let first = out.lines().next().unwrap_or_default();
    // the output is on the card as one of its layers
    let experts = first.strip_prefix("fits with 1 layer and the experts of ");
    assert!(
        experts.is_some_and(|rest| rest.contains(" more on the processor: at most ")),
        "{first}"
    );
    assert!(
        out.contains("\nplacement, steps at depth 8,192") && out.contains("-ngl 48 --n-cpu-moe ")
    );
    // the card alone runs nothing: its speeds are not shown
    assert!(!out.contains("first token") && !out.contains("latency"), "{out}");
}

/// The longest context is one number, on the line of contexts and in the table.
#[test]
fn the_longest_context_is_one_number() {
    let (place, _) = measured_place("qwen2.5-0.5b");
    let plan = json(&place, &["qwen2.5-0.5b", "--type", "Q8_0", "-t", "1", "--memory", "8GB"]);
    let rows = plan["what_if"].as_array().unwrap();
    for cache in plan["cache"]["types"].as_array().unwrap() {
        let row = rows.iter().find(|row| row["weights"] == "Q8_0" && row["cache"] == cache["type"]);
        assert_eq!(row.unwrap()["longest_context"], cache["longest_context"], "{cache}");
    }
    let longest = |ty: &str| {
        let row = rows.iter().find(|row| row["weights"] == ty && row["cache"] == "f16");
        row.and_then(|row| row["longest_context"].as_u64()).unwrap()
    };
    assert!(longest("F16") < longest("Q8_0") && longest("Q8_0") < longest("Q4_K_M"));
}

/// Far blocks that lie on disk are not asked of memory; weights and what `--kv-memory` allows are.
#[test]
fn what_lies_on_disk_needs_no_memory() {
    let place = Place::new();
    let of = |memory: &str, disk: &[&str]| {
        let long = ["-c", "1M", "--kv-policy", "infllm", "--kv-memory", "2GB", "--memory", memory];
        let args = [&["plan", "qwen2.5-7b", "--type", "Q4_K_M"], &long[..], disk].concat();
        let output = place.run(&args);
        let first = text(&output.stdout).lines().next().unwrap_or_default().to_owned();
        (output.status.code(), first)
    };
    let disk = ["--kv-disk", "d"];
    let (code, first) = of("8GB", &disk);
    assert!(code == Some(0) && !first.contains("does not fit"), "{first}");
    let (code, first) = of("6GB", &disk);
    assert!(code == Some(1) && first.starts_with("does not fit: "), "{first}");
    let (code, first) = of("8GB", &[]);
    assert!(code == Some(1) && first.contains("--kv-memory allows 2.00 GB"), "{first}");
    assert!(!place.path("d").exists(), "a plan keeps nothing");
}

#[test]
fn examples_of_the_help_fit() {
    let place = Place::new();
    let help = place.ok(&["plan", "--help"]);
    let examples = help.lines().filter_map(|line| line.trim().strip_prefix("rooflight plan "));
    let there = examples.filter(|line| line.contains("--device"));
    let mut count = 0;
    for line in there {
        let args: Vec<&str> = line.split_whitespace().collect();
        place.ok(&[&["plan"], &args[..]].concat());
        count += 1;
    }
    assert!(count > 0, "{help}");
}

#[test]
fn the_list_has_names_to_type() {
    let place = Place::new();
    let list: Value = serde_json::from_str(&place.ok(&["plan", "--list", "--json"])).unwrap();
    let names = |key: &str| list[key].as_array().unwrap().clone();
    assert!(names("models").contains(&"qwen2.5-7b".into()));
    assert!(names("weight_types").contains(&"Q4_K_M".into()));
    for device in names("devices") {
        let name = device["name"].as_str().unwrap();
        let plan = json(&place, &["qwen2.5-0.5b", "--device", name, "-c", "16"]);
        assert_eq!(plan["machine"]["name"], name);
        assert_eq!(plan["machine"]["bf16_macs_per_second"], device["macs_per_second"]["bf16"]);
    }
    for (typed, name) in [("4070", "RTX 4070"), ("4080-super", "RTX 4080 Super")] {
        let plan = json(&place, &["qwen2.5-0.5b", "--device", typed, "-c", "16"]);
        assert_eq!(plan["machine"]["name"], name);
    }
    let h100 = &names("devices")[0]["flop_per_byte"];
    assert!(h100["f32"].as_f64().is_some_and(|flop| flop.floor() == 147.0), "{h100}");
    let text = place.ok(&["plan", "--list"]);
    let rows = text.lines().skip_while(|line| !line.starts_with("devices")).skip(1);
    let widths: Vec<usize> = rows.map(str::len).collect();
    assert!(widths.len() > 30 && widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
}

/// A published model in Q8_0, on this machine as measured for it.
fn measured_place(model: &str) -> (Place, std::sync::Arc<program::Program>) {
    let place = Place::new();
    let config = models::find_published(model).expect("a published model");
    let q8_0 = models::Mixture::from_name("Q8_0").expect("a file type");
    let ty = |name: &str, dims: &[u64]| q8_0.tensor_type(&config, name, dims);
    let program = models::from_config(&config, &ty).expect("whole blocks").program;
    std::fs::create_dir_all(place.path(".cache/rooflight")).expect("a folder can be made");
    place.write(".cache/rooflight/machine.json", machine::measured_for(&program));
    (place, program)
}

#[test]
fn latent_attention_is_expected_on_a_measured_machine() {
    let (place, _) = measured_place("deepseek-v2-lite");
    let plan = json(&place, &["deepseek-v2-lite", "--type", "Q8_0", "-t", "1", "--memory", "64GB"]);
    for at in ["prompts", "steps"] {
        for point in plan[at].as_array().unwrap() {
            let [limit, expected] =
                ["limit_seconds", "expected_seconds"].map(|key| point[key].as_f64().unwrap());
            assert!(expected >= limit && limit > 0.0, "{point}");
        }
    }
}

/// What came of expected times is how far they are trusted.
#[test]
fn runs_are_the_error_bar_of_a_plan() {
    let (place, program) = measured_place("qwen2.5-0.5b");
    let args = ["plan", "qwen2.5-0.5b", "--type", "Q8_0", "-t", "1", "--memory", "64GB"];
    assert!(!place.ok(&args).contains('±'), "it never ran here");
    place.write(".cache/rooflight/predictions.json", machine::predicted(&program, 1));
    let text = place.ok(&args);
    for part in ["first token, expected ± 25 % by 2 runs", "steps, expected ± 0 % by 1 run"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plan = json(&place, &args[1..]);
    assert_eq!(plan["expected_error"]["prompts"]["part"], 0.25);
    assert_eq!(plan["expected_error"]["steps"]["runs"], 1);
}

/// The table of types takes windows into account as the line above it does.
#[test]
fn windows_make_room_for_longer_contexts() {
    let place = Place::new();
    let plan = json(&place, &["gemma-3-27b", "--device", "4090", "--type", "Q4_K_M"]);
    let row = plan["what_if"].as_array().unwrap().iter();
    let row = row.clone().find(|row| row["weights"] == "Q4_K_M" && row["cache"] == "f16").unwrap();
    assert_eq!(row["longest_context"], plan["cache"]["longest_context"]);
    let all = plan["cache"]["bytes_per_token"].as_f64().unwrap();
    let left = 24e9 - plan["weights"]["bytes"].as_f64().unwrap();
    assert!(row["longest_context"].as_f64().unwrap() > 3.0 * left / all, "{row}");
}

/// Of a deep past DeepSeek-V3.2 reads 2,048 latents and the keys of its indexers, DeepSeek-V3 all latents.
#[test]
fn choices_flatten_steps_at_depth() {
    let place = Place::new();
    let slowed = |model: &str| {
        let args =
            [model, "--device", "H100 SXM", "--memory", "1TB", "-c", "128k", "--type", "Q8_0"];
        let plan = json(&place, &args);
        let steps = plan["steps"].as_array().unwrap();
        let at = |depth: u64| {
            let step = steps.iter().find(|step| step["tokens"] == depth).unwrap();
            step["limit_seconds"].as_f64().unwrap()
        };
        (plan["cache"]["bytes_per_token"].as_f64().unwrap(), at(131_072) - at(4096))
    };
    let [plain, chooses] = ["deepseek-v3", "deepseek-v3.2"].map(slowed);
    assert_eq!([plain.0, chooses.0], [70_272.0, 85_888.0]);
    assert!(chooses.1 < 0.23 * plain.1, "{chooses:?} {plain:?}");
}

/// Section 5 of the article, cell by cell: `113\481`, 22072 tokens, W and B of 7B in 16 bits.
#[test]
fn the_articles_cells() {
    let place = Place::new();
    let of = |model: &str, weights: &str| {
        let device = ["--device", "rtx4090", "--article-units", "--memory", "24GB"];
        json(&place, &[&[model, "--type", weights], &device[..]].concat())
    };
    let floor = |value: &Value| value.as_f64().map(f64::floor);
    for (model, weights, longest, first, second) in [
        ("qwen1.5-7b", "w16", 22_072, 113.0, 481.0),
        ("qwen1.5-7b", "w8", 35_612, 50.0, 544.0),
        ("qwen1.5-4b", "w8", 54_220, 55.0, 317.0),
        ("qwen1.5-14b", "w4", 23_285, 22.0, 718.0),
        ("qwen1.5-32b", "w16", 0, 87.0, 5898.0),
        ("qwen1.5-110b", "w4", 0, 21.0, 17_464.0),
    ] {
        let plan = of(model, weights);
        assert_eq!(plan["cache"]["longest_context"], longest, "{model} {weights}");
        assert_eq!(floor(&plan["inflections"]["first"]), Some(first), "{model} {weights}");
        assert_eq!(
            floor(&plan["inflections"]["second_untiled"]),
            Some(second),
            "{model} {weights}"
        );
        assert_eq!(plan["units"], "article");
    }
    let seven = of("Qwen1.5-7B", "w16");
    assert_eq!(floor(&seven["tokens_per_extra_second"]), Some(2_064_384.0));
    assert!((seven["first_step_seconds"].as_f64().unwrap() - 0.01312).abs() < 1e-5);
    assert_eq!(of("qwen1.5-1.8b", "w16")["inflections"]["first"], Value::Null);
    let (code, stderr) =
        place.fails(&["plan", "qwen1.5-7b", "--article-units", "--type", "Q8_0", "--device", "m1"]);
    assert!(code == 2 && stderr.contains("w16, w8, w6, w4"), "{stderr}");
}

#[test]
fn goals_are_met_or_the_nearest_is_named() {
    let place = Place::new();
    let base = ["plan", "qwen2.5-7b", "--device", "rtx4090", "--context", "32k"];
    let met = place.ok(&[&base[..], &["--ttft", "500ms", "--tps", "100"]].concat());
    assert!(met.contains("met by      Q8_0 weights with f16 cache"), "{met}");

    let all = [&base[..], &["--ttft", "1ms", "--tps", "20", "--prompt", "512"]].concat();
    let missed = place.run(&all);
    assert_eq!(missed.status.code(), Some(1));
    let (out, err) = (text(&missed.stdout), text(&missed.stderr));
    assert!(out.contains("nearest     ") && out.contains("missed      first token after"), "{out}");
    assert!(err.contains("the goals cannot be met: first token after"), "{err}");

    // a cache that is asked for is not up for choice
    let cache = [&base[..], &["--tps", "1", "-ctk", "q8_0", "-ctv", "f16"]].concat();
    assert!(place.ok(&cache).contains("weights with q8_0/f16 cache"));
    let (code, told) = place.fails(&[&base[..], &["--tps", "1", "--prompt", "9"]].concat());
    assert!(code == 2 && told.contains("--ttft"), "{told}");
    for (flags, told) in [
        (&["-t", "1"][..], "-t has no effect"),
        (&["--article-units", "--chunk", "64"], "--chunk has no effect"),
    ] {
        let warned = text(&place.run(&[&base[..], flags].concat()).stderr);
        assert!(warned.contains(told), "{warned}");
    }

    let memory = [&base[..], &["--tps", "1", "--memory", "2GB", "--json"]].concat();
    let missed = place.run(&memory);
    let plan: Value = serde_json::from_str(&text(&missed.stdout)).unwrap();
    assert_eq!((missed.status.code(), &plan["goal"]["met"]), (Some(1), &Value::Bool(false)));
    assert_eq!(plan["goal"]["answer"]["weights"], "Q2_K");
    assert_eq!(plan["goal"]["misses"][0]["goal"], "memory");
    assert!(plan["goal"]["misses"][0]["factor"].as_f64().unwrap() > 1.5);
    // A type that is asked for stays.
    let pinned = [&base[..], &["--tps", "1", "--type", "Q4_0"]].concat();
    assert!(place.ok(&pinned).contains("met by      Q4_0"));
}

#[test]
fn what_cannot_be_planned_is_one_line() {
    let place = Place::new();
    place.write("mamba.json", CONFIG.replace("qwen2", "mamba\\u001b[31m"));
    place.write("short.json", r#"{"model_type": "llama"}"#);
    place.write("broken.json", "{");
    place.write("empty.gguf", "");
    std::fs::create_dir(place.path("nothing")).unwrap();
    let m1 = ["--device", "m1"];
    for (args, code, message) in [
        (vec!["qwen2.5:8b"], 3, "no published model is called `qwen2.5:8b`"),
        (vec!["mamba-3b"], 3, "rooflight plan --list"),
        (vec!["no/such.gguf"], 3, "no such model file"),
        (vec!["missing.json"], 3, "no such model file"),
        (vec!["mamba.json"], 2, "expected qwen2, qwen3, llama"),
        (vec!["short.json"], 2, "is missing"),
        (vec!["broken.json"], 2, "EOF"),
        (vec!["empty.gguf"], 2, "empty.gguf"),
        (vec!["nothing"], 2, "without a config.json"),
        (vec!["qwen3-8b", "--type", "Q9"], 2, "no weight type `Q9`"),
        (vec!["qwen3-8b", "--device", "abacus"], 2, "--device `abacus` is none of H100 SXM,"),
        (vec!["qwen3-8b", "--device", "H100"], 2, "could be H100 SXM, H100 PCIe or H100 NVL"),
        (vec!["qwen3-8b", "--device", "4060 ti"], 2, "RTX 4060 Ti 8GB or RTX 4060 Ti 16GB"),
        (vec!["qwen3-8b", "--memory", "much"], 2, "24GB"),
        (vec!["qwen3-8b", "--memory", "5"], 2, "a size with its unit"),
        (vec!["qwen3-8b", "--memory", "1e400"], 2, "24GB"),
        (vec!["qwen3-8b", "--memory", "1e300T"], 2, "24GB"),
        (vec!["qwen3-8b", "--ttft", "soon"], 2, "500ms"),
        (vec!["qwen3-8b", "--ttft", "-5s"], 2, "500ms"),
        (vec!["qwen3-8b", "--memory", "-24GB"], 2, "24GiB"),
        (vec!["qwen3-8b", "-c", "17m"], 2, "32k"),
        (vec![], 2, "no model"),
    ] {
        let device = if args.contains(&"--device") { &[][..] } else { &m1[..] };
        let (found, stderr) = place.fails(&[&["plan"], &args[..], device].concat());
        assert_eq!(found, code, "{args:?}: {stderr}");
        assert!(stderr.contains(message), "{args:?}: {stderr}");
        assert!(!stderr.contains('\u{1b}'), "{args:?}");
    }
    let (_, stderr) = place.fails(&["plan", "qwen2.5:8b"]);
    assert!(stderr.contains("did you mean Qwen2.5-3B or Qwen2.5-7B"), "{stderr}");
}

#[test]
fn what_people_see_fits_a_screen() {
    let place = Place::new();
    for args in [
        &["qwen2.5-7b", "--device", "H100 SXM"][..],
        &["qwen1.5-110b", "--device", "rtx4090", "-c", "32k", "-v"],
        &["llama3.3:70b", "--device", "Ryzen 9 7950X", "-ctk", "q8_0", "-ctv", "f32"],
        &["demo.gguf", "--device", "m2-ultra", "--memory", "64GB", "--tps", "1"],
        &["qwen1.5-7b", "--article-units", "--device", "rtx4090"],
        &["deepseek-v3", "--device", "H100 SXM", "-c", "32k"],
        &["deepseek-v3.2", "--device", "H100 SXM", "--memory", "1TB", "-c", "128k"],
        &["qwen3-30b-a3b", "--device", "H100 SXM", "--memory", "12GB", "--placement"],
        &["--list"],
    ] {
        let out = printed(&place, args);
        let widest = out.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let most = if args == ["--list"] { 130 } else { 50 };
        assert!(widest <= 100 && out.lines().count() <= most, "{args:?} {widest}\n{out}");
        assert!(!out.contains('\u{1b}'));
        assert!(!out.contains("NaN") && !out.contains("inf "), "{out}");
    }
    let closed = place.fails(&["plan", "deepseek-v2-lite", "--article-units", "--device", "m1"]);
    assert!(closed.1.contains("closed form is for dense models"), "{closed:?}");
    let list = place.ok(&["plan", "--list"]);
    for name in ["qwen2.5-1.5b", "qwen3-235b-a22b", "deepseek-v2-lite", "Q4_K_M", "RTX 4090"] {
        assert!(list.contains(name), "{name}");
    }
}

/// Whatever the figures, there is an answer, a picture, and an end.
#[test]
fn figures_without_measure() {
    let place = Place::new();
    let huge = CONFIG.replace("3584", "1048576").replace("18944", "16777216");
    let huge =
        huge.replace("_layers\": 28", "_layers\": 512").replace("heads\": 28", "heads\": 64");
    place.write("huge.json", huge);
    for args in [
        &["qwen2.5-7b", "-c", "16m", "--chunk", "1", "--device", "m1"][..],
        &["qwen2.5-7b", "--bandwidth", "1e-300", "--flops", "1e-300", "--memory", "1e-300GB"],
        &["qwen2.5-7b", "--bandwidth", "1e300", "--flops", "1e300", "--memory", "1e290TB"],
        &["huge.json", "-c", "16m", "--device", "h100sxm"],
    ] {
        let plan = json(&place, &[args, &["--plot", "all.svg", "--force"]].concat());
        assert!(plan["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{args:?}");
        assert!(!text(&place.read("all.svg")).contains("NaN"), "{args:?}");
        printed(&place, args);
        let goals = ["--ttft", "1e-300", "--tps", "1e300", "--plot", "goals.svg", "--force"];
        let missed = place.run(&[&["plan"], args, &goals].concat());
        assert_eq!(missed.status.code(), Some(1), "{args:?}: {}", text(&missed.stderr));
    }
}

/// What a card has no room for is the processor's: experts first.
#[test]
fn a_card_gets_what_saves_most() {
    let place = Place::new();
    let plan = ["plan", "qwen3-30b-a3b", "--device", "4090", "--memory", "12GB", "--placement"];
    let told = place.run(&[&plan[..], &["--json"]].concat());
    let told: Value = serde_json::from_slice(&told.stdout).expect("an object");
    let placed = &told["placement"];
    let number = |key: &str| placed[key].as_f64().unwrap_or_else(|| panic!("{key}: {placed}"));
    assert!(number("card_bytes") < 12e9 && number("n_cpu_moe") > 0.0, "{placed}");
    assert!(number("step_seconds") < number("processor_step_seconds"), "{placed}");
    let options = placed["options"].as_str().expect("options");
    let text = text(&place.run(&plan).stdout);
    assert!(text.contains(&format!("--executor wgpu {options}: ")), "{text}");
    let (code, told) = place.fails(&["plan", "qwen2.5-0.5b", "--placement"]);
    assert!(code == 2 && told.contains("--placement wants a card"), "{told}");
    // GPUs that share the processor's memory, though its size is published
    for shared in ["dgx spark", "agx orin", "strix halo"] {
        let plan = ["plan", "qwen2.5-0.5b", "--device", shared, "--placement"];
        let (code, told) = place.fails(&plan);
        assert!(code == 2 && told.contains("--placement wants a card"), "{shared}: {told}");
    }
}
