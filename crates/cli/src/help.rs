//! Help in three lengths: `-h` fits a screen, `--help` has all usual options under headings, `--help-all` adds those for
//! experts. The tables here assign options to headings; an option in no table is usual and appears under "Options".

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

use crate::{start, units};

/// Maximum width of help, in columns.
const COLUMNS: usize = 80;

/// Amount of detail in help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HelpLength {
    /// The options that most people need, on a screen of 24 lines.
    Screen,
    /// All usual options.
    Usual,
    /// Every option.
    All,
}

/// Options under one heading, by their long names. `expert` has those that only `--help-all` shows.
struct OptionGroup {
    heading: &'static str,
    usual: &'static [&'static str],
    expert: &'static [&'static str],
}

/// All headings, with the options under them in any command.
static GROUPS: &[OptionGroup] = &[
    OptionGroup {
        heading: "Tools",
        usual: &["tools", "tool-choice", "no-parallel-tool-calls"],
        expert: &[],
    },
    OptionGroup {
        heading: "Context and cache",
        usual: &["ctx-size", "cache-type-k", "cache-type-v"],
        expert: &["chunk"],
    },
    OptionGroup {
        heading: "Context memory (what is read of a long context, where caches are stored)",
        usual: &[],
        expert: &[
            "kv-policy",
            "kv-init",
            "kv-local",
            "kv-block",
            "kv-blocks",
            "kv-anchor",
            "kv-representatives",
            "kv-share",
            "kv-positions",
            "kv-dense-layers",
            "kv-supers",
            "kv-token-step",
            "kv-layer-step",
            "kv-smooth",
            "kv-eps",
            "kv-memory",
            "kv-disk",
        ],
    },
    OptionGroup {
        heading: "Positions (RoPE, in place of what the model's file says)",
        usual: &[],
        expert: &[
            "rope-scaling",
            "rope-scale",
            "rope-freq-base",
            "rope-freq-scale",
            "yarn-orig-ctx",
            "yarn-ext-factor",
            "yarn-attn-factor",
            "yarn-beta-slow",
            "yarn-beta-fast",
        ],
    },
    OptionGroup {
        heading: "Processor and GPU",
        usual: &[
            "threads",
            "executor",
            "adapter",
            "n-gpu-layers",
            "cpu-moe",
            "n-cpu-moe",
            "gpu-memory",
        ],
        expert: &["override-tensor", "gpu-products", "mla", "isa"],
    },
    OptionGroup {
        heading: "Length of the reply",
        usual: &["predict", "reverse-prompt", "ignore-eos"],
        expert: &[],
    },
    OptionGroup {
        heading: "Form of the reply",
        usual: &["json-schema", "regex", "grammar"],
        expert: &[],
    },
    OptionGroup {
        heading: "Sampling (by default as the model's file recommends)",
        usual: &[
            "temp",
            "top-k",
            "top-p",
            "min-p",
            "repeat-penalty",
            "presence-penalty",
            "frequency-penalty",
            "seed",
        ],
        expert: &[
            "repeat-last-n",
            "top-n-sigma",
            "typical",
            "min-keep",
            "xtc-probability",
            "xtc-threshold",
            "dynatemp-range",
            "dynatemp-exp",
            "dry-multiplier",
            "dry-base",
            "dry-allowed-length",
            "dry-penalty-last-n",
            "dry-sequence-breaker",
            "mirostat",
            "mirostat-ent",
            "mirostat-lr",
            "adaptive-target",
            "adaptive-decay",
            "samplers",
            "sampler-seq",
            "logit-bias",
        ],
    },
    OptionGroup {
        heading: "Speculative decoding",
        usual: &[],
        expert: &["spec", "model-draft", "draft-max"],
    },
];

