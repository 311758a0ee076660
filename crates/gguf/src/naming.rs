//! File names: `BaseName-SizeLabel-FineTune-Version-Encoding-Type-Shard.gguf`, parsed and produced.
//!
//! Parsing never fails: real names leave parts out, use other letters or join the encoding with a dot. What is not
//! recognized stays in `base`. Source: the naming convention in the GGUF specification.

use std::fmt;
use std::path::{Path, PathBuf};

/// The parts of a file name. `Display` produces the name by the convention, with `.gguf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileName {
    /// Model name, e.g. `Hermes-2-Pro-Llama-3`.
    pub base: String,
    /// Parameters, e.g. `8x7B`, `30B-A3B`, `3.8B-ContextLength4k`.
    pub size_label: Option<String>,
    /// What it was tuned for, e.g. `Instruct`.
    pub fine_tune: Option<String>,
    /// Version, e.g. `v0.1`; absent means `v1.0`: see [`FileName::version`].
    pub version: Option<String>,
    /// Weight encoding, e.g. `Q4_0`.
    pub encoding: Option<String>,
    /// What the file holds, if not a whole model.
    pub kind: Option<FileKind>,
    /// Which part of a sharded model it is.
    pub shard: Option<Shard>,
}

/// What a file holds, if not a whole model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A low-rank adapter.
    Lora,
    /// A vocabulary without weights.
    Vocab,
}

/// Part `no` (from 1) of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Counted from 1.
    pub no: u32,
    /// Parts of the model, at least `no`.
    pub count: u32,
}

impl FileName {
    /// Takes a file name, with or without directories and `.gguf`, apart.
    pub fn parse(name: &str) -> FileName {
        let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let (name, shard) = Shard::split(strip_extension(name));
        let mut words: Vec<&str> = name.split('-').collect();
        let mut out = FileName { shard, ..FileName::default() };
        // The first word is always the name; the rest is recognized from the end.
        out.kind =
            pop_if(&mut words, |word| FileKind::parse(word).is_some()).and_then(FileKind::parse);
        out.encoding = pop_encoding(&mut words);
        out.version = pop_if(&mut words, is_version).map(str::to_owned);
        if let Some(first) = (1..words.len()).find(|&i| is_size(words[i])) {
            let last =
                (first + 1..words.len()).find(|&i| !is_attribute(words[i])).unwrap_or(words.len());
            out.size_label = Some(words[first..last].join("-"));
            out.fine_tune = (last < words.len()).then(|| words[last..].join("-"));
            words.truncate(first);
        }
        out.base = words.join("-");
        out
    }

    /// The version; a name without one means the first.
    pub fn version(&self) -> &str {
        self.version.as_deref().unwrap_or("v1.0")
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)?;
        let words = [
            self.size_label.as_deref(),
            self.fine_tune.as_deref(),
            Some(self.version()),
            self.encoding.as_deref(),
        ];
        for word in words.into_iter().flatten().chain(self.kind.map(FileKind::name)) {
            write!(f, "-{word}")?;
        }
        if let Some(shard) = self.shard {
            write!(f, "-{shard}")?;
        }
        f.write_str(EXTENSION)
    }
}

impl FileKind {
    /// As it stands in a name.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Lora => "LoRA",
            FileKind::Vocab => "vocab",
        }
    }

    fn parse(word: &str) -> Option<FileKind> {
        [FileKind::Lora, FileKind::Vocab]
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(word))
    }
}

impl Shard {
    /// The shard that a path's file name says it is.
    pub fn of(path: &Path) -> Option<Shard> {
        Shard::split(strip_extension(path.file_name()?.to_str()?)).1
    }

