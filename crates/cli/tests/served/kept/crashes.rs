//! Caches that lie on disk while a server runs (`--kv-disk`), beside conversations that stay: the server is killed, the disk
//! is full, somebody changes the files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use testing::{Dice, mutations};

use super::Folder;
use crate::asking::{ask, cached, request, said, tokens, told, try_ask};
use crate::common::text;

/// Few positions of everything, so that short prompts have blocks to choose from.
const FEW: [&str; 10] = [
    "--kv-policy",
    "infllm",
    "--kv-init",
    "0",
    "--kv-local",
    "64",
    "--kv-block",
    "64",
    "--kv-blocks",
    "2",
];

/// Which memory works at least, as it is told.
fn least(folder: &Folder, more: &[&str]) -> String {
    let bounded = ["--kv-memory", "1kB", "--kv-disk", "spill", "-c", "4096", "--threads", "1"];
    let refused = folder.refused(&[&["demo.gguf"], &FEW[..], &bounded, more].concat());
    let told = text(&refused.stderr);
    let least =
        told.split_once("hint: --kv-memory ").and_then(|(_, rest)| rest.split_once(" is the"));
    least.unwrap_or_else(|| panic!("{told}")).0.to_owned()
}

/// Options of a server whose caches lie on disk as far as they can.
fn on_disk<'a>(memory: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&FEW[..], &["--kv-memory", memory, "--kv-disk", "spill"], more].concat()
}

/// Folders that processes have, or left, for their caches.
fn spilled(folder: &Folder) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.place.path("spill")).into_iter().flatten().flatten();
    let is_run = |path: &PathBuf| name(path).starts_with("rooflight-run-");
    entries.map(|entry| entry.path()).filter(is_run).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Prompts, and what a server says to each that has neither a bound nor a disk.
fn prompts(folder: &Folder) -> (Vec<Vec<u64>>, Vec<Value>) {
    let prompts: Vec<Vec<u64>> = (0..5).map(|i| tokens(30 + i, 900 + 500 * i as usize)).collect();
    let plain = folder.start(&FEW);
    let want = prompts.iter().map(|prompt| said(&ask(&plain, prompt))).collect();
    (prompts, want)
}

/// F4: killed at any moment, while blocks and conversations are written: what it left goes at the next start, and that one
/// says what a server says that has no disk.
#[test]
fn kills_leave_nothing_that_is_believed() {
    let folder = Folder::new();
    let (prompts, want) = prompts(&folder);
    let memory = least(&folder, &[]);
    let options = on_disk(&memory, &["--parallel", "1", "--cache-disk-size", "1500kB"]);
    let (mut dice, kills) = (Dice::new(9), mutations(20));
    let (mut found, mut left, mut replies) = (0, 0, 0);
    for kill in 0..kills {
        let serving = folder.keeping(&options);
        // what the one before left is gone, and nobody else is there
        let own = format!("rooflight-run-{}-", serving.child.id());
        let names: Vec<String> = spilled(&folder).iter().map(|path| name(path)).collect();
        assert!(names.iter().all(|name| name.starts_with(&own)), "kill {kill}: {names:?}");
        let begun: Vec<_> = std::fs::read_dir(folder.kept("")).unwrap().flatten().collect();
        let is_begun = |name: String| name.starts_with('.');
        assert!(!begun.iter().any(|entry| is_begun(name(&entry.path()))), "{begun:?}");
        let until = Duration::from_micros(dice.bits() % 600_000);
        std::thread::scope(|scope| {
            let (serving, prompts, want) = (&serving, &prompts, &want);
            let first = dice.below(prompts.len());
            let asked = scope.spawn(move || {
                let (mut found, mut replies) = (0, 0);
                for i in (0..20).map(|i| (first + i) % prompts.len()) {
                    let answer = try_ask(serving, "/completion", &request(&prompts[i]), "");
                    let Some((200, answer)) = answer else { break };
                    assert_eq!(said(&answer), want[i], "kill {kill}: other bits of {i}");
                    found += usize::from(cached(&answer) > 0);
                    replies += 1;
                }
                (found, replies)
            });
            std::thread::sleep(until);
            serving.signal(Signal::KILL);
            let (more_found, more_replies) = asked.join().unwrap();
            found += more_found;
            replies += more_replies;
        });
        drop(serving);
        let has_blocks =
            |path: &PathBuf| path.join("records").metadata().is_ok_and(|f| f.len() > 0);
        left += spilled(&folder).iter().filter(|path| has_blocks(path)).count() as u64;
    }
    assert!(left > 0, "none of {kills} had blocks on disk when they were killed");
    let serving = folder.keeping(&options);
    for (prompt, want) in prompts.iter().zip(&want) {
        assert_eq!(&said(&ask(&serving, prompt)), want);
    }
    assert_eq!(told(serving), "");
    assert!(spilled(&folder).is_empty(), "it leaves nothing");
    testing::covered(&format!(
        "{kills} kills, {left} while blocks were on disk; {replies} replies, {found} of them from conversations on disk"
    ));
}

