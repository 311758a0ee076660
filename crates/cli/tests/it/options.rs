//! Every option of every command does something that is seen: a row for each in `options/`, and each row tried.

use std::sync::LazyLock;

use conformance::Family;
use conformance::golden::{GoldenFile, archs};
use testing::{OptionTable, Sandbox};

use crate::machine;

/// Files that rows name.
static FILES: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let demo = conformance::demo_gguf();
    let of = |family, name: &str| {
        let case = archs(family).into_iter().find(|case| case.name == name);
        match case.map(|case| case.model) {
            Some(GoldenFile::Bytes(bytes)) => bytes,
            other => panic!("{name}: {other:?}"),
        }
    };
    let readers = conformance::golden::texts();
    let reader = |name: &str| {
        let found = readers.iter().find(|model| model.name == name);
        found.unwrap_or_else(|| panic!("{name}: no such model")).file.clone()
    };
    let question = |kind: &str, answer: &str| {
        format!(
            r#"{{"kind":"{kind}","messages":[{{"role":"user","content":"say it"}}],"answer":"{answer}"}}"#
        )
    };
    let chat = |text: &str| {
        format!(
            r#"{{"messages":[{{"role":"user","content":"{text}"}}],"add_generation_prompt":true}}"#
        )
    };
    vec![
        ("mean.gguf", reader("bert-mean")),
        ("nomic.gguf", reader("nomic-bert")),
        ("rank.gguf", reader("qwen3-reranker")),
        ("thinks.gguf", patched(&demo, "add_generation_prompt", "enable_thinking")),
        ("thought.gguf", patched(&demo, "assistant", "<think>")),
        ("llama.gguf", of(Family::Dense, "llama")),
        ("latent.gguf", of(Family::Latent, "deepseek2")),
        (".cache/rooflight/machine.json", machine::measured_everywhere(&demo).into()),
        (".cache/huggingface/hub/models--org--tiny/snapshots/abc/tiny-F32.gguf", demo.clone()),
        ("demo.gguf", demo),
        ("short.txt", "the end".into()),
        ("long.txt", "the thing, in the end, is what it is and not another. ".repeat(3).into()),
        ("marked.txt", "<|im_start|>the thing<|im_end|>".repeat(8).into()),
        ("questions.jsonl", question("passkey", "never").into()),
        ("others.jsonl", question("other", "never").into()),
        ("request.jsonl", REQUEST.into()),
        ("requests.jsonl", REQUEST.repeat(3).into()),
        (".local/state/rooflight/chats/2026-11-27T11-10-22Z-1-0.jsonl", STORED.into()),
        ("chat.json", chat("say it").into()),
        ("hello.json", chat("hello").into()),
        ("ends.jinja", "{{ bos_token }}[end]{{ eos_token }} {{ strftime_now('%Y-%m-%d') }}".into()),
        ("taken.svg", "<svg/>".into()),
        ("keys.txt", "secret\n".into()),
        ("rooflight.1", ".TH".into()),
    ]
});

/// A stored conversation.
const STORED: &str = concat!(
    r#"{"id":"1","parent":null,"role":"user","content":"What is the end of it?"}"#,
    "\n",
    r#"{"id":"2","parent":"1","role":"assistant","content":"It is the end."}"#,
    "\n"
);

/// A line of a batch.
const REQUEST: &str = "{\"prompt\": \"the end of it is the end\", \"max_tokens\": 4}\n";

/// A template in a file with a word replaced by a shorter one and blanks.
fn patched(file: &[u8], old: &str, new: &str) -> Vec<u8> {
    let new = format!("{new:width$}", width = old.len());
    assert_eq!(new.len(), old.len(), "lengths stay");
    let at = file.windows(old.len()).position(|bytes| bytes == old.as_bytes());
    let at = at.unwrap_or_else(|| panic!("the template says {old}"));
    [&file[..at], new.as_bytes(), &file[at + old.len()..]].concat()
}

/// All of them on disk.
static SHELF: LazyLock<Sandbox> = LazyLock::new(|| {
    let shelf = Sandbox::new("");
    FILES.iter().for_each(|(name, content)| shelf.write(&name.replace('/', "_"), content));
    shelf
});

/// Socket of a server that lists its loaded models to requests with the right key.
static LIVE: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
    use std::io::{Read, Write};
    let path = SHELF.path("live.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // the thread ends with the process
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map(Result::unwrap) {
            let mut asked = vec![0; 4096];
            let n = stream.read(&mut asked).unwrap_or(0);
            let has_key = String::from_utf8_lossy(&asked[..n]).contains("Bearer secret\r\n");
            let (status, body) = match has_key {
                true => (200, r#"{"models": [{"name": "live", "size": 9, "context_length": 64}]}"#),
                false => (401, "{}"),
            };
            // the client may have disconnected
            let _ = write!(stream, "HTTP/1.1 {status} x\r\n\r\n{body}");
        }
    });
    path
});

/// The binary in a folder with links to them: what it replaces, it replaces there alone.
fn place() -> Sandbox {
    let place = Sandbox::new(env!("CARGO_BIN_EXE_rooflight"));
    for (name, _) in &*FILES {
        let path = place.path(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::hard_link(SHELF.path(&name.replace('/', "_")), path))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    std::os::unix::fs::symlink(&*LIVE, place.path("live.sock")).unwrap();
    place
}

fn table() -> OptionTable {
    let table = OptionTable::read(&[
        ("generation.txt", include_str!("../options/generation.txt")),
        ("looking.txt", include_str!("../options/looking.txt")),
        ("measuring.txt", include_str!("../options/measuring.txt")),
        ("rotation.txt", include_str!("../options/rotation.txt")),
    ]);
    match kernels::Isa::detect().name() {
        "scalar" => {
            let isa = |option: &str| ["--isa", "ROOFLIGHT_ISA"].contains(&option);
            table.without("this CPU has no other set", isa)
        }
        _ => table,
    }
}

#[test]
fn every_option_has_a_row_and_every_row_an_option() {
    let gaps = table().gaps(&rooflight_cli::options());
    assert!(gaps.is_empty(), "{}", gaps.join("\n"));
}

#[test]
fn every_option_does_what_its_row_says() {
    let wrong = table().wrong(&place);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
