//! Single-dash words of llama.cpp (`-ngl`, `-ctk`), rewritten before clap sees them.
//!
//! clap would read `-ngl 99` as `-n gl`. A word listed here becomes a long flag, or is refused with a reason; every
//! other argument passes unchanged, so that what nobody knows is a usage error and never ignored.

use std::ffi::{OsStr, OsString};

use crate::exit::Failure;

/// What happens to a word.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Becomes {
    /// The long flag of the same meaning.
    Long(&'static str),
    /// Not available: the reason, in words.
    Refused(&'static str),
}

/// Every single-dash word known here, with what it becomes.
pub(crate) static WORDS: &[(&str, Becomes)] = &[
    ("-ngl", Becomes::Long("--n-gpu-layers")),
    ("-fa", Becomes::Long("--flash-attn")),
    ("-ctk", Becomes::Long("--cache-type-k")),
    ("-ctv", Becomes::Long("--cache-type-v")),
    ("-sys", Becomes::Long("--system-prompt")),
    ("-tb", Becomes::Long("--threads-batch")),
    ("-ub", Becomes::Long("--ubatch-size")),
    ("-pg", Becomes::Long("--pg")),
    ("-rea", Becomes::Long("--reasoning")),
    ("-hf", Becomes::Refused("models are not downloaded yet: give the path of a GGUF file")),
    ("-hfr", Becomes::Refused("models are not downloaded yet: give the path of a GGUF file")),
    ("-hff", Becomes::Refused("models are not downloaded yet: give the path of a GGUF file")),
    ("-mu", Becomes::Refused("models are not downloaded yet: give the path of a GGUF file")),
    ("-md", Becomes::Refused("there are no draft models")),
    ("-mm", Becomes::Refused("there are no models of images")),
    ("-mg", Becomes::Refused("the CPU computes")),
    ("-ot", Becomes::Refused("the CPU computes")),
    ("-np", Becomes::Refused("there is one conversation at a time")),
    ("-cnv", Becomes::Refused("`rooflight run MODEL` without a prompt is a conversation")),
    ("-no-cnv", Becomes::Refused("`rooflight complete` continues a text without a chat template")),
];

/// The arguments with every known word replaced; what follows `--` is left alone.
///
/// # Errors
/// [`Failure::Usage`] for a word that is refused.
pub(crate) fn rewrite(args: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, Failure> {
    let mut out = Vec::new();
    let mut literal = false;
    for arg in args {
        literal |= arg == "--";
        out.push(if literal { arg } else { word(&arg)?.unwrap_or(arg) });
    }
    Ok(out)
}

/// The long form of one argument, `-fa=on` included; `None` if it is not in the table.
fn word(arg: &OsStr) -> Result<Option<OsString>, Failure> {
    let Some(text) = arg.to_str() else { return Ok(None) };
    let (name, value) =
        text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    match WORDS.iter().find(|(word, _)| *word == name) {
        None => Ok(None),
        Some((_, Becomes::Refused(why))) => {
            Err(Failure::Usage(format!("`{name}` is not supported: {why}")))
        }
        Some((_, Becomes::Long(long))) => Ok(Some(match value {
            Some(value) => format!("{long}={value}").into(),
            None => (*long).into(),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> Result<String, Failure> {
        let words = rewrite(line.split(' ').map(OsString::from))?;
        Ok(words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn words_become_long_flags_and_the_rest_stays() {
        let line = "rooflight run -m x.gguf -ngl 99 -fa=on -ctk q8_0 -n -1 -x -- -ngl";
        let want = "rooflight run -m x.gguf --n-gpu-layers 99 --flash-attn=on --cache-type-k q8_0 -n -1 -x -- -ngl";
        assert_eq!(rewritten(line).unwrap(), want);
        // clap would read `-r ea`, and `off` as the prompt.
        assert_eq!(
            rewritten("rooflight run m.gguf -rea off").unwrap(),
            "rooflight run m.gguf --reasoning off"
        );
    }

    #[test]
    fn refused_words_say_why() {
        let error = rewritten("rooflight run -hf org/repo").unwrap_err().to_string();
        assert!(error.contains("-hf") && error.contains("GGUF"), "{error}");
        // clap would read `-m d`.
        assert!(rewritten("rooflight run m.gguf -md draft.gguf").is_err());
    }

    #[test]
    fn every_long_flag_of_the_table_exists() {
        let root = crate::commands::command();
        for (word, becomes) in WORDS {
            let Becomes::Long(long) = becomes else { continue };
            let long = long.trim_start_matches("--");
            let known = root.get_subcommands().flat_map(clap::Command::get_arguments).any(|a| {
                a.get_long() == Some(long)
                    || a.get_all_aliases().unwrap_or_default().contains(&long)
            });
            assert!(known, "{word} becomes --{long}, which no command has");
        }
    }
}
