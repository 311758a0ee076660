//! The commands that measure and show.

use serde_json::{Value, json};

use crate::common::{self, Place, text};
use crate::machine;

#[test]
fn tokens_and_back() {
    let place = Place::new();
    let words = "the thing in the end,\n \u{e9}\u{1f680}\tit is";
    let ids = place.ok(&["tokenize", "-m", "demo.gguf", words]);
    assert!(ids.trim().split(' ').all(|id| id.parse::<u32>().is_ok()), "{ids}");
    let piped =
        place.command(&["tokenize", "-m", "demo.gguf"]).write_stdin(words).output().unwrap();
    assert_eq!(text(&piped.stdout), ids);
    assert_eq!(place.ok(&["tokenize", "-m", "demo.gguf", "--decode", &ids]), words);

    let marked = "<|im_start|>the";
    let plain = place.ok(&["tokenize", "-m", "demo.gguf", marked]);
    let special = place.ok(&["tokenize", "-m", "demo.gguf", "--special", marked]);
    assert!(plain.split(' ').count() > special.split(' ').count(), "{plain} {special}");
    assert_eq!(
        place.ok(&["tokenize", "-m", "demo.gguf", "--decode", "--special", &special]),
        marked
    );
    assert_eq!(place.ok(&["tokenize", "-m", "demo.gguf", "--decode", &special]), "the");
    let bos = place.ok(&["tokenize", "-m", "demo.gguf", "--bos", "the"]);
    assert_eq!(
        bos.split_once(' ').map(|(_, rest)| rest.to_owned()),
        Some(place.ok(&["tokenize", "-m", "demo.gguf", "the"]))
    );
    assert_eq!(place.ok(&["tokenize", "-m", "demo.gguf", ""]), "\n");
}

#[test]
fn decoding_drops_the_space_that_encoding_put_first() {
    let place = Place::new();
    let mut writer = gguf::Writer::new();
    writer
        .set("general.architecture", "llama")
        .set("tokenizer.ggml.model", "llama")
        .set("tokenizer.ggml.tokens", ["<unk>", "<s>", "</s>", "\u{2581}", "a"])
        .set("tokenizer.ggml.scores", [0.0_f32; 5])
        .set("tokenizer.ggml.token_type", [2, 3, 3, 1, 1])
        .set("tokenizer.ggml.bos_token_id", 1_u32);
    place.write("spm.gguf", writer.to_bytes().unwrap());
    for text in ["a a", " a"] {
        let ids = place.ok(&["tokenize", "-m", "spm.gguf", "--bos", text]);
        assert_eq!(place.ok(&["tokenize", "-m", "spm.gguf", "--decode", &ids]), text, "{ids}");
    }
}

/// The numbers of a file of f32.
fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

#[test]
fn logits_are_the_same_for_any_threads_and_chunks() {
    let place = Place::new();
    let ids = place.ok(&[
        "tokenize",
        "-m",
        "demo.gguf",
        "the thing, in the end, is what it is and not another",
    ]);
    let n = ids.split_whitespace().count();
    let base = [
        "logits",
        "-m",
        "demo.gguf",
        "--tokens",
        &ids,
        "--greedy",
        "6",
        "-ctk",
        "f32",
        "-ctv",
        "f32",
        "-o",
    ];
    let run = |file: &str, extra: &[&str]| place.ok(&[&base[..], &[file], extra].concat());
    let greedy = run("a.f32", &[]);
    assert_eq!(greedy.split_whitespace().count(), 6);
    let want = place.read("a.f32");
    let vocab_size = 256 + 45 + 3;
    assert_eq!(want.len(), n * vocab_size * 4);
    for extra in [["--chunk", "1"], ["--chunk", "7"], ["-t", "1"], ["-t", "2"], ["--isa", "scalar"]]
    {
        let extra = [&extra[..], &["--force"]].concat();
        assert_eq!(run("b.f32", &extra), greedy, "{extra:?}");
        assert!(place.read("b.f32") == want, "{extra:?}: other bits");
    }
    assert_eq!(run("c.f32", &["--executor", "interpreter"]), greedy);
    let (ours, exact) = (floats(&want), floats(&place.read("c.f32")));
    let square = |values: &[f32]| values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let error: Vec<f32> = ours.iter().zip(&exact).map(|(a, b)| a - b).collect();
    assert!(square(&error) / square(&exact) < 1e-9, "{}", square(&error) / square(&exact));
}

