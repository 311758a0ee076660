//! Every option of every command of `rooflight-lab` does something that is seen: a row for each, and each row tried.

use std::sync::LazyLock;

use conformance::golden::{GoldenFile, archs};
use conformance::{Family, demo_gguf};
use testing::{OptionTable, Sandbox, text};

const BINARY: &str = env!("CARGO_BIN_EXE_rooflight-lab");
/// Where ceilings are kept.
const MACHINE: &str = ".cache/rooflight/machine.json";

/// Files that rows name; the ceilings are measured once.
static FILES: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let mixture = archs(Family::Experts).into_iter().find(|case| case.name == "qwen3moe");
    let GoldenFile::Bytes(mixture) = mixture.expect("a case").model else { panic!("a file") };
    let first = Sandbox::new(BINARY);
    first.write("dense.gguf", demo_gguf());
    for executor in [&["-t", "1"][..], &["-t", "2"], &["-t", "1", "--isa", "scalar"]] {
        first.ok(&[&["traffic", "dense.gguf", "-p", "2", "-n", "1"], executor].concat());
    }
    vec![
        (MACHINE, first.read(MACHINE)),
        ("dense.gguf", demo_gguf()),
        ("mixture.gguf", mixture),
        ("taken.svg", "<svg/>".into()),
        ("taken/article.md", "#".into()),
    ]
});

fn place() -> Sandbox {
    let place = Sandbox::new(BINARY);
    for (name, content) in &*FILES {
        let folder = place.path(name).parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.unwrap_or_else(|error| panic!("{name}: {error}"));
        place.write(name, content);
    }
    place
}

/// Commands that measure whole models for minutes.
const SLOW: [&str; 3] = ["policies", "prediction", "roofline"];

fn table() -> OptionTable {
    OptionTable::read(&[("options.txt", include_str!("../options.txt"))])
}

/// As help lists them, and `--isa`, which it hides, where a command knows it.
fn options() -> Vec<(String, Vec<String>)> {
    let place = Sandbox::new(BINARY);
    let of = |command: String| {
        let help = place.ok(&[&command, "--help"]);
        let words = help.lines().filter(|line| line.starts_with("  ")).map(str::trim_start);
        let named = words.filter_map(|line| {
            let line = line.split_once(", ").filter(|(s, _)| s.len() == 2).map_or(line, |(_, l)| l);
            let name = line.split(' ').next()?.trim_end_matches("...");
            let argument = name.starts_with('<') && name.ends_with('>');
            (name.starts_with("--") || argument).then(|| name.to_owned())
        });
        let mut names: Vec<String> = named.filter(|name| name != "--help").collect();
        let hidden = place.run(&[&command, "--isa", "bogus"]);
        if text(&hidden.stderr).contains("expected one of scalar") {
            names.push("--isa".into());
        }
        (command, names)
    };
    let help = place.ok(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = lines.take_while(|line| !line.is_empty());
    commands.filter_map(|line| line.split_whitespace().next()).map(|c| of(c.to_owned())).collect()
}

#[test]
fn every_option_has_a_row_and_every_row_an_option() {
    let (slow, options): (Vec<_>, Vec<_>) =
        options().into_iter().partition(|(command, _)| SLOW.contains(&command.as_str()));
    slow.iter().for_each(|(c, _)| testing::skipped(&format!("options of rooflight-lab {c}: slow")));
    assert!(options.len() >= 4 && options.iter().all(|(_, names)| names.len() >= 3), "{options:?}");
    let gaps = table().gaps(&options);
    assert!(gaps.is_empty(), "{}", gaps.join("\n"));
}

#[test]
fn every_option_does_what_its_row_says() {
    let wrong = table().wrong(&place);
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
