//! Names of models in requests: their own, with or without Ollama's tag, in capitals or not, and those of their files.

use std::sync::Arc;

use super::{Entry, Models};
use crate::error::{ApiError, Result};

impl Models {
    /// Returns the entry of the model of this name: see [`Models::named`].
    ///
    /// # Errors
    /// Another name; the error lists those there are.
    pub(super) fn entry(&self, name: Option<&str>) -> Result<Arc<Entry>> {
        let all = self.entries();
        let of = |name: &str| {
            let exactly = |entry: &&Arc<Entry>| entry.offer().about.names().any(|own| own == name);
            all.iter()
                .find(exactly)
                .or_else(|| all.iter().find(|entry| entry.offer().is_named(name)))
        };
        let found = match name.filter(|name| !name.is_empty()) {
            None => all.first(),
            Some(name) => of(name)
                .or_else(|| of(name.strip_suffix(":latest")?))
                .or_else(|| of(name_of_file(name)?)),
        };
        found.cloned().ok_or_else(|| {
            let name = name.unwrap_or_default();
            let name: String = name.chars().take(60).filter(|c| !c.is_control()).collect();
            let quoted = |name: &str| format!("`{name}`");
            let names = |entry: &Arc<Entry>| -> Vec<String> {
                entry.offer().about.names().map(quoted).collect()
            };
            let known = all.iter().flat_map(names).collect::<Vec<_>>().join(", ");
            ApiError::not_found(format!("model `{name}` not found: there is {known}"))
        })
    }
}

/// Returns the name of the model in a file `NAME.gguf`, with or without its folder: llama.cpp's server and its clients name models so.
fn name_of_file(path: &str) -> Option<&str> {
    const SUFFIX: &str = ".gguf";
    let file = path.rsplit(['/', '\\']).next()?;
    let (name, suffix) = file.split_at_checked(file.len().checked_sub(SUFFIX.len())?)?;
    (suffix.eq_ignore_ascii_case(SUFFIX) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_name_of_their_model() {
        for (path, name) in [
            ("a.gguf", Some("a")),
            ("models/a-Q4_K_M.gguf", Some("a-Q4_K_M")),
            ("C:\\models\\a.GGUF", Some("a")),
            ("./.gguf", None),
            ("a.gguf/b", None),
            ("gguf", None),
            ("é.gguf", Some("é")),
            ("aé.ggu", None),
        ] {
            assert_eq!(name_of_file(path), name, "{path}");
        }
    }
}