#[test]
fn perplexity_is_what_the_logits_say() {
    let place = Place::new();
    let words =
        "the thing, in the end, is what it is and not another thing of the same kind. ".repeat(2);
    place.write("text.txt", &words);
    let ids = place.ok(&["tokenize", "-m", "demo.gguf", &words]);
    let ids: Vec<usize> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
    let window: Vec<String> = ids[..32].iter().map(usize::to_string).collect();
    place.ok(&["logits", "-m", "demo.gguf", "--tokens", &window.join(" "), "-o", "w.f32"]);
    let logits = floats(&place.read("w.f32"));
    let rows: Vec<&[f32]> = logits.chunks(logits.len() / 32).collect();
    let nll = |i: usize| {
        let sum: f64 = rows[i].iter().map(|x| f64::from(*x).exp()).sum();
        sum.ln() - f64::from(rows[i][ids[i + 1]])
    };
    let mean = (16..31).map(nll).sum::<f64>() / 15.0;

    place.write(
        "window.txt",
        place.ok(&["tokenize", "-m", "demo.gguf", "--decode", &window.join(" ")]),
    );
    let out = place.ok(&["perplexity", "-m", "demo.gguf", "-f", "window.txt", "-c", "32"]);
    let last = out.lines().last().unwrap();
    let value: f64 =
        last.strip_prefix("PPL = ").unwrap().split(" +/- ").next().unwrap().parse().unwrap();
    assert!((value - mean.exp()).abs() < 0.01 * value, "{last}, expected {}", mean.exp());
    assert!(last.contains("1 windows of 32 tokens") && last.ends_with(" tokens/s"), "{last}");
    for extra in [["--chunk", "1"], ["--chunk", "7"]] {
        let again =
            place.ok(&[&["perplexity", "demo.gguf", "-f", "window.txt", "-c", "32"][..], &extra]
                .concat());
        assert_eq!(again.lines().next(), out.lines().next(), "{extra:?}");
    }
    let (code, told) =
        place.fails(&["perplexity", "-m", "demo.gguf", "-f", "window.txt", "-c", "512"]);
    assert!(code == 2 && told.contains("window of 512") && told.contains("-c 32"), "{told}");
    let chunked = |n: &str| {
        let all =
            ["perplexity", "demo.gguf", "-f", "window.txt", "-c", "8", "--json", "--chunks", n];
        serde_json::from_str::<Value>(&place.ok(&all)).unwrap()
    };
    let [first, all] = ["1", "-1"].map(chunked);
    assert_eq!((&first["windows"], &all["windows"]), (&json!(1), &json!(4)));
    assert_eq!(chunked("99")["perplexity"], all["perplexity"], "more than there are is all");
}

/// Keys of a row and an example of each type. Source: tools/llama-bench/README.md of llama.cpp, "Output formats".
const LLAMA_BENCH: &str = r#"{
    "build_commit": "", "build_number": 1, "cpu_info": "", "gpu_info": "", "backends": "", "model_filename": "",
    "model_type": "", "model_size": 1, "model_n_params": 1, "n_batch": 1, "n_ubatch": 1, "n_threads": 1,
    "cpu_mask": "", "cpu_strict": false, "poll": 1, "type_k": "", "type_v": "", "n_gpu_layers": 1, "n_cpu_moe": 1,
    "split_mode": "", "main_gpu": 1, "no_kv_offload": false, "flash_attn": 1, "devices": "", "tensor_split": "",
    "tensor_buft_overrides": "", "use_mmap": true, "use_direct_io": false, "embeddings": false, "no_op_offload": 1,
    "no_host": false, "repack": true, "load_mode": "", "moe_cache": "", "n_gen_warmup": 1, "fit_target": 1,
    "fit_min_ctx": 1, "n_prompt": 1, "n_gen": 1, "n_depth": 1, "test_time": "", "avg_ns": 1, "stddev_ns": 1,
    "avg_ts": 1.5, "stddev_ts": 1.5, "samples_ns": [1], "samples_ts": [1.5]
}"#;

