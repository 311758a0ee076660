//! Names and help texts of the commands, listed once for help, completion and tests.

use crate::sampling;
use crate::similar::nearest;

/// Contents of `/help`: headings, each with its commands and their descriptions.
pub(super) const COMMANDS: &[(&str, &[(&str, &str)])] = &[
    (
        "Conversation",
        &[
            ("/clear", "begin a new conversation"),
            ("/regen", "another reply to the last message"),
            ("/undo", "take back the last message and its reply"),
            ("/edit", "change the last message and send it again"),
            ("/system TEXT", "show or set the system message, - for none"),
        ],
    ),
    (
        "Files",
        &[
            ("/save FILE", "write the messages as JSON; /save! replaces"),
            ("/load FILE", "continue from the messages in a file"),
            ("/read FILE", "put its text before your next message"),
        ],
    ),
    (
        "Model and settings",
        &[
            ("/model NAME", "show the model, or continue with another one"),
            ("/set NAME", "change settings; /help set lists them"),
            ("/show info|template|parameters|system", ""),
            ("/stats", "statistics of the last reply"),
            ("/help", "this list; /bye leaves"),
        ],
    ),
    (
        "Keys",
        &[
            ("\"\"\"", "starts and ends a message of several lines"),
            ("Alt-Enter, Ctrl-J", "a new line in a message; \\ before Enter too"),
            ("Tab, Up, Ctrl-R", "complete; earlier messages; search them"),
            ("Ctrl-C, Ctrl-D", "stop a reply; leave"),
            ("//TEXT", "a message that begins with a slash"),
        ],
    ),
];

/// Contents of `/help set`.
pub(super) const SETTINGS: &[(&str, &str)] = &[
    ("/set parameter NAME VALUE", "temperature, top_k, seed, predict, num_ctx,"),
    ("", "stop and more: /show parameters lists them"),
    ("/set stop TEXT", "end replies where it appears; - for none,"),
    ("", "\"A\" \"B\" for several"),
    ("/set system TEXT", "the system message"),
    ("/set think on|off|auto|low|medium|high", "reasoning, or a budget in tokens"),
    ("/set context-full stop|drop-oldest", "a full context: end the reply, or forget"),
    ("", "the oldest messages"),
    ("/set stats on|off|full", "below replies: one line, nothing, everything"),
    ("/set verbose on|off", "the same as /set stats full|on"),
    ("/set markdown on|off", "render Markdown"),
    ("/set wordwrap on|off", "break lines between words"),
    ("/set history on|off", "keep what you type for the arrow keys"),
];

/// Names that `/set parameter` accepts in addition to those of the sampler.
const OWN_PARAMETERS: [&str; 3] = ["predict", "num_ctx", "stop"];

/// Returns the names that `/set parameter` accepts.
fn parameters() -> impl Iterator<Item = String> {
    sampling::names().into_iter().chain(OWN_PARAMETERS.map(str::to_owned))
}

/// Other names of parameters, those of flags and of Ollama, with the names in [`parameters`].
const OTHER_NAMES: [(&str, &str); 8] = [
    ("temp", "temperature"),
    ("ctx_size", "num_ctx"),
    ("num_predict", "predict"),
    ("n_predict", "predict"),
    ("typical_p", "typical"),
    ("mirostat_tau", "mirostat_ent"),
    ("mirostat_eta", "mirostat_lr"),
    ("reverse_prompt", "stop"),
];

/// Returns the name of a parameter as [`parameters`] lists it, for any of its names; `None` if there is no such parameter.
pub(super) fn parameter(name: &str) -> Option<String> {
    let name = name.trim_start_matches('-').replace('-', "_");
    let own = OTHER_NAMES.iter().find(|(other, _)| *other == name);
    let name = own.map_or(name, |(_, own)| (*own).to_owned());
    parameters().find(|known| *known == name)
}

/// Returns the usage of a setting that accepts certain values: `/set stats on|off|full`.
pub(super) fn setting(name: &str) -> Option<&'static str> {
    SETTINGS.iter().map(|(usage, _)| *usage).find(|usage| {
        let words = usage.strip_prefix("/set ").and_then(|usage| usage.split_once(' '));
        words.is_some_and(|(known, _)| known == name)
    })
}

/// Returns ` did you mean NAME?` for a mistyped setting or parameter, and nothing where none is near.
pub(super) fn did_you_mean(name: &str) -> String {
    let settings = SETTINGS.iter().filter_map(|(usage, _)| usage.split(' ').nth(1));
    let known: Vec<String> = settings.map(str::to_owned).chain(parameters()).collect();
    let near = nearest(name, known.iter().map(String::as_str));
    near.map_or(String::new(), |near| format!(" did you mean {near}?"))
}

/// Returns every command with its arguments.
pub(super) fn commands() -> impl Iterator<Item = &'static str> {
    let rows = COMMANDS.iter().flat_map(|(_, rows)| rows.iter()).chain(SETTINGS);
    rows.map(|(command, _)| *command)
        .filter(|text| text.starts_with('/') && !text.starts_with("//"))
}

/// Returns whether a command takes no argument.
pub(super) fn is_alone(word: &str) -> bool {
    ["/bye", "/exit", "/quit"].contains(&word)
        || word != "/help" && commands().any(|command| command == word)
}

/// Returns the text of `/help`, or of `/help set`; `None` for another topic.
pub(super) fn text(topic: &str) -> Option<String> {
    let row = |indent: &str, width: usize, (command, what): &(&str, &str)| {
        format!("{indent}{command:width$} {what}").trim_end().to_owned() + "\n"
    };
    match topic.trim_start_matches('/') {
        "" => {}
        "set" => return Some(SETTINGS.iter().map(|one| row("", 34, one)).collect()),
        _ => return None,
    }
    let section = |(title, rows): &(&str, &[(&str, &str)])| {
        let rows: String = rows.iter().map(|one| row("  ", 20, one)).collect();
        format!("{title}\n{rows}")
    };
    Some(COMMANDS.iter().map(section).collect())
}

/// Returns the completions of a partial line: the line with one more word each.
pub(super) fn completions(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut all: Vec<String> = vec!["/help set".into(), "/bye".into()];
    for command in commands() {
        let (head, last) = command.rsplit_once(' ').unwrap_or(("", command));
        if last.contains('|') {
            all.extend(last.split('|').map(|choice| format!("{head} {choice}")));
        } else if last.chars().all(char::is_uppercase) {
            let head = head.strip_suffix(" NAME").unwrap_or(head);
            all.push(format!("{head} "));
        } else {
            all.push(command.to_owned());
        }
    }
    all.extend(parameters().map(|name| format!("/set parameter {name} ")));
    for candidate in all.iter().filter(|candidate| candidate.starts_with(line)) {
        // completes one word only: the candidate is cut after its next blank
        let rest = &candidate[line.len()..];
        let end = rest.find(' ').map_or(candidate.len(), |at| line.len() + at + 1);
        let word = candidate[..end].to_owned();
        if word != line && !found.contains(&word) {
            found.push(word);
        }
    }
    found
}