/// Options that `-h` shows, by command. A command without an entry shows all options that are in no group.
static SCREENS: &[(&str, &[&str])] = &[
    (
        "run",
        &[
            "system-prompt",
            "ctx-size",
            "predict",
            "temp",
            "reasoning",
            "tools",
            "json-schema",
            "json",
            "n-gpu-layers",
            "threads",
            "verbose",
        ],
    ),
    (
        "complete",
        &[
            "file",
            "ctx-size",
            "predict",
            "temp",
            "seed",
            "reverse-prompt",
            "json-schema",
            "json",
            "n-gpu-layers",
            "threads",
            "verbose",
        ],
    ),
    (
        "serve",
        &[
            "port",
            "host",
            "api-key-file",
            "cors",
            "alias",
            "parallel",
            "ctx-size",
            "keepalive",
            "cache-disk",
            "n-gpu-layers",
            "threads",
        ],
    ),
    ("batch", &["model", "output", "force", "parallel", "ctx-size", "n-gpu-layers", "threads"]),
    (
        "embed",
        &["model", "file", "query", "pooling", "normalize", "json", "n-gpu-layers", "threads"],
    ),
    (
        "bench",
        &[
            "n-prompt",
            "n-gen",
            "pg",
            "n-depth",
            "repetitions",
            "output",
            "explain",
            "spec",
            "n-gpu-layers",
            "threads",
        ],
    ),
    (
        "plan",
        &[
            "type",
            "context",
            "device",
            "memory",
            "ttft",
            "tps",
            "placement",
            "list",
            "json",
            "verbose",
        ],
    ),
    ("logits", &["tokens", "output", "greedy", "ctx-size", "force", "threads"]),
    ("trace", &["tokens", "node", "ctx-size", "json"]),
    ("perplexity", &["file", "ctx-size", "chunks", "json", "n-gpu-layers", "threads"]),
    ("recall", &["file", "ctx-size", "kinds", "questions", "seed", "plot", "json", "threads"]),
    ("verify", &["quick", "n-gen", "json", "threads"]),
    ("kernels", &["isa", "json"]),
    ("machine", &["refresh", "all", "types", "json", "executor", "threads"]),
    ("selftest", &["quick", "only", "executor", "threads"]),
];

/// Returns the heading of a command's option, and whether it is for experts. Options on the `-h` screen never are.
fn group_of(command: &str, long: &str) -> Option<(&'static str, bool)> {
    let on_screen = screen_of(command).is_some_and(|options| options.contains(&long));
    GROUPS.iter().find_map(|group| {
        let expert = group.expert.contains(&long);
        let found = expert || group.usual.contains(&long);
        found.then_some((group.heading, expert && !on_screen))
    })
}

/// Returns the options on a command's `-h` screen; `None` if the table has no entry for it.
fn screen_of(command: &str) -> Option<&'static [&'static str]> {
    SCREENS.iter().find(|(known, _)| *known == command).map(|(_, options)| *options)
}

/// Whether only [`HelpLength::All`] shows this option of a command.
fn is_for_experts(command: &str, long: &str) -> bool {
    group_of(command, long).is_some_and(|(_, expert)| expert)
}

/// Returns the option `--help-all`, which every command has.
pub(crate) fn help_all() -> Arg {
    Arg::new(HELP_ALL)
        .long(HELP_ALL)
        .action(ArgAction::HelpLong)
        .hide(true)
        .help("Print help with all options, those for experts too")
}

/// Long name of the option `--help-all`.
pub(crate) const HELP_ALL: &str = "help-all";

/// Returns the length of help that the command line requests.
fn asked(words: &[OsString]) -> HelpLength {
    let mut before = words.iter().take_while(|word| *word != "--");
    let all = before.clone().any(|word| word == "--help-all");
    match before.any(|word| word == "--help") {
        _ if all => HelpLength::All,
        true => HelpLength::Usual,
        false => HelpLength::Screen,
    }
}

/// Prints the help that `words` request, for a command or for the whole program.
///
/// # Errors
/// A failed write.
pub(crate) fn print(
    root: &Command,
    command: Option<&str>,
    words: &[OsString],
) -> std::io::Result<()> {
    let length = asked(words);
    match command.and_then(|name| of_command(root, name, length)) {
        Some(mut help) => help.print_help(),
        None => {
            let text = match length {
                HelpLength::Screen => start::commands(),
                HelpLength::Usual | HelpLength::All => start::all_commands(root),
            };
            let mut out = std::io::stdout().lock();
            std::io::Write::write_all(&mut out, text.as_bytes())
        }
    }
}

