//! Marks of texts with a hole: models that fill it were taught texts with a mark before what stands before the hole, one before
//! what stands behind it and one before what fills it; some of them whole repositories, with marks before names of
//! repositories and files.

use gguf::Metadata;

use crate::Result;
use crate::vocab::Vocab;

/// Tokens that mark the parts of a text with a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfillMarks {
    /// Before what stands before the hole.
    pub prefix: u32,
    /// Before what stands behind it.
    pub suffix: u32,
    /// Before what fills it.
    pub middle: u32,
    /// Before the name of a repository, where the model was taught such.
    pub repository: Option<u32>,
    /// Before the name of a file.
    pub file: Option<u32>,
}

impl InfillMarks {
    /// Returns the marks of the vocabulary in this metadata, or `None` if it lacks a required mark.
    ///
    /// # Errors
    /// A malformed vocabulary.
    pub fn from_gguf(m: &Metadata) -> Result<Option<InfillMarks>> {
        Ok(Vocab::from_gguf(m)?.infill)
    }
}

/// What a token marks.
#[derive(Clone, Copy)]
enum Role {
    Prefix,
    Suffix,
    Middle,
    Repository,
    File,
    /// What is behind a text, so that others are as long.
    Padding,
}

const ROLES: usize = 6;

/// Where files say what a token marks.
const KEYS: [(Role, [&str; 2]); ROLES] = [
    (Role::Prefix, ["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"]),
    (Role::Suffix, ["tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"]),
    (Role::Middle, ["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"]),
    (Role::Repository, ["tokenizer.ggml.fim_rep_token_id", ""]),
    (Role::File, ["tokenizer.ggml.fim_sep_token_id", ""]),
    (Role::Padding, ["tokenizer.ggml.fim_pad_token_id", ""]),
];

/// How families call them: prefix, suffix, middle, repository, file, padding.
const NAMES: [[&str; ROLES]; 10] = [
    // Qwen 2.5 Coder
    [
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        "<|repo_name|>",
        "<|file_sep|>",
        "<|fim_pad|>",
    ],
    // StarCoder, StarCoder 2, Granite
    ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>", "<fim_pad>"],
    // SantaCoder
    ["<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<reponame>", "", "<fim-pad>"],
    // DeepSeek
    ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "", "", ""],
    // Code Llama
    ["▁<PRE>", "▁<SUF>", "▁<MID>", "", "", ""],
    ["<PRE>", "<SUF>", "<MID>", "", "", ""],
    // GLM 4.5
    ["<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "", "", ""],
    // CodeGemma, and what others call repositories
    ["", "", "", "<|fim_repo|>", "<|file_separator|>", ""],
    ["", "", "", "<fim-repo>", "", ""],
    ["", "", "", "<REPO>", "", ""],
];

/// What a vocabulary marks the parts of such a text with.
#[derive(Default)]
pub(crate) struct FoundMarks {
    /// The marks, if it has those that no such text does without.
    pub(crate) marks: Option<InfillMarks>,
    /// Tokens that are not part of what fills a hole: they begin something else.
    pub(crate) others: Vec<u32>,
}

impl FoundMarks {
    pub(crate) fn new(m: &Metadata, vocab: &mut Vocab) -> Result<FoundMarks> {
        let mut said = [None; ROLES];
        for (role, keys) in KEYS {
            for key in keys.iter().filter(|key| !key.is_empty()) {
                said[role as usize] = said[role as usize].or(vocab.id(m, key)?);
            }
        }
        let mut named = [[None; ROLES]; NAMES.len()];
        for id in vocab.ids() {
            // all names have it
            let Some(text) = vocab.text(id).filter(|text| text.contains('<')) else { continue };
            for (found, names) in named.iter_mut().zip(NAMES) {
                if let Some(role) = names.iter().position(|name| *name == text) {
                    found[role] = Some(id);
                }
            }
        }
        // what a file says of the three counts if it says it of all
        let all = std::iter::once(said).chain(named);
        let three = |found: [Option<u32>; ROLES]| {
            let [prefix, suffix, middle] =
                [Role::Prefix, Role::Suffix, Role::Middle].map(|role| found[role as usize]);
            Some((prefix?, suffix?, middle?))
        };
        let Some((prefix, suffix, middle)) = all.clone().find_map(three) else {
            return Ok(FoundMarks::default());
        };
        let any = |role: Role| all.clone().find_map(|found| found[role as usize]);
        let (repository, file) = (any(Role::Repository), any(Role::File));
        let marks = InfillMarks { prefix, suffix, middle, repository, file };
        let others = [repository, file, any(Role::Padding)].into_iter().flatten().collect();
        Ok(FoundMarks { marks: Some(marks), others })
    }
}
