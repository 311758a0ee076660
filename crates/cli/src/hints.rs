//! What to do about an error: one line for the errors that a user can do something about.

use std::path::Path;

use rooflight::Error;

use crate::exit::Failure;

/// Where an error came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// In this command.
    Command(String),
    /// At the prompt of a conversation.
    Chat,
    /// Before a command was known.
    Nowhere,
}

/// The hint for an error, if there is one.
pub(crate) fn of(error: &anyhow::Error, spot: &Spot) -> Option<String> {
    error.chain().find_map(|cause| {
        cause
            .downcast_ref()
            .and_then(|failure| of_failure(failure, spot))
            .or_else(|| cause.downcast_ref().and_then(|error| of_rooflight(error, spot)))
            .or_else(|| console::exit::hint(cause))
            .or_else(|| crate::names::hint_of(cause))
            .or_else(|| cause.downcast_ref().and_then(of_gguf))
            .or_else(|| cause.downcast_ref().and_then(of_models))
            .or_else(|| cause.downcast_ref().and_then(of_tokenizer))
            .or_else(|| cause.downcast_ref().and_then(|error| of_engine(error, spot)))
            .or_else(|| cause.downcast_ref().and_then(|error| of_program(error, spot)))
    })
}

fn of_failure(failure: &Failure, spot: &Spot) -> Option<String> {
    Some(match failure {
        Failure::CommandLine(wrong) => wrong.hint.clone(),
        Failure::Taken { .. } => {
            "--port takes another, 0 any that is free; rooflight ps asks the server that listens there".into()
        }
        Failure::NotPulled { is_file: true, .. } => {
            "it names a file: only what was pulled is removed, and rooflight list names it".into()
        }
        Failure::NotPulled { .. } => "rooflight list names what is here".into(),
        Failure::Usage(_) => of_usage(spot),
        Failure::Moved(_)
        | Failure::Goals(_)
        | Failure::Differs(_)
        | Failure::Unfinished(_)
        | Failure::Interrupted => {
            return None;
        }
    })
}

fn of_rooflight(error: &Error, spot: &Spot) -> Option<String> {
    Some(match error {
        Error::Options(_) => of_usage(spot),
        Error::NotFound { path } => of_missing(path, spot),
        Error::NotHere { name } => {
            format!("rooflight pull {name} brings it; rooflight list names what is here")
        }
        Error::UnknownModel { near, .. } if near.is_empty() => {
            "rooflight plan --list names what is published".into()
        }
        Error::UnknownModel { near, .. } => format!("did you mean {}?", near.join(" or ")),
        Error::DoesNotFit { advice, .. } | Error::Bound { advice, .. } => advice.clone(),
        Error::TooLong { capacity, trained, .. } if capacity < trained => {
            format!("-c gives it more room, up to the {trained} tokens this model was made for")
        }
        Error::TooLong { trained, .. } => {
            format!("shorten it: this model was made for {trained} tokens")
        }
        _ => return None,
    })
}

fn of_usage(spot: &Spot) -> String {
    match spot {
        Spot::Command(name) => format!("see rooflight {name} --help"),
        Spot::Chat => "/help lists the commands".into(),
        Spot::Nowhere => "rooflight --help lists the commands".into(),
    }
}

/// A model that is not there, by what its name looks like and what it was wanted for.
fn of_missing(path: &Path, spot: &Spot) -> String {
    let text = path.to_string_lossy();
    let ends = |ending: &str| text.to_ascii_lowercase().ends_with(ending);
    let published = text.contains("://") || text.starts_with("hf.co/") || text.contains(':');
    if ends(".safetensors") {
        return "only GGUF files can be run; most models are published in that form too".into();
    }
    if published && !ends(".gguf") {
        return "rooflight pull --names lists short names; any repository with GGUF files is org/repo".into();
    }
    let is_word = !ends(".gguf") && !text.contains(['/', '\\']);
    match spot {
        Spot::Command(name) if is_word && ["run", "serve"].contains(&&**name) => {
            format!(
                "give the path of a GGUF file, or a name that can be brought here: rooflight pull --names lists them; \
                     rooflight {name} without a model asks the bundled demo"
            )
        }
        Spot::Command(name) if name == "run" || name == "complete" => {
            format!(
                "the model comes first, as the path of a GGUF file: rooflight {name} MODEL.gguf 'PROMPT'; \
                     the bundled demo answers rooflight run -p 'PROMPT'"
            )
        }
        Spot::Command(name) => {
            format!(
                "give the path of a GGUF file: rooflight {name} MODEL.gguf; \
                     rooflight demo-model demo.gguf writes the bundled one"
            )
        }
        Spot::Chat | Spot::Nowhere => "give the path of a GGUF file".into(),
    }
}

