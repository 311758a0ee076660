//! The tokens of a vocabulary: their texts, kinds and meanings, checked once when they are read.

use ahash::AHashSet;
use gguf::{Metadata, escape};

use crate::byte_level::Alphabet;
use crate::infill::{FoundMarks, InfillMarks};
use crate::{Error, Result};

pub(crate) const MODEL: &str = "tokenizer.ggml.model";
pub(crate) const PRE: &str = "tokenizer.ggml.pre";
pub(crate) const MERGES: &str = "tokenizer.ggml.merges";
pub(crate) const TOKENS: &str = "tokenizer.ggml.tokens";
const SCORES: &str = "tokenizer.ggml.scores";
pub(crate) const TOKEN_TYPE: &str = "tokenizer.ggml.token_type";

/// `▁`, which stands for a space in SentencePiece vocabularies.
pub(crate) const SPACE: &str = "\u{2581}";

/// Longest token, in bytes, that text is matched against. Real vocabularies stay far below; the limit keeps the cost
/// of building and searching proportional to the size of the file.
pub(crate) const MAX_TOKEN: usize = 512;

/// Most tokens, and most merges: four times what the largest vocabularies have. Tables take some 200 bytes for each.
pub(crate) const MAX_ENTRIES: usize = 1 << 20;

/// Texts that end a generation wherever they are tokens of control.
const END_TEXTS: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|eot|>",
    "<|endofturn|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|ifm|im_end|>",
    "<turn|>",
    "<|tool_response>",
    "<eos>",
    "<end_of_turn>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "</s>",
];

/// The algorithm a vocabulary is made for, by `tokenizer.ggml.model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VocabModel {
    /// `gpt2`: byte-level BPE with a list of merges.
    ByteLevel,
    /// `llama`: SentencePiece BPE, merges ordered by score.
    Spm,
    /// `t5`: SentencePiece Unigram.
    Unigram,
    /// `bert`: WordPiece, the longest token first.
    WordPiece,
    /// `gemma4`, and `gpt2` with some pre-tokenizers: BPE with a list of merges over characters, spaces written `▁`.
    MarkedBpe,
}

/// Pre-tokenizers of `gpt2` vocabularies that are no byte-level ones.
const MARKED: &[&str] = &["gemma4", "mmbert", "granite-embed-multi-311m", "sarvam-moe"];

impl VocabModel {
    /// The model, and the name of it in the file.
    fn from_gguf(m: &Metadata) -> Result<(VocabModel, &'static str)> {
        use VocabModel::{ByteLevel, MarkedBpe, Spm, Unigram, WordPiece};
        const MODELS: &[(&str, VocabModel)] = &[
            ("gpt2", ByteLevel),
            ("llama", Spm),
            ("t5", Unigram),
            ("bert", WordPiece),
            ("gemma4", MarkedBpe),
        ];
        let expected = "gpt2, llama, t5, bert or gemma4";
        let name = m.str(MODEL)?.ok_or(Error::Missing { key: MODEL, expected })?;
        let Some(&(name, model)) = MODELS.iter().find(|(known, _)| *known == name) else {
            let found = format!("\"{}\"", escape(name, 60));
            return Err(Error::Value { key: MODEL, expected: expected.to_owned(), found });
        };
        let marked = model == ByteLevel && m.str(PRE)?.is_some_and(|pre| MARKED.contains(&pre));
        Ok((if marked { MarkedBpe } else { model }, name))
    }

    /// Whether tokens have scores, by which they are merged or chosen.
    fn is_scored(self) -> bool {
        matches!(self, VocabModel::Spm | VocabModel::Unigram)
    }
}

/// What a token is for, by `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Normal,
    Unknown,
    /// Steers the model; never made from a person's text.
    Control,
    /// Matched in text as a whole before the model splits what remains.
    UserDefined,
    Unused,
    /// A single byte, written `<0xNN>`.
    Byte,
}

