//! SentencePiece Unigram (`tokenizer.ggml.model = t5`): the split with the highest sum of scores, found by the
//! `tokenizers` crate.

use gguf::Metadata;
use tokenizers::models::unigram::Unigram as Model;
use tokenizers::{Model as _, NormalizedString, Normalizer as _, Token, normalizers::NFKC};

use crate::loss::LossCollector;
use crate::vocab::{MODEL, SPACE, TOKENS, Vocab};
use crate::{Error, Result};

const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";

/// Most nodes of the tree of pieces, at some 300 bytes each; the largest vocabularies have some 800,000.
const MAX_NODES: usize = 1 << 20;

pub(crate) struct Unigram {
    model: Model,
    /// Token of each piece of `model`.
    ids: Vec<u32>,
    collapses_spaces: bool,
    normalizes: bool,
}

impl Unigram {
    pub(crate) fn new(m: &Metadata, vocab: &mut Vocab) -> Result<Unigram> {
        let unknown = vocab.unknown.ok_or_else(|| Error::Value {
            key: MODEL,
            expected: "an unknown token, which t5 vocabularies need".to_owned(),
            found: "none".to_owned(),
        })?;
        // The unknown token is piece 0 under a text that no text holds: normalization removes U+0000.
        let mut pieces = vec![("\0".to_owned(), 0.0)];
        let mut ids = vec![unknown];
        for (id, text) in vocab.made_of_text() {
            pieces.push((text.to_owned(), f64::from(vocab.score(id).clamp(-1e6, 1e6))));
            ids.push(id);
        }
        let nodes = nodes(&pieces);
        if nodes > MAX_NODES {
            let expected = format!("tokens with at most {MAX_NODES} different beginnings");
            return Err(Error::Value { key: TOKENS, expected, found: nodes.to_string() });
        }
        // The file's own table of replacements is for SentencePiece's reader alone; all known ones follow NFKC.
        let normalizes = m.get(CHARSMAP).is_some();
        let collapses_spaces = m.bool("tokenizer.ggml.remove_extra_whitespaces")?.unwrap_or(false);
        let model = Model::from(pieces, Some(0), false).map_err(Error::vocabulary)?;
        Ok(Unigram { model, ids, collapses_spaces, normalizes })
    }

    /// Appends the tokens of `text`; `prefix` puts a space in front of it.
    pub(crate) fn encode(&self, text: &str, prefix: bool, out: &mut Vec<u32>) -> Result<()> {
        for piece in self.pieces(text, prefix)? {
            out.push(self.ids.get(piece.id as usize).copied().unwrap_or(self.ids[0]));
        }
        Ok(())
    }

    /// Adds the bytes of characters that become the unknown token.
    pub(crate) fn find_loss(&self, text: &str, loss: &mut LossCollector) -> Result<()> {
        let unknown = self.pieces(text, false)?.into_iter().filter(|piece| piece.id == 0);
        unknown.for_each(|piece| piece.value.chars().for_each(|c| loss.add(c, |_| true)));
        Ok(())
    }

    /// Returns the pieces of the best split of `text`, with ids as in `model`.
    fn pieces(&self, text: &str, prefix: bool) -> Result<Vec<Token>> {
        let mut text = text.replace('\0', "");
        if self.normalizes {
            let mut normalized = NormalizedString::from(text);
            NFKC.normalize(&mut normalized).map_err(Error::encode)?;
            text = normalized.get().to_owned();
        }
        if self.collapses_spaces {
            text = text
                .split([' ', '\t', '\n', '\r'])
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join(" ");
        }
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let marked = crate::spm::with_marked_spaces(&text, prefix && !text.starts_with(SPACE));
        self.model.tokenize(&marked).map_err(Error::encode)
    }
}

/// How many nodes a tree of all pieces has: every beginning of a piece is one.
pub fn nodes(pieces: &[(String, f64)]) -> usize {
    let mut texts: Vec<&[u8]> = pieces.iter().map(|(text, _)| text.as_bytes()).collect();
    texts.sort_unstable();
    let common = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let first = texts.first().map_or(0, |text| text.len());
    first + texts.array_windows().map(|[a, b]| b.len() - common(a, b)).sum::<usize>()
}
