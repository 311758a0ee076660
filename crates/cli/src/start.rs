//! The screen that `rooflight` prints without arguments, and the list of all commands.

use std::fmt::Write as _;

use clap::Command;
use executors::ExecutorOptions;

use crate::{ceilings, names, units};
use rooflight::fit as memory;

/// Maximum width of these screens, in columns.
const COLUMNS: usize = 80;

/// Example that only a build with models by name has.
const BY_NAME: &str = "rooflight run llama3.2:3b";

/// Examples to run first, with descriptions.
const FIRST: &[(&str, &str)] = &[
    ("rooflight run", "try it now: a tiny built-in model, offline"),
    (BY_NAME, "download (2.0 GB) and chat"),
    ("rooflight run model.gguf \"Why?\"", "one answer"),
    ("rooflight serve model.gguf", "OpenAI, Anthropic and Ollama APIs on :8080"),
    ("rooflight plan llama3.1:70b", "will it fit, and how fast?"),
];

/// Link to the documentation; empty if the package has none.
const DOCUMENTS: &str = env!("CARGO_PKG_REPOSITORY");

/// Commands grouped by purpose; each is in one group.
static GROUPS: &[(&str, &[&str])] = &[
    ("Text", &["run", "complete", "embed", "batch"]),
    ("Server", &["serve", "ps"]),
    ("Models", &["pull", "list", "show", "rm", "plan", "tokenize", "template"]),
    ("Measure", &["bench", "machine", "perplexity", "recall"]),
    ("Check", &["verify", "selftest", "kernels", "logits", "trace"]),
    ("More", &["completions", "man", "licenses", "demo-model"]),
];

/// Returns the screen of `rooflight` without arguments: [`commands`] and a line about this machine. Measures nothing.
pub(crate) fn screen() -> String {
    let machine = format!("This machine: {}", machine());
    let models =
        models().map_or_else(String::new, |models| format!("\nDownloaded models: {models}"));
    format!("{}\n{machine}{models}\n", commands())
}

/// Returns the first examples and the names of the commands.
pub(crate) fn commands() -> String {
    let mut text = format!(
        "Rooflight {}: run language models on this machine, as fast as it can go.\n\n",
        env!("CARGO_PKG_VERSION")
    );
    let is_there = |(command, _): &&(&str, &str)| cfg!(feature = "hub") || *command != BY_NAME;
    for (command, does) in FIRST.iter().filter(is_there) {
        let _ = writeln!(text, "  {command:33} {does}");
    }
    let hub = |with: &'static str, without| if cfg!(feature = "hub") { with } else { without };
    let _ = writeln!(
        text,
        "\n  Models   {:34}Server  serve{}",
        hub("pull  list  show  rm", "show"),
        hub("  ps", "")
    );
    let _ = writeln!(
        text,
        "  {:43}Work    complete  embed  batch",
        "Measure  bench  machine  perplexity"
    );
    text.push_str("  More     rooflight --help  |  rooflight COMMAND --help");
    text.push_str(&documents(DOCUMENTS));
    text.push('\n');
    text
}

/// Returns the link to the documentation: at the end of the current line if it fits, else on a line of its own.
fn documents(link: &str) -> String {
    match link {
        "" => String::new(),
        link if link.len() <= 18 => format!("  |  {link}"),
        link => format!("\n  Docs     {link}"),
    }
}

/// Returns every command in its group, with its description.
pub(crate) fn all_commands(root: &Command) -> String {
    let mut text = String::from(
        "Run large language models on your own machine, as fast as the machine allows.\n\n\
         Usage: rooflight COMMAND [OPTIONS]\n",
    );
    for (group, names) in GROUPS {
        let found = names.iter().filter_map(|name| root.find_subcommand(name));
        let _ = write!(text, "\n{group}:\n");
        for command in found {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:12} {about}", command.get_name());
        }
    }
    text.push_str(
        "\nrooflight COMMAND -h shows the options that most people need, --help all usual\n\
         ones, --help-all those for experts too. rooflight version prints the version.\n\n\
         Every long option can be set in the environment: --ctx-size by\n\
         ROOFLIGHT_CTX_SIZE. Options win.\n",
    );
    text
}