impl TokenKind {
    fn from_number(number: i32) -> TokenKind {
        match number {
            2 => TokenKind::Unknown,
            3 => TokenKind::Control,
            4 => TokenKind::UserDefined,
            5 => TokenKind::Unused,
            6 => TokenKind::Byte,
            _ => TokenKind::Normal,
        }
    }
}

/// All tokens. Ids are indices; any id may be asked for, those outside have no text and no bytes.
pub(crate) struct Vocab {
    pub(crate) model: VocabModel,
    /// The model as the file names it.
    pub(crate) model_name: &'static str,
    /// The texts one after another, as in the file.
    texts: Vec<u8>,
    /// Where each text ends.
    ends: Vec<usize>,
    kinds: Vec<TokenKind>,
    /// Empty if the file has none.
    scores: Vec<f32>,
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) sep: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) infill: Option<InfillMarks>,
    ends_generation: AHashSet<u32>,
    alphabet: Alphabet,
    pub(crate) warnings: Vec<String>,
}

impl Vocab {
    /// Reads and checks the tokens.
    pub(crate) fn from_gguf(m: &Metadata) -> Result<Vocab> {
        let (model, model_name) = VocabModel::from_gguf(m)?;
        let tokens =
            m.strings(TOKENS)?.ok_or(Error::Missing { key: TOKENS, expected: "the vocabulary" })?;
        let n = tokens.len();
        if n == 0 || n > MAX_ENTRIES {
            let expected = format!("1 to {MAX_ENTRIES} tokens");
            return Err(Error::Value { key: TOKENS, expected, found: n.to_string() });
        }
        let (mut texts, mut ends) = (Vec::new(), Vec::with_capacity(n));
        for text in tokens {
            texts.extend_from_slice(text);
            ends.push(texts.len());
        }
        let kinds = match m.i32s(TOKEN_TYPE)? {
            Some(types) => {
                same_length(TOKEN_TYPE, types, n)?.into_iter().map(TokenKind::from_number).collect()
            }
            None => vec![TokenKind::Normal; n],
        };
        let scores = match m.f32s(SCORES)? {
            Some(scores) => same_length(SCORES, scores, n)?,
            None if !model.is_scored() => Vec::new(),
            None => return Err(Error::Missing { key: SCORES, expected: "one score per token" }),
        };
        let mut vocab = Vocab {
            model,
            model_name,
            texts,
            ends,
            kinds,
            scores,
            bos: None,
            eos: None,
            sep: None,
            unknown: None,
            infill: None,
            ends_generation: AHashSet::new(),
            alphabet: Alphabet::new(),
            warnings: Vec::new(),
        };
        vocab.assign_roles(m)?;
        Ok(vocab)
    }

