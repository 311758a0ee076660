use std::io::{Seek as _, SeekFrom};

use gguf::Gguf;
use models::{Mixture, ModelConfig};
use tokenizer::Tokenizer;

use super::*;

/// A folder for one test.
fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("make-model-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn mixture(name: &str) -> &'static Mixture {
    Mixture::from_name(name).unwrap()
}

fn make(shape: &str, ty: &str, seed: u64, path: &Path) -> Gguf {
    let shape = shapes::find(shape).unwrap();
    write(&shape, mixture(ty), seed, Target { path, force: true }).unwrap();
    Gguf::open(path).unwrap()
}

/// The file without its weights: a hole instead, which takes no space.
fn without_weights(shape: &Shape, path: &Path) -> Gguf {
    let plan = plan(shape, mixture("Q2_K"), 0).unwrap();
    let mut writer = Writer::new();
    keys::set(&mut writer, shape, mixture("Q2_K")).unwrap();
    let mut end = 0;
    for tensor in &plan.tensors {
        writer.tensor_later(&tensor.name, tensor.ty, &tensor.dims);
        end += tensor.bytes().next_multiple_of(32);
    }
    let mut file = File::create(path).unwrap();
    let error = writer.write_with(&mut file, &mut |_, _| Ok(())).unwrap_err();
    assert!(error.to_string().contains("0 bytes"), "the first tensor is not written: {error}");
    let head = file.seek(SeekFrom::End(0)).unwrap();
    file.set_len(head + end).unwrap();
    Gguf::open(path).unwrap()
}

#[test]
fn what_is_written_reads_as_what_was_published() {
    let folder = folder("keys");
    for shape in shapes::all() {
        let gguf = without_weights(&shape, &folder.join("head.gguf"));
        let (mut read, notes) = ModelConfig::from_gguf(&gguf).unwrap();
        let written = shape.config.name.clone().map(|name| format!("{name} (random weights)"));
        assert_eq!(read.name, written);
        read.name.clone_from(&shape.config.name);
        assert_eq!(read, shape.config, "{}", shape.name);
        assert!(notes.is_empty(), "{}: {notes:?}", shape.name);
        models::load(&gguf).unwrap_or_else(|error| panic!("{}: {error}", shape.name));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_seed_gives_the_same_bytes_everywhere() {
    let folder = folder("bytes");
    let path = folder.join("model.gguf");
    let hash = |ty: &str, seed: u64| {
        make("tiny-deepseek3", ty, seed, &path);
        let bytes = std::fs::read(&path).unwrap();
        bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
        })
    };
    assert_eq!(hash("Q4_K_M", 0), hash("Q4_K_M", 0));
    assert_ne!(hash("Q4_K_M", 0), hash("Q4_K_M", 1));
    assert_eq!(format!("{:016x}", hash("Q8_0", 7)), "e3392c88a0d11194");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn every_type_makes_a_model_that_loads() {
    let folder = folder("types");
    let path = folder.join("model.gguf");
    let made = models::MIXTURES.iter().filter(|mixture| keys::file_type(mixture).is_some());
    assert!(made.clone().count() + 1 >= models::MIXTURES.len(), "all but IQ3_S");
    for mixture in made {
        let gguf = make("tiny-qwen3moe", mixture.name(), 0, &path);
        let loaded = models::load(&gguf).unwrap();
        assert!(loaded.notes.is_empty(), "{:?}", loaded.notes);
        for tensor in gguf.tensors() {
            let wanted = mixture.tensor_type(&loaded.config, &tensor.name, &tensor.dims);
            assert_eq!(tensor.ty().ok(), wanted, "{}: {}", mixture.name(), tensor.name);
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn weights_have_the_spread_that_keeps_activations_in_range() {
    let folder = folder("spread");
    let gguf = make("tiny-qwen2", "F32", 0, &folder.join("model.gguf"));
    let moments = |name: &str| {
        let tensor = gguf.tensor(name).unwrap();
        let x: Vec<f32> = gguf
            .bytes(tensor)
            .unwrap()
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let n = x.len() as f32;
        let mean = x.iter().sum::<f32>() / n;
        (mean, (x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n).sqrt())
    };
    for (name, mean, spread) in [
        ("token_embd.weight", 0.0, 1.0),
        ("blk.0.attn_q.weight", 0.0, 1.0 / 16.0),
        ("blk.1.ffn_down.weight", 0.0, 512f32.sqrt().recip()),
        ("blk.2.ffn_norm.weight", 1.0, 0.1),
        ("blk.2.attn_q.bias", 0.0, 0.1),
    ] {
        let found = moments(name);
        assert!((found.0 - mean).abs() < 0.12 * spread, "{name}: {found:?}");
        assert!((found.1 / spread - 1.0).abs() < 0.12, "{name}: {found:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn vocabularies_read_and_write_text() {
    let folder = folder("vocabulary");
    for shape in ["tiny-quant", "tiny-llama-spm"] {
        let gguf = make(shape, "Q4_0", 0, &folder.join("model.gguf"));
        let tokenizer = Tokenizer::from_gguf(gguf.metadata()).unwrap();
        assert!(tokenizer.warnings().is_empty(), "{:?}", tokenizer.warnings());
        let text = "the quick brown fox, 42 times: \u{e9}\u{4e2d}!\n";
        let ids = tokenizer.encode(text).unwrap();
        assert!(ids.len() < text.len(), "pairs are merged");
        let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.bytes(*id)).collect();
        assert_eq!(String::from_utf8(bytes).unwrap().trim_start(), text);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let folder = folder("arguments");
    let path = folder.join("model.gguf");
    let run = |args: &[&str]| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        run(&args).map_err(|error| format!("{error:#}"))
    };
    let out = path.to_str().unwrap();
    run(&["tiny-quant", "--layers", "1", "--type", "q4_0", "-o", out]).unwrap();
    let model = models::load(&Gguf::open(&path).unwrap()).unwrap();
    assert_eq!(model.config.layers.len(), 1);
    let before = std::fs::read(&path).unwrap();
    for (args, expected) in [
        (&["tiny-quant", "-o", out][..], "--force"),
        (&["qwen2.5-8b"], "Qwen2.5-7B"),
        (&["tiny-quant", "--type", "IQ3_S"], "no weights of type `IQ3_S`"),
        (&["tiny-quant", "--layers", "3"], "2 layers"),
        (&["tiny-quant", "--layers", "0"], "2 layers"),
        (&["tiny-quant", "tiny-qwen2"], "more than one"),
        (&["--fast"], "unknown flag"),
        (&[], "which shape?"),
    ] {
        let error = run(args).unwrap_err();
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    run(&["tiny-quant", "--seed", "1", "--force", "-o", out]).unwrap();
    assert_ne!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    std::fs::remove_dir_all(folder).unwrap();
}