/// Whether a value has the type of another; a float may be whole.
fn same_type(value: &Value, like: &Value) -> bool {
    match (value, like) {
        (Value::Array(values), Value::Array(like)) => values.iter().all(|v| same_type(v, &like[0])),
        (Value::Number(value), Value::Number(like)) => like.is_f64() || value.is_i64(),
        (value, like) => std::mem::discriminant(value) == std::mem::discriminant(like),
    }
}

/// A place in which the rates of the demo model need not be measured.
fn measured_place() -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path(".cache/rooflight")).expect("a folder can be made");
    place.write(".cache/rooflight/machine.json", machine::measured(&place.read("demo.gguf")));
    place
}

#[test]
fn bench_speaks_llama_bench() {
    let place = measured_place();
    let json = |args: &[&str]| -> Vec<Value> {
        let out = place.ok(&[&["bench", "-m", "demo.gguf", "-o", "json"], args].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    };
    let documented: serde_json::Map<String, Value> = serde_json::from_str(LLAMA_BENCH).unwrap();
    let rows = json(&["-p", "16", "-n", "4", "-d", "0,8", "-t", "1-2", "-r", "2"]);
    assert_eq!(rows.len(), 8);
    for row in &rows {
        for (key, like) in &documented {
            assert!(same_type(&row[key], like), "{key} is {}, as in {like}", row[key]);
        }
        assert_eq!(row["samples_ns"].as_array().map(Vec::len), Some(2));
        assert!(row["avg_ts"].as_f64().unwrap() > 0.0);
        assert_eq!(row["n_ubatch"], 64, "the smallest chunk is as good by the rates that are kept");
        assert!(row["bytes_per_token"].as_u64().unwrap() > 0);
        let limit = row["limit_ts"].as_f64().unwrap();
        assert!(limit > 0.0);
        // of little work, and above the limit, there is no share
        if let Some(share) = row["share"].as_f64() {
            let [ts, ns] = ["avg_ts", "avg_ns"].map(|key| row[key].as_f64().unwrap());
            assert!(share <= 1.0 && ns >= 5e7 && (share - ts / limit).abs() < 0.06, "{row}");
        }
        assert!(
            ["memory", "int8", "f16", "bf16", "f32"].contains(&row["bound_by"].as_str().unwrap())
        );
    }
    let shape = |row: &Value| {
        ["n_threads", "n_depth", "n_prompt", "n_gen"].map(|key| row[key].as_u64().unwrap())
    };
    assert_eq!(
        rows.iter().map(shape).collect::<Vec<_>>()[..4],
        [[1, 0, 16, 0], [1, 0, 0, 4], [1, 8, 16, 0], [1, 8, 0, 4]]
    );
    assert_eq!(
        json(&["-p", "16", "-n", "0", "-r", "1", "-t", "1"])
            .iter()
            .map(|r| r["n_prompt"].clone())
            .collect::<Vec<_>>(),
        [16]
    );
    assert_eq!(json(&["-p", "0", "-n", "2", "-r", "1", "-t", "1"]).len(), 1);
    assert_eq!(json(&["-p", "0", "-n", "0", "-pg", "8,2", "-r", "1", "-t", "1"])[0]["n_gen"], 2);

    let greedy = json(&["-p", "8", "-n", "4", "-r", "1", "-t", "1", "--greedy"]);
    assert!(greedy.iter().all(|row| row["greedy"] == true) && rows[0]["greedy"] == false);
    assert!(greedy.iter().chain(&rows).all(|row| row.get("expected_ts").is_some()));
    let told = place.run(&["bench", "-m", "demo.gguf", "-n", "0", "-r", "1", "--greedy"]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("--greedy has no effect"));

    let chunks = json(&["-p", "8", "-n", "0", "-r", "1", "-t", "1", "-ub", "2-8*2"]);
    assert_eq!(chunks.iter().map(|r| r["n_ubatch"].clone()).collect::<Vec<_>>(), [2, 4, 8]);
    assert_eq!(place.fails(&["bench", "-m", "demo.gguf", "--chunk", "0"]).0, 2);

    let short = |more: &[&str]| {
        let base = ["bench", "-m", "demo.gguf", "-p", "8", "-n", "2", "-t", "1"];
        place.ok(&[&base[..], more].concat())
    };
    let table = short(&["-r", "2"]);
    assert!(
        table.starts_with("| model") && table.contains("pp8") && table.contains("±"),
        "{table}"
    );
    assert!(!table.contains("| chunk |"), "one chunk needs no column: {table}");
    assert!(!table.contains("expected") && !table.contains("of limit"), "{table}");
    assert!(table.contains("pp8, tg2 are not compared with the limit: work of less"), "{table}");
    assert!(short(&["-r", "1", "--chunk", "2,4"]).contains("| chunk |"));
    let csv = short(&["-r", "1", "-o", "csv"]);
    assert!(csv.starts_with("build_commit,") && csv.lines().count() == 3, "{csv}");
    assert!(!csv.contains("\"true\"") && !csv.contains("\"false\""), "truths are 1 and 0: {csv}");
    let lines = short(&["-r", "1", "-o", "jsonl"]);
    assert!(
        lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok())
            && lines.lines().count() == 2
    );
}