/// Returns a command that prints as help of this length; `None` if there is no such command.
pub(crate) fn of_command(root: &Command, name: &str, length: HelpLength) -> Option<Command> {
    let mut root = root.clone();
    root.build();
    let command = root.find_subcommand(name)?.clone();
    let name = command.get_name().to_owned();
    let after = after(&command, length);
    let about = command.get_long_about().or(command.get_about()).cloned();
    let about = about.filter(|_| length > HelpLength::Screen);
    let command =
        command.max_term_width(COLUMNS).mut_args(|arg| shown(arg, &name, length)).after_help(after);
    let command = match about {
        Some(about) => command.about(about),
        None => command,
    };
    let is_shown = |arg: &&Arg| !arg.is_hide_set();
    let both = command.get_positionals().filter(is_shown).count() > 0
        && command.get_arguments().any(|arg| !arg.is_positional() && !arg.is_hide_set());
    let any = command.get_arguments().any(|arg| !arg.is_hide_set());
    let arguments = match (any, both) {
        (false, _) => "",
        (true, true) => "\n\n{positionals}\n{options}",
        (true, false) => "\n\n{positionals}{options}",
    };
    Some(match length {
        HelpLength::Screen => command.help_template(format!(
            "{{about-with-newline}}{{usage-heading}} {{usage}}{arguments}{{after-help}}"
        )),
        _ => command,
    })
}

/// Returns an argument as help of this length shows it.
fn shown(arg: Arg, command: &str, length: HelpLength) -> Arg {
    let Some(long) = arg.get_long().map(str::to_owned) else { return with_details(arg, length) };
    let group = group_of(command, &long);
    let expert = group.is_some_and(|(_, expert)| expert);
    let hidden = match (length, screen_of(command)) {
        _ if long == "help" => true,
        (HelpLength::All, _) => arg.is_hide_set() && !expert && long != HELP_ALL,
        _ if arg.is_hide_set() => true,
        (HelpLength::Usual, _) => expert,
        (HelpLength::Screen, Some(options)) => !options.contains(&&*long),
        (HelpLength::Screen, None) => group.is_some(),
    };
    let heading = group.map(|(heading, _)| heading).filter(|_| length > HelpLength::Screen);
    let arg = arg.hide(hidden).help_heading(heading);
    match length {
        HelpLength::Screen => on_a_line(arg),
        _ => with_details(arg, length),
    }
}

/// Removes what makes an option take several lines: possible values, the default, and all value names but the first.
fn on_a_line(arg: Arg) -> Arg {
    let name = arg.get_value_names().and_then(|names| names.first()?.split_once('|'));
    let name = name.map(|(first, _)| first.to_owned());
    let arg = arg.hide_possible_values(true).hide_default_value(true);
    match name {
        Some(name) => arg.value_name(name),
        None => arg,
    }
}

/// Joins all paragraphs of the argument's help into one, if this length of help has room for them.
fn with_details(arg: Arg, length: HelpLength) -> Arg {
    let long = arg.get_long_help().map(|help| help.to_string().replace("\n\n", ". "));
    match long.filter(|_| length > HelpLength::Screen) {
        Some(help) => arg.help(help.trim_end().to_owned()),
        None => arg,
    }
}

/// Returns the text after the options: examples, notes, and how to get more help.
fn after(command: &Command, length: HelpLength) -> String {
    let name = command.get_name();
    let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = text.split("\n\n").next().unwrap_or_default();
    let longs = command.get_arguments().filter_map(Arg::get_long);
    let n_experts = longs.filter(|long| is_for_experts(name, long)).count();
    match length {
        HelpLength::Screen => {
            let mut lines: Vec<&str> = examples.lines().take(MOST_EXAMPLE_LINES).collect();
            // show only complete examples
            let begins = |line: &&str| !line.starts_with("    ");
            while examples.lines().nth(lines.len()).is_some_and(|next| !begins(&next)) {
                lines.pop();
            }
            format!("{}\n\nMore: rooflight {name} --help", lines.join("\n"))
        }
        HelpLength::Usual if n_experts > 0 => {
            let more = units::counted(n_experts, "more option");
            format!("--help-all lists {more}, for experts.\n\n{text}")
        }
        HelpLength::Usual | HelpLength::All => text,
    }
}

