//! A model's tokens as a trie of their bytes.

use std::sync::Arc;

use llguidance::ParserFactory;
use llguidance::api::ParserLimits;
use tokenizer::Tokenizer;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::runs::RunTokens;
use crate::{FormChecker, GrammarError, Result};

/// What forms are compiled for: made once for a model, shared by all its replies.
#[derive(Clone)]
pub struct TokenTrie {
    pub(crate) factory: Arc<ParserFactory>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// What compiles doubtful forms first.
    pub(crate) checker: Option<Arc<FormChecker>>,
    /// Tokens that continue runs in JSON.
    pub(crate) runs: Arc<RunTokens>,
}

impl TokenTrie {
    /// The tokens of a model. Control tokens are no text, whatever their names are; those that end a reply end a form.
    ///
    /// # Errors
    /// [`GrammarError::NoEnd`].
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<TokenTrie> {
        let n_tokens = u32::try_from(tokenizer.vocab_size()).map_err(|_| GrammarError::NoEnd)?;
        let ends: Vec<TokenId> = (0..n_tokens).filter(|&id| tokenizer.is_eog(id)).collect();
        let end = *ends.first().ok_or(GrammarError::NoEnd)?;
        let words: Vec<Vec<u8>> = (0..n_tokens)
            .map(|id| match tokenizer.is_control(id) || tokenizer.is_eog(id) {
                true => Vec::new(),
                false => text_bytes(tokenizer.bytes(id)),
            })
            .collect();
        let runs = Arc::new(RunTokens::of(&words));
        let info = TokRxInfo::new(n_tokens, end);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let env: TokEnv = Arc::new(Env { trie, tokenizer: Arc::clone(&tokenizer) });
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let failed = |_| GrammarError::NoEnd;
        let mut factory =
            ParserFactory::new(&env, InferenceCapabilities::default(), &slices).map_err(failed)?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(TokenTrie { factory: Arc::new(factory), tokenizer, checker: None, runs })
    }

    /// With a process that compiles doubtful forms first: those above 4 KiB, of more than 50 estimated milliseconds, or that
    /// intersect parts. Without one they are bounded by the estimates alone.
    pub fn with_checker(self, checker: Arc<FormChecker>) -> TokenTrie {
        TokenTrie { checker: Some(checker), ..self }
    }
}

/// A part of a text in which names of control tokens stand for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextPart<'t> {
    Text(&'t str),
    Control(u32),
}

/// Cut a text at the control tokens it names: at each place the longest.
pub(crate) fn parts<'t>(tokenizer: &Tokenizer, text: &'t str) -> Vec<TextPart<'t>> {
    let names: Vec<(u32, &str)> =
        tokenizer.controls().filter(|(_, name)| !name.is_empty() && text.contains(name)).collect();
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let found = names.iter().filter_map(|(id, name)| Some((rest.find(name)?, *name, *id)));
        let first = found.min_by_key(|(at, name, _)| (*at, std::cmp::Reverse(name.len())));
        let (before, after) = match first {
            Some((at, name, _)) => (&rest[..at], &rest[at + name.len()..]),
            None => (rest, ""),
        };
        if !before.is_empty() {
            parts.push(TextPart::Text(before));
        }
        parts.extend(first.map(|(.., id)| TextPart::Control(id)));
        rest = after;
    }
    parts
}

/// Bytes that no UTF-8 text has mark control tokens in the trie: a token of such bytes is no text either.
fn text_bytes(bytes: Vec<u8>) -> Vec<u8> {
    if bytes.contains(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes }
}

/// Bounds on the work of compiling, and of one mask, as far as llguidance counts it. It counts expressions that it makes, between one
/// derivative and the next: a single derivative of an intersection may make any number. It does not count the copies of a schema
/// that intersections make, nor pairs of properties. What it does not count is bounded in `work`.
pub(crate) fn limits() -> ParserLimits {
    ParserLimits {
        // 40 ms for the automaton of words; FHIR's schema of 4 MB takes half
        initial_lexer_fuel: 1_000_000,
        // symbols have 16 bits: more would panic
        max_grammar_size: 65_000,
        // 15 ms a mask
        step_lexer_fuel: 200_000,
        // 2.5 ms a mask
        step_max_items: 50_000,
        max_items_in_row: 2_000,
        // 1 to 2 kB each
        max_lexer_states: 250_000,
        precompute_large_lexemes: true,
        // messages are one line
        verbose_errors: false,
    }
}

/// How `llguidance` sees a tokenizer.
struct Env {
    trie: TokTrie,
    tokenizer: Arc<Tokenizer>,
}

impl TokenizerEnv for Env {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        let encode = |text: &str| {
            let tokens = self.tokenizer.encode(text).unwrap_or_default();
            // some vocabularies change what they encode
            match self.trie.decode_raw(&tokens) == text.as_bytes() {
                true => tokens,
                false => self.trie.greedy_tokenize(text.as_bytes()),
            }
        };
        self.trie.tokenize_with_greedy_fallback(bytes, encode)
    }

    /// Where a space is put before each text, the middle of one cannot be encoded alone.
    fn tokenize_is_canonical(&self) -> bool {
        !self.tokenizer.adds_space()
    }
}