#[test]
fn bench_explains_the_gap() {
    let place = measured_place();
    let base =
        ["bench", "-m", "demo.gguf", "-p", "24", "-n", "3", "-r", "1", "-t", "1", "--explain"];
    let rows: Vec<Value> =
        serde_json::from_str(&place.ok(&[&base[..], &["-o", "json"]].concat())).unwrap();
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert!(row["expected_ts"].as_f64().unwrap() > 0.0);
        let explain = &row["explain"];
        let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
        let groups = explain["groups"].as_array().unwrap();
        let gaps: f64 = groups.iter().map(|group| number(group, "gap_seconds")).sum();
        let gap = number(explain, "measured_seconds") - number(explain, "limit_seconds");
        assert!((gaps + number(explain, "overlap_seconds") - gap).abs() < 1e-9, "{explain}");
        assert!([64, 128, 256, 512].contains(&explain["best_chunk"].as_u64().unwrap()));
        assert_eq!(explain["best_chunk"], row["n_ubatch"]);
        let named = |name: &str| groups.iter().any(|group| group["name"] == name);
        assert!(["weights", "attention", "head", "barriers"].iter().all(|name| named(name)));
        assert_eq!(named("sampling"), row["n_gen"] == 3);
    }
    let text = place.ok(&[&base[..], &["--plot", "gap.svg"]].concat());
    assert!(place.read("gap.svg").starts_with(b"<svg"));
    for part in ["pp24: ", "tg3: ", "weights", "one by one", "prompts go in chunks"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = place.run(&[&base[..], &["-o", "csv"]].concat());
    let [csv, told] = [output.stdout, output.stderr].map(|bytes| common::text(&bytes));
    assert!(told.contains("--explain has no effect"), "{told}");
    assert!(csv.lines().count() == 3 && !csv.contains("gap_seconds"), "{csv}");
}

#[test]
fn show_tells_what_is_in_the_file() {
    let place = Place::new();
    let out = place.ok(&["show", "demo.gguf", "--tensors", "--program", "--metadata"]);
    for part in [
        "qwen2",
        "demo (random weights)",
        "gpt2, pre qwen2",
        "2048 tokens",
        "blk.1.ffn_down.weight",
        "linear(",
        "eos",
    ] {
        assert!(out.contains(part), "{part} is not in {out}");
    }
    let json: Value = serde_json::from_str(&place.ok(&["show", "demo.gguf", "--json"])).unwrap();
    assert_eq!(json["model"]["n_layers"], 2);
    assert_eq!(json["types"][0]["type"], "F32");
    assert_eq!(json["tokenizer"]["n_tokens"], 256 + 45 + 3);
    assert!(json.get("tensors").is_none());
    let from_variable =
        place.command(&["show"]).env("ROOFLIGHT_MODEL", "demo.gguf").output().unwrap();
    assert!(text(&from_variable.stdout).contains("qwen2"));
    assert_eq!(place.fails(&["show"]).0, 2);
}