/// Maximum number of example lines on a screen, including their heading.
const MOST_EXAMPLE_LINES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, length: HelpLength) -> String {
        let root = crate::commands::command();
        let mut command = of_command(&root, name, length).expect("it is a command");
        command.render_help().to_string()
    }

    fn names() -> Vec<String> {
        let root = crate::commands::command();
        root.get_subcommands().map(|command| command.get_name().to_owned()).collect()
    }

    #[test]
    fn short_help_fits_a_screen_and_all_help_80_columns() {
        for name in names() {
            let screen = text(&name, HelpLength::Screen);
            assert!(screen.trim_end().lines().count() <= 24, "{name}: {screen}");
            assert!(screen.contains(&format!("rooflight {name} --help")), "{screen}");
            for length in [HelpLength::Screen, HelpLength::Usual, HelpLength::All] {
                let help = text(&name, length);
                let wide = help.lines().find(|line| line.chars().count() > COLUMNS);
                assert_eq!(wide, None, "{name}: {help}");
                assert!(!help.contains("\n\n\n"), "{name}: {help}");
            }
        }
    }

    /// Returns the heading above an option in rendered help.
    fn heading_in<'a>(help: &'a str, option: &str) -> Option<&'a str> {
        let mut heading = None;
        for line in help.lines().take_while(|line| !line.starts_with("Example")) {
            if !line.starts_with(' ') && line.ends_with(':') {
                heading = Some(line.trim_end_matches(':'));
            }
            let words = line.trim_start().split([' ', ',']);
            if line.starts_with("  ")
                && !line.starts_with("       ")
                && words.take(3).any(|word| word == option)
            {
                return heading;
            }
        }
        None
    }

    #[test]
    fn options_stand_under_their_headings() {
        let root = crate::commands::command();
        for command in root.get_subcommands() {
            let name = command.get_name();
            let [screen, usual, all] = [HelpLength::Screen, HelpLength::Usual, HelpLength::All]
                .map(|length| text(name, length));
            for arg in command.get_arguments() {
                let Some(long) = arg.get_long().filter(|long| *long != "help") else { continue };
                let option = format!("--{long}");
                let heading = group_of(name, long).map_or("Options", |(heading, _)| heading);
                let shown = !arg.is_hide_set() || is_for_experts(name, long) || long == HELP_ALL;
                let told = shown.then_some(heading);
                assert_eq!(heading_in(&all, &option), told, "{name} {option}: {all}");
                let usually = told.filter(|_| !is_for_experts(name, long) && long != HELP_ALL);
                assert_eq!(heading_in(&usual, &option), usually, "{name} {option}: {usual}");
                let listed = screen.split("\nExample").next().unwrap_or_default();
                let mut words = listed.split_whitespace();
                let brief = words.any(|word| word == option) && is_for_experts(name, long);
                let asked = SCREENS.iter().any(|(c, list)| *c == name && list.contains(&long));
                assert!(!brief || asked, "{name} {option}: {screen}");
            }
        }
    }

    /// No option is in the tables twice, and every option in them exists.
    #[test]
    fn tables_name_options_that_exist() {
        let root = crate::commands::command();
        let longs = |name: Option<&str>| -> Vec<String> {
            let commands = root.get_subcommands();
            let commands = commands.filter(|c| name.is_none_or(|name| c.get_name() == name));
            let args = commands.flat_map(Command::get_arguments);
            args.filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
        };
        let all = longs(None);
        let mut seen = Vec::new();
        for group in GROUPS {
            for option in group.usual.iter().chain(group.expert) {
                assert!(all.iter().any(|long| long == option), "{}: {option}", group.heading);
                assert!(!seen.contains(option), "{option} stands under two headings");
                seen.push(option);
            }
        }
        for (name, options) in SCREENS {
            let own = longs(Some(name));
            for option in *options {
                assert!(own.iter().any(|long| long == option), "{name} has no {option}");
            }
        }
    }

    #[test]
    fn the_words_say_how_much_help_is_asked_for() {
        let asked = |line: &str| asked(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(asked("rooflight run -h"), HelpLength::Screen);
        assert_eq!(asked("rooflight run -vh -- --help"), HelpLength::Screen);
        assert_eq!(asked("rooflight run --help"), HelpLength::Usual);
        assert_eq!(asked("rooflight run --help-all --help"), HelpLength::All);
    }
}
