//! What is planned: a GGUF file, a `config.json`, or a published model by name.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use models::{Mixture, ModelConfig};
use program::Program;

use super::hf;
use crate::notices::Topic;
use crate::{Error, Runtime, file, naming};

/// A model's shape, and what is known of its weights.
pub struct Subject {
    /// For people; escaped.
    pub name: String,
    /// Where the shape comes from: `gguf`, `config` or `published`.
    pub source: &'static str,
    /// The shape.
    pub config: ModelConfig,
    /// The type that takes most bytes of a GGUF, and the file's own program.
    pub file: Option<(String, Arc<Program>)>,
    /// The file type that a published name ends with, as in `qwen2.5:7b-q8_0`, or that the model is published in.
    pub mixture: Option<&'static Mixture>,
}

impl Subject {
    /// Finds what `name` is: a file, a folder with a `config.json`, a model on this machine that `here` finds by name, or a
    /// published model, in this order.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::UnknownModel`], or an error that says what is wrong with the file.
    pub fn find(
        runtime: &Runtime,
        name: &OsStr,
        here: &dyn Fn(&Path) -> Option<PathBuf>,
    ) -> anyhow::Result<Subject> {
        let path = Path::new(name);
        if path.is_dir() {
            let config = path.join("config.json");
            if !config.exists() {
                let message = format!("{} is a folder without a config.json", path.display());
                return Err(Error::Malformed(message).into());
            }
            return Subject::of_config(&config);
        }
        let has = |ending: &str| path.extension().is_some_and(|e| e.eq_ignore_ascii_case(ending));
        if path.exists() {
            return if has("json") {
                Subject::of_config(path)
            } else {
                Subject::of_gguf(runtime, path)
            };
        }
        let here = here(path).filter(|here| here != path);
        let name = name.to_string_lossy();
        if let Some(here) = here {
            return Subject::of_outline(runtime, &here, &name);
        }
        if let Some(found) = Subject::published(&name) {
            return Ok(found);
        }
        // a file that is not there yet may be named after its model
        let file = has("gguf").then(|| path.file_stem().map(|stem| stem.to_string_lossy()));
        if let Some(found) = file.flatten().and_then(|stem| Subject::published(&stem)) {
            let text = format!("no such file: planned for the published {}", found.name);
            runtime.note(Topic::Plan, &text);
            return Ok(found);
        }
        if has("json") || has("gguf") {
            return Err(Error::NotFound { path: path.to_owned() }.into());
        }
        let near = models::similar_published(&name);
        Err(Error::UnknownModel { name: gguf::escape(&*name, 80), near }.into())
    }

    /// Whether a name needs no hub: a file that is there, or a published model.
    pub fn is_known(name: &OsStr) -> bool {
        Path::new(name).exists() || Subject::published(&name.to_string_lossy()).is_some()
    }

    /// A model of which only the header is at `path`, by its name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_outline(runtime: &Runtime, path: &Path, name: &str) -> anyhow::Result<Subject> {
        Ok(Subject { name: gguf::escape(name, 80), ..Subject::of_gguf(runtime, path)? })
    }

    fn of_config(path: &Path) -> anyhow::Result<Subject> {
        let config = hf::read(path)?;
        let folder = std::path::absolute(path).ok();
        let folder = folder.as_deref().and_then(Path::parent).and_then(Path::file_name);
        let name =
            folder.map_or("config.json".into(), |name| gguf::escape(name.as_encoded_bytes(), 60));
        Ok(Subject { name, source: "config", config, file: None, mixture: None })
    }

    /// A GGUF file, all its shards.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_gguf(runtime: &Runtime, path: &Path) -> anyhow::Result<Subject> {
        let gguf = file::open(path)?;
        let model = models::load(&gguf).context("reading the model")?;
        model.notes.iter().for_each(|note| runtime.warn(Topic::Plan, note));
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Subject {
            name: gguf::escape(name.as_encoded_bytes(), 60),
            source: "gguf",
            config: model.config,
            file: Some((naming::main_type(&gguf), model.program)),
            mixture: None,
        })
    }

    fn published(name: &str) -> Option<Subject> {
        let ending = name.char_indices().filter(|(_, c)| matches!(c, '-' | ':' | '_' | '.'));
        let mut mixtures = ending.map(|(at, _)| (&name[..at], Mixture::from_name(&name[at + 1..])));
        let (config, mixture) =
            models::find_published(name).map(|config| (config, None)).or_else(|| {
                mixtures.find_map(|(name, mixture)| {
                    Some((models::find_published(name)?, Some(mixture?)))
                })
            })?;
        let mixture = mixture.or_else(|| models::published_type(&config));
        let name = config.name.clone().unwrap_or_default();
        Some(Subject { name, source: "published", config, file: None, mixture })
    }

    /// The forward pass with weights of this file type.
    ///
    /// # Errors
    /// A shape that no executor takes.
    pub fn program(&self, mixture: &Mixture) -> anyhow::Result<Arc<Program>> {
        let ty = |name: &str, dims: &[u64]| mixture.tensor_type(&self.config, name, dims);
        Ok(models::from_config(&self.config, &ty).context("planning the model")?.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_names_with_a_file_type() {
        let found = |name: &str| {
            let subject = Subject::published(name)?;
            Some(format!("{} {:?}", subject.name, subject.mixture.map(Mixture::name)))
        };
        for (name, want) in [
            ("qwen2.5:7b", "Qwen2.5-7B None"),
            ("qwen2.5:7b-instruct-q4_K_M", "Qwen2.5-7B Some(\"Q4_K_M\")"),
            ("Llama-3.2-1B-Instruct.Q8_0", "Llama-3.2-1B Some(\"Q8_0\")"),
            ("gpt-oss:20b", "gpt-oss-20b Some(\"MXFP4_MOE\")"),
            ("gpt-oss-20b-F16", "gpt-oss-20b Some(\"F16\")"),
        ] {
            assert_eq!(found(name).as_deref(), Some(want), "{name}");
        }
        assert_eq!(found("qwen2.5-7b-q9"), None);
    }
}
