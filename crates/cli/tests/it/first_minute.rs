//! First use of the program: the screen without arguments, help, the measurement of the machine, and tables on narrow
//! terminals.

use crate::common::{Place, text};
use crate::machine;

#[test]
fn the_program_alone_says_what_to_run() {
    let place = Place::new();
    let output = place.run(&[]);
    let screen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    for part in ["rooflight run", "rooflight serve", "This machine: ", "rooflight --help"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(screen.lines().count() <= 24, "{screen}");
    assert!(!place.path(".cache/rooflight/machine.json").exists(), "nothing is measured");
    let version = place.ok(&["version"]);
    assert_eq!(version, place.ok(&["--version"]));
    assert!(version.starts_with("rooflight "), "{version}");
}

/// `-h`, `--help` and `--help-all` differ in length, and `help run` equals `run --help`.
#[test]
fn help_comes_in_three_lengths() {
    let place = Place::new();
    let [screen, usual, all] =
        ["-h", "--help", "--help-all"].map(|flag| place.ok(&["run", "m.gguf", flag]));
    let lines = |text: &str| text.lines().count();
    assert!(lines(&screen) <= 24 && lines(&screen) < lines(&usual), "{screen}");
    assert!(!usual.contains("--kv-policy <") && all.contains("--kv-policy <"), "{usual}");
    assert!(usual.contains("--help-all lists"), "{usual}");
    assert_eq!(place.ok(&["help", "run"]), usual);
    // arguments after `--` are text
    let output = place.run(&["run", "absent.gguf", "--", "--help-all"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(place.ok(&["--help"]).contains("\nServer:\n"));
}

/// Output for people is never wider than a narrow terminal, which has 40 columns here.
#[test]
fn tables_fit_narrow_terminals() {
    let place = Place::new();
    std::fs::create_dir_all(place.path(".cache/rooflight")).unwrap();
    place.write(
        ".cache/rooflight/machine.json",
        machine::measured_everywhere(&conformance::demo_gguf()),
    );
    let bench =
        ["bench", "demo.gguf", "--executor", "interpreter", "-p", "4,8", "-n", "0", "-r", "1"];
    let plan = ["plan", "qwen2.5-0.5b", "--device", "4090", "--verbose"];
    for args in [&bench[..], &plan] {
        let output = place.on_terminal(args).output().unwrap();
        let shown = text(&output.stdout);
        let wide = shown.lines().find(|line| line.trim_end().chars().count() > 40);
        assert_eq!(wide, None, "{args:?}: {shown}");
        assert!(shown.lines().count() > 5, "{args:?}: {shown}");
    }
}

/// `-v` has the machine measured, and says so where there is no terminal for a bar.
#[cfg(target_os = "linux")]
#[test]
fn measuring_is_told_without_a_terminal() {
    if !at_a_terminal::is_roomy() {
        testing::skipped("measuring at first use: less than 3 GiB of memory are free");
        return;
    }
    let place = Place::new();
    let told = |args: &[&str]| {
        let output =
            place.run(&[&["run", "demo.gguf", "the", "-n", "1", "-t", "1"], args].concat());
        assert_eq!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    assert_eq!(told(&[]), "", "without -v nothing is measured");
    let first = told(&["-v"]);
    assert!(first.starts_with("measuring this machine once, at most 5 s\n"), "{first}");
}

#[cfg(target_os = "linux")]
mod at_a_terminal {
    use super::*;
    use crate::pty::{PROMPT, Pty};

    /// Returns whether enough memory is free for the automatic measurement.
    pub(super) fn is_roomy() -> bool {
        let free = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?.to_owned();
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        free.is_some_and(|kib| kib > 3 << 20)
    }

    #[test]
    fn ctrl_c_skips_measuring_and_the_conversation_begins() {
        if !is_roomy() {
            testing::skipped("measuring at first use: less than 3 GiB of memory are free");
            return;
        }
        let place = Place::new();
        let mut pty = Pty::start(&place, &["run", "demo.gguf"], 100);
        pty.wait_for("Ctrl-C skips");
        pty.send("\x03");
        pty.wait_for("measuring was skipped");
        pty.wait_for(PROMPT);
        pty.send("/bye\r");
        assert_eq!(pty.end(), Some(0));
    }

    /// Files that other programs share are removed only if the user confirms, or with `-y`.
    #[test]
    fn rm_asks_at_a_terminal() {
        let place = Place::new();
        let file = ".cache/huggingface/hub/models--org--tiny/snapshots/abc/tiny-F32.gguf";
        let put = || {
            std::fs::create_dir_all(place.path(file).parent().unwrap()).unwrap();
            place.write(file, conformance::demo_gguf());
        };
        put();
        for (answer, code) in [("n\r", 1), ("\r", 1), ("y\r", 0)] {
            let mut pty = Pty::start(&place, &["rm", "org/tiny:F32"], 100);
            pty.wait_for("[y/N]");
            pty.send(answer);
            assert_eq!(pty.end(), Some(code), "{answer:?}");
            assert_eq!(place.path(file).exists(), code != 0, "{answer:?}");
        }
        put();
        let mut pty = Pty::start(&place, &["rm", "-y", "org/tiny:F32"], 100);
        pty.wait_for("removed");
        assert_eq!(pty.end(), Some(0));
        assert!(!place.path(file).exists());
    }
}