#[test]
fn show_tells_what_chooses() {
    let place = Place::new();
    place.write("chooses.gguf", conformance::golden::model("deepseek32"));
    let out = place.ok(&["show", "chooses.gguf"]);
    let line = out.lines().find(|line| line.starts_with("indexer ")).expect("a line of its own");
    assert!(line.ends_with("4 heads of 64 choose 16 positions, on 2 of 2 layers"), "{line}");
    assert!(!place.ok(&["show", "demo.gguf"]).contains("indexer"));
}

#[test]
fn a_file_with_only_a_vocabulary_is_shown_and_tokenizes() {
    let shared = match testing::shared() {
        Ok(shared) => shared,
        Err(why) => return testing::skipped(&format!("a file with only a vocabulary: {why}")),
    };
    let place = Place::new();
    let file = shared.join("models/vocab/ggml-vocab-qwen2.gguf");
    let file = file.to_str().expect("the path is UTF-8");
    assert!(place.ok(&["show", file]).contains("a vocabulary only"));
    assert_eq!(place.ok(&["tokenize", "-m", file, "Hello world"]), "9707 1879\n");
    let (code, told) = place.fails(&["run", file, "hi"]);
    assert!(code == 2, "{told}");
}

#[test]
fn kernels_are_listed() {
    let place = Place::new();
    let table = place.ok(&["kernels"]);
    assert!(
        table.contains("rms_norm") && table.contains("Q4_K") && table.contains("why"),
        "{table}"
    );
    let mut scalar = place.command(&["kernels", "--json"]);
    let json: Value =
        serde_json::from_slice(&scalar.env("ROOFLIGHT_ISA", "scalar").output().unwrap().stdout)
            .unwrap();
    assert_eq!(json["used"], "scalar");
    assert!(json["kernels"].as_array().unwrap().iter().all(|row| row["isa"] == "scalar"));
}

#[test]
fn completions_and_manual_pages() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(place.ok(&["completions", shell]).contains("perplexity"), "{shell}");
    }
    // names that can be typed as they are completed
    for shell in ["bash", "zsh", "fish"] {
        let script = place.ok(&["completions", shell]);
        for name in ["rtx-4090", "h100-sxm", "IQ3_S", "q8_0"] {
            assert!(script.contains(name), "{shell} completes {name}");
        }
    }
    assert!(place.ok(&["plan", "qwen2.5-0.5b", "--device", "h100-sxm"]).contains("H100 SXM"));
    assert!(!place.ok(&["plan", "--help"]).contains("possible values: rtx"));
    assert!(place.ok(&["man"]).contains(".TH rooflight 1"));
    let page = place.ok(&["man", "run"]);
    assert!(
        page.contains("sky") && page.contains(concat!("rooflight ", env!("CARGO_PKG_VERSION")))
    );
    assert_eq!(place.ok(&["man", "-o", "pages"]), "");
    for page in ["rooflight.1", "rooflight-run.1", "rooflight-bench.1"] {
        assert!(text(&place.read(&format!("pages/{page}"))).contains(".TH"), "{page}");
    }
}

