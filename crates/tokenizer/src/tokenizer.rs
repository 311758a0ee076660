//! The tokenizer of a model: text to ids and ids to bytes.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use gguf::{Metadata, escape};

use crate::Result;
use crate::byte_level::ByteLevel;
use crate::infill::InfillMarks;
use crate::loss::{LossCollector, LostBytes};
use crate::special::{Matcher, Piece};
use crate::spm::{Spm, with_marked_spaces};
use crate::template::Controls;
use crate::unigram::Unigram;
use crate::vocab::{PRE, TokenKind, Vocab, VocabModel};
use crate::wordpiece::WordPiece;

/// A piece of a prompt and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Whether control tokens written in the text count as such. Only a template's own text may say so.
    pub special: bool,
}

/// Text to token ids and back, for one vocabulary. Shared between threads.
pub struct Tokenizer {
    vocab: Vocab,
    algorithm: Algorithm,
    /// Tokens found whole in any text.
    user_defined: Matcher,
    /// Tokens found whole in text that may hold control tokens.
    special: Matcher,
    pre: Option<String>,
    adds_bos: bool,
    adds_eos: bool,
    adds_sep: bool,
    adds_space: bool,
    /// What its chat templates look for, once there was one.
    template_controls: OnceLock<Arc<Controls>>,
}

enum Algorithm {
    ByteLevel(Box<ByteLevel>),
    Spm(Box<Spm>),
    Unigram(Box<Unigram>),
    WordPiece(Box<WordPiece>),
    MarkedBpe(Box<Spm>),
}