    /// The path of this shard, next to another shard of the same model; `path` itself if that is not one.
    pub fn sibling_of(self, path: &Path) -> PathBuf {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return path.to_owned();
        };
        let stem = strip_extension(name);
        match Shard::split(stem) {
            (base, Some(_)) => path.with_file_name(format!("{base}-{self}{}", &name[stem.len()..])),
            _ => path.to_owned(),
        }
    }

    /// Takes `-00001-of-00003` from the end of a name.
    fn split(name: &str) -> (&str, Option<Shard>) {
        let parse = || {
            let (rest, count) = name.rsplit_once("-of-")?;
            let (base, no) = rest.rsplit_once('-')?;
            let number = |text: &str| {
                let digits = text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
                if digits { text.parse::<u32>().ok() } else { None }
            };
            let (no, count) = (number(no)?, number(count)?);
            (1..=count).contains(&no).then_some((base, Shard { no, count }))
        };
        match parse() {
            Some((base, shard)) => (base, Some(shard)),
            None => (name, None),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:05}-of-{:05}", self.no, self.count)
    }
}

const EXTENSION: &str = ".gguf";

fn strip_extension(name: &str) -> &str {
    match name.len().checked_sub(EXTENSION.len()) {
        Some(at) if name.is_char_boundary(at) && name[at..].eq_ignore_ascii_case(EXTENSION) => {
            &name[..at]
        }
        _ => name,
    }
}

/// Takes the last word if it is not the only one and the test says so.
fn pop_if<'a>(words: &mut Vec<&'a str>, test: impl Fn(&str) -> bool) -> Option<&'a str> {
    if words.len() < 2 {
        return None;
    }
    words.pop_if(|word| test(word))
}

/// Takes the encoding: the last word if it looks like one or follows a version, or the end of the last word after a
/// dot (`model-v0.2.Q4_K_M`).
fn pop_encoding(words: &mut Vec<&str>) -> Option<String> {
    let follows_version = words.len() > 2 && is_version(words[words.len() - 2]);
    if let Some(word) =
        pop_if(words, |word| is_encoding(word) || (follows_version && is_word(word)))
    {
        return Some(word.to_owned());
    }
    let last = words.last_mut()?;
    let (rest, encoding) = last.rsplit_once('.')?;
    if rest.is_empty() || !is_encoding(encoding) {
        return None;
    }
    *last = rest;
    Some(encoding.to_owned())
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// `F16`, `BF16`, `Q4_K_M`, `IQ3_S`, `TQ1_0`, `KQ2`, `MXFP4_MOE`, in either case: known letters, then a digit.
fn is_encoding(word: &str) -> bool {
    const LETTERS: [&str; 10] = ["F", "FP", "BF", "Q", "IQ", "TQ", "KQ", "MXFP", "NVFP", "I"];
    let digit = word.find(|c: char| c.is_ascii_digit());
    is_word(word)
        && digit.is_some_and(|at| LETTERS.iter().any(|l| l.eq_ignore_ascii_case(&word[..at])))
}

/// `v1.0`, `v2`.
fn is_version(word: &str) -> bool {
    word.strip_prefix(['v', 'V']).is_some_and(|rest| rest.split('.').all(is_digits))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A number, with decimals or not, and one of the letters for 10^15, 10^12, 10^9, 10^6, 10^3.
fn is_count(text: &str) -> bool {
    let Some(number) = text.strip_suffix(|c: char| "QTBMK".contains(c.to_ascii_uppercase())) else {
        return false;
    };
    match number.split_once('.') {
        Some((whole, decimals)) => is_digits(whole) && is_digits(decimals),
        None => is_digits(number),
    }
}

/// `7B`, `0.5b`, `8x7B`.
fn is_size(word: &str) -> bool {
    match word.split_once(['x', 'X']) {
        Some((experts, count)) => is_digits(experts) && is_count(count),
        None => is_count(word),
    }
}

/// What may follow a size: letters, a number and a scale, as `A3B` or `ContextLength4k`.
fn is_attribute(word: &str) -> bool {
    let digit = word.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(word.len());
    digit > 0 && is_count(&word[digit..])
}