fn of_gguf(error: &gguf::Error) -> Option<String> {
    Some(match error {
        gguf::Error::MissingPart { .. } => {
            "all parts of a sharded model belong in one folder".into()
        }
        gguf::Error::NotGguf { .. } => {
            "only GGUF files can be run; most models are published in that form too".into()
        }
        gguf::Error::Tensor { .. } | gguf::Error::Malformed { .. } => {
            "the file is damaged, or not made as it should be".into()
        }
        _ => return None,
    })
}

fn of_models(error: &models::Error) -> Option<String> {
    match error {
        models::Error::Architecture { .. } => {
            Some("rooflight show MODEL tells what is in the file".into())
        }
        _ => None,
    }
}

fn of_tokenizer(error: &tokenizer::Error) -> Option<String> {
    match error {
        tokenizer::Error::Template { .. } => {
            Some("rooflight complete MODEL PROMPT works without the template".into())
        }
        _ => None,
    }
}

fn of_engine(error: &engine::Error, spot: &Spot) -> Option<String> {
    match error {
        engine::Error::ContextFull { .. } => Some(of_full(spot)),
        engine::Error::Model(error) => of_program(error, spot),
        engine::Error::Text(error) => of_tokenizer(error),
        _ => None,
    }
}

/// What to do about a full context.
pub(crate) const WAYS_OUT: &str = "/set context-full drop-oldest forgets the oldest turns, /set parameter num_ctx N gives more, \
     /save FILE keeps the conversation, /clear starts over";

fn of_full(spot: &Spot) -> String {
    match spot {
        Spot::Chat => WAYS_OUT.into(),
        _ => "give the context more room with -c, or shorten the text".into(),
    }
}

fn of_program(error: &program::Error, spot: &Spot) -> Option<String> {
    Some(match error {
        program::Error::ContextFull { .. } => of_full(spot),
        program::Error::Memory { what, .. } if what.contains("weight") => {
            "take a smaller model or a smaller quantization".into()
        }
        program::Error::CacheBudget { .. } => {
            "give --kv-memory more, or sessions a smaller -c".into()
        }
        program::Error::Memory { .. } => "try a smaller -c, or -ctk q8_0 -ctv q8_0".into(),
        program::Error::NonFinite { .. } => {
            "the file is damaged, or was converted or quantized wrongly".into()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn the_first_cause_with_a_hint_speaks() {
        let hint = |error: &anyhow::Error, command: &str| of(error, &Spot::Command(command.into()));
        let missing = |path: &str| {
            anyhow::Error::from(Error::NotFound { path: path.into() }).context("opening")
        };
        for (path, command, wanted) in [
            ("x.gguf", "run", "rooflight run MODEL.gguf 'PROMPT'"),
            ("x.gguf", "show", "rooflight show MODEL.gguf"),
            ("llama3:8b", "run", "pull --names"),
            ("hf.co/a/b", "run", "pull --names"),
            ("m.safetensors", "run", "GGUF"),
        ] {
            let told = hint(&missing(path), command).unwrap();
            assert!(told.contains(wanted), "{path} {command}: {told}");
        }
        let usage = anyhow::Error::from(Failure::Usage("x".into()));
        assert_eq!(hint(&usage, "bench").as_deref(), Some("see rooflight bench --help"));
        let full = Err::<(), _>(program::Error::ContextFull { wanted: 9, capacity: 8 })
            .context("step")
            .unwrap_err();
        assert!(hint(&full, "run").is_some_and(|hint| hint.contains("-c")));
        assert!(of(&full, &Spot::Chat).is_some_and(|hint| hint.contains("/clear")));
        let memory = |what| anyhow::Error::from(program::Error::Memory { what, bytes: 1 });
        assert!(hint(&memory("the weights"), "run").unwrap().contains("quantization"));
        assert!(hint(&memory("the cache"), "run").unwrap().contains("-c"));
        assert_eq!(hint(&anyhow::anyhow!("something else"), "run"), None);
    }
}