    /// Finds the tokens with a role: begin, end, unknown; and the control tokens that a file did not mark as such.
    fn assign_roles(&mut self, m: &Metadata) -> Result<()> {
        self.bos = self.id(m, "tokenizer.ggml.bos_token_id")?;
        self.eos = self.id(m, "tokenizer.ggml.eos_token_id")?;
        self.unknown = self.id(m, "tokenizer.ggml.unknown_token_id")?;
        let eot = self.id(m, "tokenizer.ggml.eot_token_id")?;
        let eom = self.id(m, "tokenizer.ggml.eom_token_id")?;
        // The first key is as files have it.
        self.sep = self.id(m, "tokenizer.ggml.seperator_token_id")?;
        if self.sep.is_none() {
            self.sep = self.id(m, "tokenizer.ggml.separator_token_id")?;
        }
        if self.bos.is_none() {
            self.bos = self.id(m, "tokenizer.ggml.cls_token_id")?;
        }
        if self.unknown.is_none() {
            self.unknown = self.ids().find(|&id| self.kind(id) == Some(TokenKind::Unknown));
        }
        if self.model == VocabModel::WordPiece {
            let named = ["[UNK]", "[CLS]", "[SEP]"]
                .map(|text| self.ids().find(|&id| self.text(id) == Some(text)));
            self.unknown = self.unknown.or(named[0]);
            self.bos = self.bos.or(named[1]);
            self.sep = self.sep.or(named[2]);
        }
        for id in [self.bos, self.eos, self.sep, eot, eom].into_iter().flatten() {
            if self.text(id).is_some_and(|t| is_bracketed(t, "<", ">") || is_bracketed(t, "[", "]"))
            {
                self.kinds[id as usize] = TokenKind::Control;
            }
        }
        self.ends_generation.extend([self.eos, eot, eom].into_iter().flatten());
        let (mut ends, mut named) = (Vec::new(), Vec::new());
        for id in self.ids() {
            let Some(text) = self.text(id).filter(|t| END_TEXTS.contains(t)) else { continue };
            named.push((id, text.to_owned()));
            if self.kind(id) == Some(TokenKind::Control)
                || is_unmistakable(text)
                || text.starts_with("<end_of_")
            {
                ends.push(id);
            }
        }
        for &id in &ends {
            self.kinds[id as usize] = TokenKind::Control;
        }
        self.ends_generation.extend(ends);
        // Where `<|return|>` and `<|call|>`, or others such, end a turn, `<|end|>` only ends one of its messages.
        let has = |text| named.iter().any(|(_, t)| t == text);
        let both = |first, second| has(first) && has(second);
        if both("<|return|>", "<|call|>") || both("<|calls|>", "<|flush|>") {
            for (id, _) in named.iter().filter(|(_, t)| t == "<|end|>") {
                self.ends_generation.remove(id);
            }
        }
        self.assign_infill(m)?;
        self.settle_unknown();
        Ok(())
    }

    /// Finds the marks of texts with a hole. Those that no text would have count as control tokens, whatever the file says, and
    /// what begins another file or repository ends a generation.
    fn assign_infill(&mut self, m: &Metadata) -> Result<()> {
        let FoundMarks { marks, others } = FoundMarks::new(m, self)?;
        self.infill = marks;
        let three = marks.iter().flat_map(|marks| [marks.prefix, marks.suffix, marks.middle]);
        for id in three.chain(others.iter().copied()) {
            if self.text(id).is_some_and(is_unmistakable) {
                self.kinds[id as usize] = TokenKind::Control;
            }
        }
        let is_control = |id: &u32| self.kind(*id) == Some(TokenKind::Control);
        let ends: Vec<u32> = others.into_iter().filter(is_control).collect();
        self.ends_generation.extend(ends);
        Ok(())
    }

    /// Text that no token covers becomes the unknown token, so it is none of control, even where a file marks it as such;
    /// one with a role among those is no unknown token.
    fn settle_unknown(&mut self) {
        use VocabModel::{ByteLevel, MarkedBpe, Spm, Unigram, WordPiece};
        match self.model {
            Spm | Unigram | WordPiece => {}
            ByteLevel | MarkedBpe => return,
        }
        let Some(id) = self.unknown.filter(|&id| self.kind(id) == Some(TokenKind::Control)) else {
            return;
        };
        if [self.bos, self.eos, self.sep].contains(&Some(id)) || self.is_eog(id) {
            self.unknown = None;
            self.warnings.push(format!(
                "token {id} is said to be unknown text and to begin or end texts: it stands for no unknown text"
            ));
        } else {
            self.kinds[id as usize] = TokenKind::Unknown;
        }
    }

