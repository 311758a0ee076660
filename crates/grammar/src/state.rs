//! Where a reply is in its form.

use std::sync::Arc;

use engine::{Constraint, Error, TokenMask};
use llguidance::Matcher;
use tokenizer::Tokenizer;

use crate::error::first_line;
use crate::runs::{Run, RunTokens};
use crate::vocabulary::{TextPart, parts};

/// A form, and the tokens that have come.
pub(crate) struct FormState {
    matcher: Matcher,
    tokenizer: Arc<Tokenizer>,
    /// Tokens that ended the reply where nothing else could follow: the matcher takes none then.
    ends: usize,
    /// `None` unless the form is JSON.
    runs: Option<Runs>,
}

/// State of runs of digits and spaces in a JSON reply.
#[derive(Clone)]
struct Runs {
    /// Tokens that continue runs.
    tokens: Arc<RunTokens>,
    /// State before each token.
    before: Vec<Run>,
    /// State after the last token.
    run: Run,
}

impl FormState {
    pub(crate) fn new(
        matcher: Matcher,
        tokenizer: Arc<Tokenizer>,
        runs: Option<Arc<RunTokens>>,
    ) -> FormState {
        let runs = runs.map(|tokens| Runs { tokens, before: Vec::new(), run: Run::default() });
        FormState { matcher, tokenizer, ends: 0, runs }
    }
}

impl Constraint for FormState {
    fn mask(&mut self) -> engine::Result<TokenMask> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|error| failed(&error))?;
        let mut bits = mask.as_slice().to_vec();
        if let Some(runs) = &self.runs {
            runs.run.narrow(&mut bits, &runs.tokens);
        }
        Ok(TokenMask::from_bits(bits))
    }

    fn forced(&mut self) -> Vec<u32> {
        if self.matcher.is_stopped() { Vec::new() } else { self.matcher.compute_ff_tokens() }
    }

    fn keep(&mut self, token: u32) -> engine::Result<()> {
        if self.matcher.is_stopped() && self.mask()?.has(token) {
            self.ends += 1;
            return Ok(());
        }
        self.matcher.consume_token(token).map_err(|error| failed(&error))?;
        if let Some(runs) = &mut self.runs {
            runs.before.push(runs.run);
            runs.run = runs.run.after(&self.tokenizer.bytes(token));
        }
        Ok(())
    }

    fn take_back(&mut self, n: usize) -> engine::Result<()> {
        let ends = self.ends.min(n);
        self.ends -= ends;
        if let Some(runs) = &mut self.runs {
            let kept = runs.before.len().saturating_sub(n - ends);
            if let Some(run) = runs.before.get(kept) {
                runs.run = *run;
                runs.before.truncate(kept);
            }
        }
        self.matcher.rollback(n - ends).map_err(|error| failed(&error))
    }

    fn fork(&self) -> Box<dyn Constraint> {
        let tokenizer = Arc::clone(&self.tokenizer);
        Box::new(FormState {
            matcher: self.matcher.deep_clone(),
            tokenizer,
            ends: self.ends,
            runs: self.runs.clone(),
        })
    }

    fn take_text(&mut self, text: &str) -> engine::Result<()> {
        let env = self.matcher.tok_env().map_err(|error| failed(&error))?;
        let mut tokens = Vec::new();
        for part in parts(&self.tokenizer, text) {
            match part {
                // in whichever tokens: the form is one of bytes
                TextPart::Text(text) => {
                    tokens.extend(env.tok_trie().greedy_tokenize(text.as_bytes()))
                }
                TextPart::Control(id) => tokens.push(id),
            }
        }
        if let Some(runs) = &mut self.runs {
            runs.run = runs.run.after(text.as_bytes());
        }
        self.matcher.consume_tokens(&tokens).map_err(|error| failed(&error))
    }
}

fn failed(error: &anyhow::Error) -> Error {
    Error::Constraint { problem: first_line(&error.to_string()) }
}
