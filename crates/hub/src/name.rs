//! [`ModelName`]: `org/repo:QUANT`, the same with the hub's address before it, and short names.

use crate::short::SHORT_NAMES;
use crate::{CachedFile, HubError, Result};

/// A model on a hub: a repository, and which of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// `org/name`.
    pub repository: String,
    /// The type of weights, as file names have it; `None`: the usual one.
    pub quant: Option<String>,
    /// Branch, tag or commit.
    pub revision: String,
}

/// What is taken where nobody says.
pub(crate) const USUAL: &str = "Q4_K_M";
/// Longest part of a name.
const LONGEST: usize = 96;
/// What may stand before a repository.
const ADDRESSES: [&str; 5] =
    ["https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/", "hf://"];

impl ModelName {
    /// Read a name; `None` for what is none and may be something else, as a path.
    ///
    /// # Errors
    /// [`HubError::Name`]: what begins as a name and is not one.
    pub fn parse(text: &str) -> Result<Option<ModelName>> {
        let wrong = |problem| {
            let name = text.chars().take(80).filter(|c| !c.is_control()).collect();
            Err(HubError::Name { name, problem })
        };
        let rest = ADDRESSES.iter().find_map(|address| text.strip_prefix(address));
        let named = rest.is_some();
        let rest = rest.unwrap_or(text);
        let (rest, quant) = match rest.rsplit_once(':') {
            Some((rest, quant)) => (rest, Some(quant)),
            None => (rest, None),
        };
        let (rest, revision) = match rest.split_once('@') {
            Some((rest, revision)) => (rest, revision),
            None => (rest, "main"),
        };
        let Some((organisation, name)) = rest.split_once('/') else {
            return if named {
                wrong("expected org/name behind the address")
            } else {
                Ok(short(text))
            };
        };
        let parts = [Some(organisation), Some(name), Some(revision), quant];
        let good = parts.into_iter().flatten().all(is_part);
        match (good, named) {
            (true, _) => Ok(Some(ModelName {
                repository: format!("{organisation}/{name}"),
                quant: quant.map(str::to_owned),
                revision: revision.to_owned(),
            })),
            (false, true) => wrong("expected org/name or org/name:TYPE"),
            (false, false) => Ok(None),
        }
    }

    /// Whether it says of no commit which one is meant.
    pub(crate) fn is_latest(&self) -> bool {
        self.revision == "main"
    }

    /// The one of these files that it means.
    pub(crate) fn chosen(&self, mut files: Vec<CachedFile>) -> Option<CachedFile> {
        files.sort_by_key(|file| std::cmp::Reverse(file.modified));
        let names: Vec<&str> = files.iter().map(|file| &*file.file).collect();
        let at = pick(&names, self.quant.as_deref())?;
        Some(files.swap_remove(at))
    }
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.repository)?;
        if self.revision != "main" {
            write!(f, "@{}", self.revision)?;
        }
        self.quant.as_ref().map_or(Ok(()), |quant| write!(f, ":{quant}"))
    }
}

/// Whether this may be a part of a name: it is one of a path too, and of an address.
fn is_part(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty()
        && text.len() <= LONGEST
        && text.chars().all(known)
        && !text.starts_with(['.', '-'])
        && !text.contains("--")
        && !text.contains("..")
}

/// Of the table: `qwen2.5:7b`, with or without what a tag says beside the size (`7b-instruct-q8_0`).
fn short(text: &str) -> Option<ModelName> {
    let lower = text.to_ascii_lowercase();
    let (family, tag) = lower.split_once(':').unwrap_or((&lower, "latest"));
    let entry = |size: &str| {
        let all = || SHORT_NAMES.iter().filter(|(known, ..)| *known == family);
        match size {
            "latest" => all().next(),
            size => all().find(|(_, known, _)| *known == size),
        }
    };
    // from the right, what is no size is the type of weights, or says that the model answers, as all here do
    let mut size = tag;
    loop {
        if let Some((.., repository)) = entry(size) {
            let rest = tag[size.len()..].trim_start_matches('-');
            let rest = ["instruct", "it", "chat"]
                .iter()
                .find_map(|word| rest.strip_prefix(word))
                .map_or(rest, |rest| rest.trim_start_matches('-'));
            let quant = (!rest.is_empty()).then(|| rest.to_ascii_uppercase());
            return Some(ModelName {
                repository: (*repository).to_owned(),
                quant,
                revision: "main".to_owned(),
            });
        }
        size = size.rsplit_once('-')?.0;
    }
}

/// Which of these files, by name, has this type of weights, else the usual one, else is the first.
pub fn pick(files: &[&str], quant: Option<&str>) -> Option<usize> {
    let of = |wanted: &str| files.iter().position(|file| has_quant(file, wanted));
    match quant {
        Some(quant) => of(quant),
        None => of(USUAL).or_else(|| (!files.is_empty()).then_some(0)),
    }
}

/// Whether a file's name says that its weights are of this type: as a word of it, whatever its case.
pub(crate) fn has_quant(file: &str, quant: &str) -> bool {
    let (file, quant) = (file.to_ascii_lowercase(), quant.to_ascii_lowercase());
    let is_edge = |c: Option<char>| c.is_none_or(|c| matches!(c, '-' | '.' | '_' | '/'));
    file.match_indices(&quant).any(|(at, _)| {
        let (before, behind) = (&file[..at], &file[at + quant.len()..]);
        // `q4_k` is not `q4_k_m`
        is_edge(before.chars().next_back())
            && (is_edge(behind.chars().next()) && !behind.starts_with('_'))
    })
}

/// The type of weights that a file's name says, if one of the known ones stands in it.
pub(crate) fn quant_of(file: &str) -> Option<String> {
    let stem = file.rsplit('/').next().unwrap_or(file);
    let stem = stem.get(..stem.len().checked_sub(5)?)?;
    let words = stem.split(['-', '.']).rev();
    let known = |word: &&str| {
        let word = word.to_ascii_uppercase();
        let typed = ["Q", "IQ", "TQ"].iter().any(|kind| {
            let rest = word.strip_prefix(kind).and_then(|rest| rest.split_once('_'));
            rest.is_some_and(|(bits, _)| {
                bits.len() == 1 && bits.bytes().all(|b| b.is_ascii_digit())
            })
        });
        typed || matches!(&*word, "F16" | "F32" | "BF16" | "MXFP4" | "MXFP4_MOE" | "FP16")
    };
    words.into_iter().find(known).map(str::to_ascii_uppercase)
}