/// Describes this machine: `AMD EPYC 9654, 2 cores, AVX-512, 24.1 GB free, no GPU in this build.` Does not look for GPUs, because
/// drivers take long to start.
fn machine() -> String {
    let cores = units::counted(ExecutorOptions::default().n_threads(), "core");
    let isa = match kernels::Isa::detect().name() {
        "scalar" => String::new(),
        isa => format!(" {isa}"),
    };
    let free = memory::available().map(|free| format!("{} free", units::bytes(free)));
    let gpu = match cfg!(any(feature = "cuda", feature = "wgpu")) {
        false => "no GPU in this build",
        true => "GPUs supported",
    };
    let rest = [Some(cores + &isa), free, Some(gpu.to_owned())];
    let rest = rest.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let room = COLUMNS.saturating_sub("This machine: ".len() + rest.len() + ", .".len());
    format!("{}, {rest}.", short_name(&ceilings::cpu_name(), room))
}

/// Shortens the name of a processor to `most` characters; drops trademark signs and the frequency.
fn short_name(name: &str, most: usize) -> String {
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let name = name.replace("(R)", "").replace("(TM)", "");
    let plain = |word: &&str| !["CPU", "Processor", "processor"].contains(word);
    let mut short = String::new();
    for word in name.split_whitespace().filter(plain) {
        if !short.is_empty() && short.chars().count() + 1 + word.chars().count() > most {
            break;
        }
        let space = if short.is_empty() { "" } else { " " };
        short = format!("{short}{space}{word}");
    }
    short.chars().take(most).collect()
}

/// Returns the number of models in the Hugging Face cache and the latest one, as text; `None` in a build without models by name.
fn models() -> Option<String> {
    Some(match names::models_here()? {
        (0, _) => "none. rooflight pull llama3.2:3b downloads one.".into(),
        (1, latest) => gguf::escape(latest, 60),
        (n, latest) => format!("{n}, the latest is {}", gguf::escape(latest, 40)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) {
        let wide = text.lines().find(|line| line.chars().count() > COLUMNS);
        assert_eq!(wide, None, "{text}");
    }

    #[test]
    fn screens_fit_80_columns() {
        let screen = screen();
        check(&screen);
        assert!(screen.lines().count() <= 18 && screen.contains("This machine: "), "{screen}");
        check(&all_commands(&crate::commands::command()));
        for name in ["AMD Ryzen Threadripper PRO 7995WX 96-Cores", &"x".repeat(200)] {
            assert!(short_name(name, 20).chars().count() <= 20);
        }
        let intel = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz";
        assert_eq!(short_name(intel, 40), "Intel Xeon Platinum 8481C");
    }

    #[test]
    fn every_command_is_in_one_group() {
        let root = crate::commands::command();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name}");
        }
    }

    #[test]
    fn commands_of_the_screen_exist() {
        let root = crate::commands::command();
        for (line, _) in FIRST {
            let words = line.replace('"', "");
            let words: Vec<&str> = words.split_whitespace().collect();
            assert!(root.clone().try_get_matches_from(words).is_ok(), "{line}");
        }
        let listed = commands();
        let words = listed.lines().filter(|line| line.starts_with("  M") && !line.contains('|'));
        for word in words.flat_map(str::split_whitespace) {
            let heading = ["Models", "Server", "Measure", "Work"].contains(&word);
            assert!(heading || root.find_subcommand(word).is_some(), "{word}");
        }
    }

    #[test]
    fn a_link_stays_within_the_screen() {
        for link in ["", "https://short.io", "https://example.org/some/long/place/to/be"] {
            let line = format!(
                "  More     rooflight --help  |  rooflight COMMAND --help{}",
                documents(link)
            );
            check(&line);
            assert!(line.contains(link));
        }
    }
}