impl Tokenizer {
    /// Builds the tokenizer from a file's metadata. What is odd but survivable is told by [`Tokenizer::warnings`].
    ///
    /// # Errors
    /// A key of the vocabulary is missing, of the wrong type or of impossible value; the message names it.
    pub fn from_gguf(m: &Metadata) -> Result<Tokenizer> {
        let mut vocab = Vocab::from_gguf(m)?;
        let algorithm = match vocab.model {
            VocabModel::ByteLevel => Algorithm::ByteLevel(Box::new(ByteLevel::new(m, &mut vocab)?)),
            VocabModel::Spm => Algorithm::Spm(Box::new(Spm::new(&vocab)?)),
            VocabModel::Unigram => Algorithm::Unigram(Box::new(Unigram::new(m, &mut vocab)?)),
            VocabModel::MarkedBpe => {
                Algorithm::MarkedBpe(Box::new(Spm::with_merges(m, &mut vocab)?))
            }
            VocabModel::WordPiece => Algorithm::WordPiece(Box::new(WordPiece::new(m, &vocab)?)),
        };
        let user_defined = Matcher::new(&vocab, &[TokenKind::UserDefined])?;
        let special = Matcher::new(
            &vocab,
            &[TokenKind::UserDefined, TokenKind::Control, TokenKind::Unknown],
        )?;
        let pre = m.str(PRE)?;
        // Some files of Gemma 4 say that it adds none.
        let is_gemma4 = vocab.model_name == "gemma4" || pre == Some("gemma4");
        let pre_adds_bos = is_gemma4 || pre == Some("granite-embed-multi-311m");
        let adds_bos_by_default = match &algorithm {
            Algorithm::ByteLevel(byte_level) => byte_level.adds_bos,
            Algorithm::Spm(_) | Algorithm::WordPiece(_) => true,
            Algorithm::MarkedBpe(_) => pre_adds_bos,
            Algorithm::Unigram(_) => false,
        };
        let adds_bos = m.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos_by_default);
        let adds_bos = (adds_bos || is_gemma4) && vocab.bos.is_some();
        let says = |key, default| Ok::<_, gguf::Error>(m.bool(key)?.unwrap_or(default));
        let is_unigram = vocab.model == VocabModel::Unigram;
        let adds_eos = says("tokenizer.ggml.add_eos_token", is_unigram)? && vocab.eos.is_some();
        let is_wordpiece = vocab.model == VocabModel::WordPiece;
        let adds_sep = says("tokenizer.ggml.add_sep_token", is_wordpiece)? && vocab.sep.is_some();
        let adds_space = match vocab.model {
            VocabModel::ByteLevel | VocabModel::MarkedBpe => false,
            VocabModel::WordPiece => true,
            VocabModel::Spm | VocabModel::Unigram => {
                m.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true)
            }
        };
        let pre = pre.map(|name| escape(name, 60));
        Ok(Tokenizer {
            vocab,
            algorithm,
            user_defined,
            special,
            pre,
            adds_bos,
            adds_eos,
            adds_sep,
            adds_space,
            template_controls: OnceLock::new(),
        })
    }

    /// What was found wrong in the vocabulary and worked around, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.vocab.warnings
    }

    /// The tokens of a text from outside: never a control token, whatever the text says. No begin token is added.
    ///
    /// # Errors
    /// The text is longer than the algorithm can number (4 GiB).
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_pieces([(text, false)])
    }

    /// The tokens of a text in which the names of control tokens become those tokens. No begin token is added.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_special(&self, text: &str) -> Result<Vec<u32>> {
        self.encode_pieces([(text, true)])
    }

    /// Returns the bytes of a text for which the vocabulary has no token, or `None` if there are none. [`Tokenizer::encode`] drops
    /// such bytes or writes the unknown token. Always `None` for WordPiece, where words without tokens are part of the algorithm.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn lost_bytes(&self, text: &str) -> Result<Option<LostBytes>> {
        let may_lose_bytes = match &self.algorithm {
            Algorithm::ByteLevel(byte_level) => byte_level.may_lose_bytes,
            Algorithm::Spm(spm) | Algorithm::MarkedBpe(spm) => spm.may_lose_bytes,
            Algorithm::Unigram(_) => true,
            Algorithm::WordPiece(_) => false,
        };
        if !may_lose_bytes {
            return Ok(None);
        }
        let mut loss = LossCollector::default();
        let mut result = Ok(());
        self.user_defined.cut(text, |part| {
            if let (Piece::Text(part), Ok(())) = (part, &result) {
                result = match &self.algorithm {
                    Algorithm::ByteLevel(byte_level) => byte_level.find_loss(part, &mut loss),
                    Algorithm::Spm(spm) | Algorithm::MarkedBpe(spm) => {
                        spm.find_loss(part, &mut loss)
                    }
                    Algorithm::Unigram(unigram) => unigram.find_loss(part, &mut loss),
                    Algorithm::WordPiece(_) => Ok(()),
                };
            }
        });
        result.map(|()| loss.finish())
    }

    /// Bytes of memory that encoding takes for each byte of a text, at most: its normalized form, symbols and their merges, tokens.
    pub fn memory_per_byte(&self) -> u64 {
        match &self.algorithm {
            // words are encoded one by one
            Algorithm::ByteLevel(_) | Algorithm::WordPiece(_) => 16,
            // the text is encoded as a whole
            Algorithm::Spm(_) | Algorithm::MarkedBpe(_) | Algorithm::Unigram(_) => 48,
        }
    }

    /// The tokens of a text that is continued as it is: its special tokens count, and the token that every text of this
    /// vocabulary begins with comes first.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.encode_special(text)?;
        if let Some(bos) = self.bos().filter(|bos| self.adds_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The tokens of a prompt made of spans: its text is split into words as one text, while only special spans
    /// yield control tokens. No begin token is added.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_spans(&self, spans: &[Span]) -> Result<Vec<u32>> {
        self.encode_pieces(spans.iter().map(|s| (s.text.as_str(), s.special)))
    }

    /// A text from outside as a whole, between the tokens that the file wants before and behind it: what embedding
    /// models read. `[CLS] text [SEP]` with a `bert` vocabulary.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_whole(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids: Vec<u32> = self.bos().filter(|_| self.adds_bos).into_iter().collect();
        ids.extend(self.encode(text)?);
        ids.extend(self.end());
        Ok(ids)
    }

    /// Two texts from outside as one whole, between the tokens that the file wants before, between and behind them:
    /// what reranking models read. `[CLS] first [SEP] second [SEP]` with a `bert` vocabulary.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Vec<u32>> {
        self.end_pair(self.begin_pair(first)?, second)
    }

    /// The beginning of [`encode_pair`](Self::encode_pair), up to the second text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn begin_pair(&self, first: &str) -> Result<Vec<u32>> {
        let mut ids = self.encode_whole(first)?;
        // Where a text ends with the end token, the separator comes on top of it.
        ids.extend(self.sep().filter(|_| self.adds_eos && self.adds_sep));
        Ok(ids)
    }

    /// The pair of which `ids` are the beginning, by [`begin_pair`](Self::begin_pair).
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn end_pair(&self, mut ids: Vec<u32>, second: &str) -> Result<Vec<u32>> {
        ids.extend(self.encode(second)?);
        ids.extend(self.end());
        Ok(ids)
    }

    /// The token that the file wants behind a whole text.
    pub fn end(&self) -> Option<u32> {
        let sep = self.sep().filter(|_| self.adds_sep);
        self.eos().filter(|_| self.adds_eos).or(sep)
    }

    fn encode_pieces<'t>(
        &self,
        pieces: impl IntoIterator<Item = (&'t str, bool)>,
    ) -> Result<Vec<u32>> {
        let mut out = Vec::new();
        // Text since the last whole token: one slice as long as it can be.
        let mut text = Cow::Borrowed("");
        let mut starts = true;
        for (piece, special) in pieces {
            let matcher = if special { &self.special } else { &self.user_defined };
            let mut result = Ok(());
            matcher.cut(piece, |part| match part {
                Piece::Text(part) if text.is_empty() => text = Cow::Borrowed(part),
                Piece::Text(part) => text.to_mut().push_str(part),
                Piece::Token(token) => {
                    if result.is_ok() {
                        result = self.encode_text(&text, starts, &mut out);
                    }
                    (text, starts) = (Cow::Borrowed(""), true);
                    out.push(token);
                }
            });
            result?;
        }
        self.encode_text(&text, starts, &mut out)?;
        Ok(out)
    }

    /// Appends the tokens of text without whole tokens. `starts`: it stands at the start or behind a whole token.
    fn encode_text(&self, text: &str, starts: bool, out: &mut Vec<u32>) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let prefix = self.adds_space && starts;
        match &self.algorithm {
            Algorithm::ByteLevel(byte_level) => byte_level.encode(text, out),
            Algorithm::Spm(spm) => spm.encode(&with_marked_spaces(text, prefix), out),
            Algorithm::MarkedBpe(bpe) => bpe.encode_lines(&with_marked_spaces(text, false), out),
            Algorithm::Unigram(unigram) => unigram.encode(text, prefix, out),
            Algorithm::WordPiece(wordpiece) => {
                wordpiece.encode(text, out);
                Ok(())
            }
        }
    }

    /// What a token adds to the output: raw bytes, perhaps part of a character; nothing for control tokens and for ids
    /// outside the vocabulary.
    pub fn bytes(&self, token: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.vocab.push_bytes(token, &mut bytes);
        bytes
    }

    /// Whether a token steers the model and is no text.
    pub fn is_control(&self, token: u32) -> bool {
        self.vocab.kind(token) == Some(TokenKind::Control)
    }

    /// A token as written in the vocabulary; `None` for ids outside it and texts that are not UTF-8.
    pub fn token_text(&self, token: u32) -> Option<&str> {
        self.vocab.text(token)
    }

    /// Whether a token ends a generation: the tokens the file names for it and control tokens known for it.
    pub fn is_eog(&self, token: u32) -> bool {
        self.vocab.is_eog(token)
    }

    /// The token a prompt begins with, if the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// The token that ends a text, if the vocabulary has one.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// The token that stands between two texts, if the vocabulary has one.
    pub fn sep(&self) -> Option<u32> {
        self.vocab.sep
    }

    /// The marks of texts with a hole, if the model was taught to fill such.
    pub fn infill(&self) -> Option<InfillMarks> {
        self.vocab.infill
    }

    /// Whether a prompt should begin with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.adds_bos
    }

    /// Whether a text is encoded with a space before it, which decoding it as a whole drops again.
    pub fn adds_space(&self) -> bool {
        self.adds_space
    }

    /// Number of tokens.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The kind of vocabulary, as in `tokenizer.ggml.model`: `gpt2`, `llama`, `t5`, `bert` or `gemma4`.
    pub fn kind(&self) -> &str {
        self.vocab.model_name
    }

    /// The pre-tokenizer, as in `tokenizer.ggml.pre`, fit to print.
    pub fn pre(&self) -> Option<&str> {
        self.pre.as_deref()
    }

    /// What chat templates look for: made once for all templates of this vocabulary.
    ///
    /// # Errors
    /// [`crate::Error::Vocabulary`]: control tokens name roles in more ways than a template is searched for.
    pub(crate) fn template_controls(&self) -> Result<Arc<Controls>> {
        if let Some(controls) = self.template_controls.get() {
            return Ok(Arc::clone(controls));
        }
        let controls = Arc::new(Controls::new(self)?);
        Ok(Arc::clone(self.template_controls.get_or_init(|| controls)))
    }

    /// Tokens that text from outside never becomes, and their texts.
    pub fn controls(&self) -> impl Iterator<Item = (u32, &str)> {
        let control = |id: &u32| {
            matches!(self.vocab.kind(*id), Some(TokenKind::Control | TokenKind::Unknown))
        };
        self.vocab.ids().filter(control).filter_map(|id| Some((id, self.vocab.matchable(id)?)))
    }
}