    /// A token id from the metadata; one outside the vocabulary is a warning and counts as absent.
    pub(crate) fn id(&mut self, m: &Metadata, key: &str) -> Result<Option<u32>> {
        let Some(value) = m.get(key) else { return Ok(None) };
        // Some writers store -1 for "none".
        if value.as_integer().is_some_and(|i| i < 0) {
            return Ok(None);
        }
        let Some(id) = m.u64(key)? else { return Ok(None) };
        match u32::try_from(id) {
            Ok(id) if (id as usize) < self.len() => Ok(Some(id)),
            _ => {
                let n = self.len();
                self.warnings.push(format!(
                    "metadata key `{key}`: token {id} is outside the vocabulary of {n}: ignored"
                ));
                Ok(None)
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All ids in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> + use<> {
        (0_u32..).take(self.len())
    }

    /// The text as in the file, perhaps not UTF-8.
    pub(crate) fn raw(&self, id: u32) -> Option<&[u8]> {
        let end = *self.ends.get(id as usize)?;
        let start = (id as usize).checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.texts[start..end])
    }

    /// The text as in the file, if it is UTF-8.
    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        std::str::from_utf8(self.raw(id)?).ok()
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Its score; NaN counts as the least.
    pub(crate) fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().filter(|s| !s.is_nan()).unwrap_or(f32::NEG_INFINITY)
    }

    pub(crate) fn is_eog(&self, id: u32) -> bool {
        self.ends_generation.contains(&id)
    }

    /// Texts that can be found in a prompt: not empty, UTF-8, of bounded length.
    pub(crate) fn matchable(&self, id: u32) -> Option<&str> {
        self.text(id).filter(|text| !text.is_empty() && text.len() <= MAX_TOKEN)
    }

    /// The tokens the model itself may make out of text, with their texts.
    pub(crate) fn made_of_text(&self) -> impl Iterator<Item = (u32, &str)> {
        self.ids().filter_map(|id| match self.kind(id)? {
            TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => {
                Some((id, self.matchable(id)?))
            }
            TokenKind::Unknown | TokenKind::Control | TokenKind::Byte => None,
        })
    }

    /// The byte a token `<0xNN>` stands for.
    pub(crate) fn byte(&self, id: u32) -> Option<u8> {
        let hex = self.text(id)?.strip_prefix("<0x")?.strip_suffix('>')?;
        let two_digits = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        if two_digits { u8::from_str_radix(hex, 16).ok() } else { None }
    }

    /// The token of each byte: marked as such or, if the file marks none, recognized by its text. The first wins.
    pub(crate) fn byte_tokens(&self) -> [Option<u32>; 256] {
        let marked = self.kinds.contains(&TokenKind::Byte);
        let mut tokens = [None; 256];
        for id in self.ids().filter(|&id| !marked || self.kind(id) == Some(TokenKind::Byte)) {
            if let Some(byte) = self.byte(id) {
                tokens[usize::from(byte)].get_or_insert(id);
            }
        }
        tokens
    }

    /// Appends what a token adds to the output: raw bytes, perhaps part of a character; nothing for control tokens.
    pub(crate) fn push_bytes(&self, id: u32, out: &mut Vec<u8>) {
        let (Some(raw), Some(kind)) = (self.raw(id), self.kind(id)) else { return };
        match (kind, self.model) {
            (TokenKind::Control | TokenKind::Unknown, _) => {}
            (TokenKind::UserDefined, _) => out.extend_from_slice(raw),
            (TokenKind::Byte, _) => match self.byte(id) {
                Some(byte) => out.push(byte),
                None => out.extend_from_slice(raw),
            },
            (_, VocabModel::ByteLevel) => self.alphabet.decode(raw, out),
            _ => match std::str::from_utf8(raw) {
                Ok(text) => out.extend_from_slice(text.replace(SPACE, " ").as_bytes()),
                Err(_) => out.extend_from_slice(raw),
            },
        }
    }
}

fn same_length<T>(key: &'static str, values: Vec<T>, n: usize) -> Result<Vec<T>> {
    if values.len() == n {
        return Ok(values);
    }
    Err(Error::Value {
        key,
        expected: format!("{n} entries, one per token"),
        found: values.len().to_string(),
    })
}

fn is_bracketed(text: &str, open: &str, close: &str) -> bool {
    text.len() > open.len() + close.len() && text.starts_with(open) && text.ends_with(close)
}

/// Whether this is how control tokens look, and no text.
fn is_unmistakable(text: &str) -> bool {
    is_bracketed(text, "<|", "|>") || is_bracketed(text, "<｜", "｜>")
}