#[test]
fn the_machine_is_measured_once_and_then_remembered() {
    let place = Place::new();
    let machine =
        |extra: &[&str]| place.ok(&[&["machine", "-t", "1", "--types", "q8_0"], extra].concat());
    let first = machine(&["--json"]);
    let parsed: Value = serde_json::from_str(&first).unwrap();
    assert!(parsed["read"][0]["bytes_per_second"].as_f64().unwrap() > 0.0);
    let rate = &parsed["rates"]["linear"][0];
    assert_eq!(rate["type"], "Q8_0");
    let seconds: Vec<f64> =
        rate["seconds_per_weight"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    assert_eq!(rate["rows"].as_array().map(Vec::len), Some(seconds.len()));
    assert!(seconds.iter().all(|seconds| *seconds > 0.0), "{seconds:?}");
    assert!(place.path(".cache/rooflight/machine.json").exists());
    let again: Value = serde_json::from_str(&machine(&["--json"])).unwrap();
    for part in ["machine", "build", "read", "compute", "rates"] {
        assert_eq!(again[part], parsed[part], "kept");
    }
    assert!(machine(&[]).contains("Q8_0"));
    assert_eq!(place.fails(&["machine", "--types", "Q9"]).0, 2);

    // a file that someone else wrote is measured over, not believed
    place.write(".cache/rooflight/machine.json", "{\"machine\": 3}");
    assert!(machine(&[]).contains("GB/s"));
    let (code, stderr) = place.fails(&["machine", "--executor", "interpreter", "--refresh"]);
    assert_eq!(code, 1, "{stderr}");

    // where nothing can be kept, that is told
    let mut homeless = place.command(&["plan", "demo.gguf", "-t", "1"]);
    let told = homeless.env("XDG_CACHE_HOME", "/dev/null").output().unwrap().stderr;
    let told = text(&told);
    assert!(told.contains("could not write /dev/null/rooflight/machine.json: "), "{told}");
    assert_eq!(told.matches("is not saved").count(), 1, "{told}");

    // whatever was kept, no reply is said to be at some hundred percent of it
    let place = measured_place();
    let reply = place.run(&[
        "complete",
        "-m",
        "demo.gguf",
        "-p",
        "the",
        "-n",
        "12",
        "--ignore-eos",
        "-v",
        "-t",
        "1",
    ]);
    let told = text(&reply.stderr);
    let parts: Vec<&str> = told.split(" % of limit").collect();
    for before in &parts[..parts.len() - 1] {
        let share = before.rsplit([' ', '=']).next().unwrap();
        assert!(share.parse::<f64>().is_ok_and(|share| share <= 100.0), "{told}");
    }
    assert!(told.contains(" tok/s"), "{told}");
}

#[test]
fn what_has_moved_says_where() {
    let place = Place::new();
    for name in ["article", "bench-mla"] {
        let (code, told) = place.fails(&[name, "--out", "folder"]);
        assert_eq!((code, told.lines().count()), (2, 1), "{told}");
        assert!(told.contains(&format!("-p rooflight-lab -- {name}")), "{told}");
    }
}

/// Each rule of a recurrence is timed at the shape that a model has, and kept.
#[test]
fn what_recurs_is_measured_at_its_shape() {
    let place = Place::new();
    let models = [
        ("qwen35", "delta_net"),
        ("mamba2", "ssd_scan"),
        ("kimi-linear", "delta_net"),
        ("rwkv6qwen2", "linear_attention"),
        ("minimax-01", "lightning_attention"),
        ("falcon-mamba", "selective_scan"),
        ("rwkv6", "wkv6"),
        ("rwkv7", "wkv7"),
    ];
    for (name, rule) in models {
        let file = format!("{name}.gguf");
        place.write(&file, conformance::golden::model(name));
        place.ok(&["bench", &file, "-t", "1", "-p", "4", "-n", "1", "-r", "1", "-o", "json"]);
        let kept = place.read(".cache/rooflight/machine.json");
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        let scans = kept["machines"][0]["rates"]["scans"].as_array().unwrap();
        // checked after each model: rates measured beside other programs are discarded once those have ended
        assert!(scans.iter().any(|scan| scan["rule"] == rule), "{name}: {rule} in {scans:?}");
        for scan in scans {
            for time in ["step_seconds", "token_seconds"] {
                assert!(scan[time].as_f64().is_some_and(|time| time > 0.0), "{scan}");
            }
        }
    }
    let shown = place.ok(&["machine", "-t", "1", "--types", "f32"]);
    assert!(shown.contains("what recurs") && shown.contains("wkv7"), "{shown}");
}
