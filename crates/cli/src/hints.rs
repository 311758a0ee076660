//! What to do about an error: one line for the errors that a user can do something about.

use crate::exit::Failure;

/// The hint for a failed command, if there is one.
pub(crate) fn of(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| {
        cause
            .downcast_ref()
            .and_then(of_failure)
            .or_else(|| cause.downcast_ref().and_then(of_gguf))
            .or_else(|| cause.downcast_ref().and_then(of_models))
            .or_else(|| cause.downcast_ref().and_then(of_tokenizer))
            .or_else(|| cause.downcast_ref().and_then(of_engine))
            .or_else(|| cause.downcast_ref().and_then(of_program))
    })
}

fn of_failure(failure: &Failure) -> Option<String> {
    Some(match failure {
        Failure::NotFound { .. } => {
            "the model comes first, as the path of a GGUF file: rooflight run MODEL.gguf 'PROMPT'; \
             the bundled demo answers rooflight run -p 'PROMPT'"
                .into()
        }
        Failure::UnknownModel { near, .. } if near.is_empty() => {
            "rooflight plan --list names what is published".into()
        }
        Failure::UnknownModel { near, .. } => format!("did you mean {}?", near.join(" or ")),
        Failure::Exists { .. } => "give another name, or --force to replace it".into(),
        Failure::DoesNotFit { advice, .. } => advice.clone(),
        Failure::Usage(_) => "see rooflight COMMAND --help".into(),
        Failure::Malformed(_) | Failure::Goals(_) | Failure::NoRoom(_) | Failure::Interrupted => {
            return None;
        }
    })
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

fn of_engine(error: &engine::Error) -> Option<String> {
    match error {
        engine::Error::ContextFull { .. } => {
            Some("give the context more room with -c, or shorten the text".into())
        }
        engine::Error::Model(error) => of_program(error),
        engine::Error::Text(error) => of_tokenizer(error),
        _ => None,
    }
}

fn of_program(error: &program::Error) -> Option<String> {
    Some(match error {
        program::Error::ContextFull { .. } => {
            "give the context more room with -c, or shorten the text".into()
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
        let missing =
            anyhow::Error::from(Failure::NotFound { path: "x.gguf".into() }).context("opening");
        assert!(of(&missing).is_some_and(|hint| hint.contains("rooflight run")));
        let full = Err::<(), _>(program::Error::ContextFull { wanted: 9, capacity: 8 })
            .context("step")
            .unwrap_err();
        assert!(of(&full).is_some_and(|hint| hint.contains("-c")));
        assert_eq!(of(&anyhow::anyhow!("something else")), None);
    }
}
