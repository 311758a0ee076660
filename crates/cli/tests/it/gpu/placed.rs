//! What of a model a GPU gets: by names of tensors, and by the room that it has.

use serde_json::Value;

use super::{Place, adapter, golden, greedy, refusal, wgpu};

/// What is named lies where it is said, whatever else is; the ids are the processor's.
#[test]
fn tensors_by_name() {
    let Some(_) = adapter() else { return };
    let place = Place::new();
    place.write("moe.gguf", golden::model("qwen3moe"));
    let (want, _) = greedy(&place, "moe.gguf", &[]);
    for (options, seen) in [
        (&["-ot", "exps=CPU"][..], "experts of layers 0-1"),
        (&["-ot", r"blk\.0\.=cpu"], "(layer 0); 1 crossing"),
        (&["-ot", "^token_embd=cpu"], "(embedding); 1 crossing"),
        (&["-ot", "^output=cpu"], "(output); 1 crossing"),
        // the first that is found counts, and all of them before -ngl and -ncmoe
        (&["-ot", "1.*exps=gpu,exps=cpu"], "(experts of layer 0); 2 crossings"),
        (&["-ot", "exps=gpu", "-ot", ".=cpu", "-ngl", "0", "-cmoe"], "(experts of layers 0-1); "),
    ] {
        let args = [&wgpu()[..], options, &["--verbose"]].concat();
        let (found, told) = greedy(&place, "moe.gguf", &args);
        assert_eq!(found, want, "{options:?}: {told}");
        assert!(told.contains(seen), "{options:?}: {told}");
    }
    for (rule, problem) in [
        (
            "ffn_up_exps=cpu",
            "blk.0.ffn_up_exps.weight on the processor, blk.0.ffn_gate_exps.weight",
        ),
        ("attn_q.weight=cpu", "they belong together"),
        ("ffn_up_experts=cpu", "no tensor has such a name; some are token_embd.weight, blk."),
        ("exps=CUDA0", "cpu or gpu"),
    ] {
        let args = ["logits", "moe.gguf", "--tokens", "1", "--greedy", "1", "-ot", rule];
        for executor in [wgpu(), vec!["--executor", "auto"]] {
            let (code, told) = place.fails(&[&args[..], &executor].concat());
            assert!(code == 2 && refusal(&told).contains(problem), "{rule}: {told}");
        }
    }
}

/// Figures of a machine whose GPU is fast: lavapipe is not, and nothing would be worth asking it.
fn make_the_gpu_fast(place: &Place, adapter: &str) {
    let file = ".cache/rooflight/machine.json";
    let mut kept: Value = serde_json::from_slice(&place.read(file)).expect("what was measured");
    for machine in kept["machines"].as_array_mut().expect("machines") {
        let is_gpu = machine["machine"].as_str().is_some_and(|name| name.contains(adapter));
        let [bytes, macs] = if is_gpu { [1e12, 1e14] } else { [1e9, 1e9] };
        for read in machine["read"].as_array_mut().expect("figures") {
            read["bytes_per_second"] = bytes.into();
        }
        for compute in machine["compute"].as_array_mut().expect("figures") {
            compute["f32_macs_per_second"] = macs.into();
            compute["int8_macs_per_second"] = macs.into();
        }
        if is_gpu {
            machine["submission_nanoseconds"] = 1000.into();
        }
        machine.as_object_mut().expect("an object").remove("busy");
    }
    place.write(file, kept.to_string());
}

/// A GPU gets what it has room for, by the calculation of `plan --placement`; who says what it is to have is obeyed.
#[test]
fn what_has_no_room_stays() {
    let Some(adapter) = adapter() else { return };
    let place = Place::new();
    place.write("moe.gguf", golden::model("qwen3moe"));
    let (want, _) = greedy(&place, "moe.gguf", &[]);
    let run = |more: &[&str]| {
        // what steps work in takes less than weights
        let args = [&wgpu()[..], &["--verbose", "--chunk", "16"], more].concat();
        let (found, told) = greedy(&place, "moe.gguf", &args);
        assert_eq!(found, want, "{more:?}: {told}");
        told
    };
    // lavapipe is no faster than what plays it
    let told = run(&["--gpu-memory", "106MB"]);
    assert!(told.contains("-ngl"), "{told}");
    make_the_gpu_fast(&place, &adapter);
    let whole = run(&["--gpu-memory", "2GB"]);
    assert!(!whole.contains("crossing"), "{whole}");
    let placed = run(&["--gpu-memory", "106MB"]);
    let line = placed.lines().find(|line| line.starts_with("--executor wgpu: -ngl "));
    let line = line.unwrap_or_else(|| panic!("{placed}"));
    assert!(line.ends_with(" of 106 MB") && placed.contains("crossing"), "{placed}");
    // the same options by hand say nothing of it, and nor do others
    let options = line.trim_start_matches("--executor wgpu: ").split(": ").next();
    let options: Vec<_> = options.expect("options").split(' ').collect();
    let by_hand = run(&options);
    let divided = |told: &str| {
        let banner = told.lines().find(|line| line.contains("crossing"));
        banner.and_then(|line| Some(line.split_once("wgpu: ")?.1.split(" - ").next()?.to_owned()))
    };
    assert_eq!(divided(&by_hand), divided(&placed), "{by_hand}");
    let all = run(&["--gpu-memory", "106MB", "-ngl", "all"]);
    assert!(!all.contains("crossing") && all.contains("--gpu-memory has no effect"), "{all}");
    let none = run(&["--gpu-memory", "1MB"]);
    assert!(none.contains("nothing that 1.00 MB"), "{none}");
}