/// F5: bytes that somebody flips in the files of a server that runs: what it says is what it would say, and it says what was
/// computed again.
#[test]
fn bytes_that_are_flipped_meanwhile_are_never_believed() {
    let folder = Folder::new();
    let (prompts, want) = prompts(&folder);
    let memory = least(&folder, &[]);
    let serving = folder.keeping(&on_disk(&memory, &["--parallel", "1"]));
    let (mut dice, mut flips) = (Dice::new(21), 0);
    for round in 0..mutations(25) as usize {
        let i = dice.below(prompts.len());
        let kept = std::iter::once(folder.kept("records"));
        let files = kept.chain(spilled(&folder).into_iter().map(|path| path.join("records")));
        for file in files {
            let Ok(file) = File::options().read(true).write(true).open(file) else { continue };
            let len = file.metadata().unwrap().len() as usize;
            for _ in 0..len.min(1) * (1 + dice.below(20)) {
                let (at, mut byte) = (dice.below(len) as u64, [0]);
                if file.read_exact_at(&mut byte, at).is_ok() {
                    file.write_all_at(&[byte[0] ^ 1 << dice.below(8)], at).unwrap();
                    flips += 1;
                }
            }
        }
        assert_eq!(said(&ask(&serving, &prompts[i])), want[i], "round {round}: other bits of {i}");
    }
    let lines = told(serving);
    let again = lines.matches("is computed again").count();
    testing::covered(&format!("{flips} flips, {again} conversations on disk computed again"));
    assert!(flips > 40);
}

/// The binary in a name space of its own, where the folder for caches is a file system of so many bytes.
/// `None` where no name space can be made.
fn with_room(folder: &Folder, size: &str, args: &[&str]) -> Option<Output> {
    let spill = folder.place.path("spill");
    std::fs::create_dir_all(&spill).unwrap();
    let mount = format!("mount -t tmpfs -o size={size} none '{}' || exit 77", spill.display());
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &format!("{mount}; exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_rooflight")).args(args).current_dir(folder.place.path("."));
    command.env("HOME", folder.place.path(".")).output().ok()
}

/// F6, F11: a disk without room: one line that says so, and the exit code of what the system refuses; with enough of it the text
/// is that of a run without a disk.
#[test]
fn a_full_disk_ends_a_command_with_a_line() {
    let folder = Folder::new();
    folder.place.write("long.txt", "the end of it is the end ".repeat(250));
    let complete =
        ["complete", "demo.gguf", "-f", "long.txt", "--temp", "0", "-n", "4", "-c", "4k"];
    let plain = [&complete[..], &FEW, &["--chunk", "64", "-t", "1"]].concat();
    let want = folder.place.ok(&plain);
    let (_, line) =
        folder.place.fails(&[&plain[..], &["--kv-memory", "1kB", "--kv-disk", "spill"]].concat());
    let least = line.split_once("hint: --kv-memory ").and_then(|(_, rest)| rest.split_once(" is"));
    let (least, _) = least.unwrap_or_else(|| panic!("{line}"));
    let bounded = [&plain[..], &["--kv-memory", least, "--kv-disk", "spill"]].concat();
    let mut full = 0;
    for size in ["64k", "200k", "400k", "700k", "32m"] {
        let done = with_room(&folder, size, &bounded);
        let is_made = |done: &Output| {
            done.status.code() != Some(77) && !text(&done.stderr).starts_with("unshare")
        };
        let Some(done) = done.filter(is_made) else {
            return testing::skipped("a full file system: mounting is not allowed here");
        };
        let told = text(&done.stderr);
        match done.status.code() {
            Some(0) => assert_eq!(text(&done.stdout), want, "{size}: {told}"),
            Some(1) => {
                let line = told.lines().find(|line| line.contains("no space left"));
                assert!(line.is_some_and(|line| line.starts_with("error: ")), "{size}: {told}");
                assert_eq!(told.lines().count(), 1, "{size}: {told}");
                full += 1;
            }
            code => panic!("{size}: {code:?}: {told}"),
        }
        assert!(size != "32m" || done.status.success(), "{told}");
    }
    assert!(full > 0, "all had room");
    testing::covered("a full file system beneath --kv-disk");
}
