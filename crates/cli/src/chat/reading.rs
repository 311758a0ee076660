//! Converts typed lines to a message, and a message to the text that gives the same message when it is typed.

use super::input::{Input, LineReader};

const PROMPT_MORE: &str = "... ";

const FENCE: &str = "\"\"\"";

/// Returns whether a line is a command of the chat, and not a message to the model.
pub(super) fn is_command(line: &str) -> bool {
    let line = line.trim();
    let has_slash = line.starts_with('/') && !line.starts_with("//") && !line.contains('\n');
    has_slash || matches!(line, "exit" | "quit")
}

/// Returns the text to type for a message: the message itself if it is read unchanged, otherwise with a second slash or between
/// triple quotes.
pub(crate) fn typed_form(message: &str) -> String {
    let plain = [message.to_owned(), format!("/{message}")];
    let found = plain.into_iter().find(|typed| message_of(typed).as_deref() == Some(message));
    found.unwrap_or_else(|| fenced(message))
}

/// Returns the message that a typed text stands for; `None` for a command, and for an incomplete text.
fn message_of(typed: &str) -> Option<String> {
    if let Some(inner) = typed.trim_start().strip_prefix(FENCE) {
        return block(inner).map(str::to_owned);
    }
    let is_whole = !typed.ends_with('\\') && !is_command(typed);
    is_whole.then(|| unslashed(typed.to_owned()))
}

/// Replaces two slashes at the beginning of a line by one, as in the message that it stands for.
pub(super) fn unslashed(line: String) -> String {
    match line.trim_start().strip_prefix("//") {
        Some(rest) => format!("/{rest}"),
        None => line,
    }
}

/// Returns a text between triple quotes, on lines of its own if its first or last line is empty.
fn fenced(text: &str) -> String {
    let has_edge = text.starts_with('\n') || text.ends_with('\n');
    let edge = if has_edge { "\n" } else { "" };
    format!("{FENCE}{edge}{text}{edge}{FENCE}")
}

/// Returns the text of a block, given the text after its opening quotes; `None` if the block is not closed.
fn block(text: &str) -> Option<&str> {
    text.trim_end().strip_suffix(FENCE).map(without_edges)
}

/// Returns a text without the line breaks next to its quotes.
fn without_edges(text: &str) -> &str {
    let text = text.strip_prefix('\n').unwrap_or(text);
    text.strip_suffix('\n').unwrap_or(text)
}

/// Reads a message: one line, several lines that end with a backslash except the last, or the text between `"""` and `"""`.
/// At the end of the input, an unfinished message is returned; Ctrl-C discards it.
pub(super) fn read_message(
    reader: &mut dyn LineReader,
    (prompt, draft): (&str, Option<&str>),
    keep: bool,
) -> anyhow::Result<Input> {
    let first = match reader.read(prompt, draft)? {
        Input::Line(line) => line,
        other => return Ok(other),
    };
    let Some(start) = first.trim_start().strip_prefix(FENCE) else {
        return read_continued(reader, first, keep);
    };
    let mut text = start.to_owned();
    let text = loop {
        if let Some(whole) = block(&text) {
            break whole.to_owned();
        }
        match reader.read(PROMPT_MORE, None)? {
            Input::Line(line) | Input::Block(line) => {
                text.push('\n');
                text.push_str(&line);
            }
            // Leaves the block, not the chat.
            Input::Interrupted => return Ok(Input::Line(String::new())),
            Input::End => break without_edges(&text).to_owned(),
        }
    };
    if keep {
        reader.remember(&fenced(&text));
    }
    Ok(Input::Block(text))
}

fn read_continued(reader: &mut dyn LineReader, first: String, keep: bool) -> anyhow::Result<Input> {
    let mut text = first;
    while let Some(line) = text.strip_suffix('\\') {
        let before = line.to_owned();
        match reader.read(PROMPT_MORE, None)? {
            Input::Line(more) | Input::Block(more) => text = format!("{before}\n{more}"),
            Input::Interrupted => return Ok(Input::Line(String::new())),
            Input::End => {
                text = before;
                break;
            }
        }
    }
    if keep {
        reader.remember(&text);
    }
    Ok(Input::Line(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Typing the typed form of a message gives the same message.
    #[test]
    fn messages_are_typed_so_that_they_are_read_again() {
        for (message, typed) in [
            ("plain", "plain"),
            ("two\nlines ", "two\nlines "),
            ("/bye is a word", "//bye is a word"),
            ("//", "///"),
            ("/a\nb", "/a\nb"),
            ("ends in \\", "\"\"\"ends in \\\"\"\""),
            ("one\\\ntwo\\", "\"\"\"one\\\ntwo\\\"\"\""),
            ("exit", "\"\"\"exit\"\"\""),
            ("  //x", "\"\"\"  //x\"\"\""),
            (" /x y", "\"\"\" /x y\"\"\""),
            ("\"\"\"quoted", "\"\"\"\"\"\"quoted\"\"\""),
            ("\"\"\"whole\"\"\"", "\"\"\"\"\"\"whole\"\"\"\"\"\""),
            ("\n\\", "\"\"\"\n\n\\\n\"\"\""),
        ] {
            assert_eq!(typed_form(message), typed);
            assert_eq!(message_of(typed).as_deref(), Some(message), "{typed}");
        }
        // random texts of parts with a special meaning
        let pieces = ["\"\"\"", "\"", "\\", "/", "\n", " ", "a", "exit"];
        let mut dice = testing::Dice::new(7);
        for _ in 0..5000 {
            let n = dice.below(7);
            let message: String = (0..n).map(|_| pieces[dice.below(pieces.len())]).collect();
            let typed = typed_form(&message);
            assert_eq!(message_of(&typed), Some(message), "{typed}");
        }
        for command in ["/bye", " /bye", "exit", "quit ", "\"\"\"open", "more\\"] {
            assert_eq!(message_of(command), None, "{command}");
        }
    }
}
