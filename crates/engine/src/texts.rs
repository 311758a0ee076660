//! [`TextReader`]: what a model that embeds or ranks says of texts; [`Normalization`] of vectors, [`relevance`] of scores.

use std::sync::Arc;

use program::{
    CacheOptions, HiddenRows, Model, OutputRows, Outputs, Prompt, RowRule, Sequence, SessionId,
    Step, Wanted,
};

use crate::{DEFAULT_CHUNK, Error, Result};

/// Texts that go through together at most. Each has a cache of its own, whose blocks are not small.
const TOGETHER: usize = 8;

/// Reads texts, each for itself.
pub struct TextReader {
    model: Arc<dyn Model>,
    sessions: Vec<SessionId>,
    /// Tokens a text may have.
    capacity: usize,
    rows: OutputRows,
    chunk: usize,
    /// A text must go through in one step.
    whole: bool,
}

impl TextReader {
    /// Of texts of at most `cache.capacity` tokens. `rows` of each yield something. About `chunk` tokens (0: 512) go through
    /// at once: several texts, or a part of one where the model can be fed so.
    ///
    /// # Errors
    /// If the model does not support the cache options.
    pub fn new(
        model: Arc<dyn Model>,
        cache: CacheOptions,
        rows: OutputRows,
        chunk: usize,
    ) -> Result<TextReader> {
        let rule = RowRule::Sequence { whole: true };
        let whole = model.program().nodes.iter().any(|node| node.op.facts().rows == rule);
        let chunk = if chunk == 0 { DEFAULT_CHUNK } else { chunk };
        let mut reader = TextReader {
            sessions: Vec::new(),
            capacity: cache.capacity,
            rows,
            chunk,
            whole,
            model,
        };
        for _ in 0..TOGETHER {
            reader.sessions.push(reader.model.open(&cache)?);
        }
        Ok(reader)
    }

    /// What the model says of each text: as many rows as the reader's `rows` are of it.
    /// `each` is told how many texts are done, and ends it by returning false: `None` then.
    ///
    /// # Errors
    /// A text without tokens, or with more than fit; a failure of the model.
    pub fn read(
        &mut self,
        texts: &[Vec<u32>],
        each: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Vec<HiddenRows>>> {
        for text in texts {
            let (wanted, capacity) = (text.len(), self.capacity);
            match wanted {
                0 => return Err(Error::EmptyPrompt),
                _ if wanted > capacity => return Err(Error::ContextFull { wanted, capacity }),
                _ => {}
            }
        }
        let mut said = Vec::with_capacity(texts.len());
        while said.len() < texts.len() {
            let n = self.together(&texts[said.len()..]);
            let next = &texts[said.len()..said.len() + n];
            let read = match next {
                [long] if !self.whole && long.len() > self.chunk => {
                    self.in_parts(long).map(|rows| vec![rows])
                }
                _ => self.pass(next),
            };
            // caches are empty for the next texts, also behind a failure
            for session in &self.sessions {
                self.model.truncate(*session, 0)?;
            }
            said.extend(read?);
            if !each(said.len()) {
                return Ok(None);
            }
        }
        Ok(Some(said))
    }

    /// How many of the next texts go through together: at least one.
    fn together(&self, texts: &[Vec<u32>]) -> usize {
        let mut tokens = 0;
        let fits = |text: &&Vec<u32>| {
            tokens += text.len();
            tokens <= self.chunk
        };
        texts.iter().take(TOGETHER).take_while(fits).count().max(1)
    }

    /// Texts in one step.
    fn pass(&self, texts: &[Vec<u32>]) -> Result<Vec<HiddenRows>> {
        let outputs = Outputs { rows: self.rows, what: Wanted::Hidden };
        let sequences: Vec<_> = (self.sessions.iter().zip(texts))
            .map(|(&session, tokens)| {
                let prompt = Some(Prompt { start: 0, len: tokens.len() });
                Sequence { session, tokens, outputs, prompt, rows: &[] }
            })
            .collect();
        let out = self.model.step(&Step { sequences: &sequences })?.all()?;
        Ok(out.into_iter().map(|rows| rows.into_hidden()).collect())
    }

    /// A text in several steps.
    fn in_parts(&self, text: &[u32]) -> Result<HiddenRows> {
        let (prompt, n_parts) =
            (Some(Prompt { start: 0, len: text.len() }), text.len().div_ceil(self.chunk));
        let mut said = HiddenRows::default();
        for (i, tokens) in text.chunks(self.chunk).enumerate() {
            let rows = match self.rows {
                OutputRows::First if i > 0 => OutputRows::None,
                OutputRows::Last if i + 1 < n_parts => OutputRows::None,
                rows => rows,
            };
            let outputs = Outputs { rows, what: Wanted::Hidden };
            let session = self.sessions[0];
            let part = Sequence { session, tokens, outputs, prompt, rows: &[] };
            let part = self.model.step(&Step { sequences: &[part] })?.single()?.into_hidden();
            if !part.hidden.is_empty() {
                said.hidden_size = part.hidden_size;
                said.hidden.extend(part.hidden);
            }
        }
        Ok(said)
    }
}

impl Drop for TextReader {
    fn drop(&mut self) {
        self.sessions.iter().for_each(|session| self.model.close(*session));
    }
}

/// What a vector is divided by. A vector of zeros stays one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalization {
    /// Nothing.
    None,
    /// Its greatest magnitude, times `1 / 32760`: numbers of 16 bits.
    Greatest,
    /// `(sum |x|^p)^(1/p)`: 2 for lengths of one.
    Norm(u32),
}

impl Normalization {
    /// By the numbers that llama.cpp has for it: -1, 0, and the `p` of a norm.
    pub fn numbered(n: i32) -> Option<Normalization> {
        match n {
            -1 => Some(Normalization::None),
            0 => Some(Normalization::Greatest),
            p => u32::try_from(p).ok().map(Normalization::Norm),
        }
    }

    /// Normalize a vector.
    pub fn apply(self, vector: &mut [f32]) {
        let magnitudes = || vector.iter().map(|x| f64::from(x.abs()));
        let by = match self {
            Normalization::None => return,
            Normalization::Greatest => magnitudes().fold(0.0, f64::max) / 32_760.0,
            Normalization::Norm(2) => magnitudes().map(|x| x * x).sum::<f64>().sqrt(),
            Normalization::Norm(p) => {
                // of parts of the greatest, whose powers stay within range
                let (most, p) = (magnitudes().fold(0.0, f64::max), f64::from(p));
                let part = |x: f64| if most > 0.0 { (x / most).powf(p) } else { 0.0 };
                most * magnitudes().map(part).sum::<f64>().powf(p.recip())
            }
        };
        if by > 0.0 {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) / by) as f32);
        }
    }
}

/// How well a text answers, given the scores of a classifier: its only one as it is, or the share of the first of several
/// by softmax (of "yes" beside "no").
pub fn relevance(scores: &[f32]) -> f32 {
    match scores {
        [] => 0.0,
        [only] => *only,
        [first, ..] => {
            let weight = |x: &f32| f64::from(x - first).exp();
            scores.iter().map(weight).sum::<f64>().recip() as f32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(n: i32, vector: &[f32]) -> Vec<f32> {
        let mut vector = vector.to_vec();
        Normalization::numbered(n).unwrap().apply(&mut vector);
        vector
    }

    #[test]
    fn vectors_by_hand() {
        assert_eq!(normalized(-1, &[3.0, -4.0]), [3.0, -4.0]);
        assert_eq!(normalized(0, &[2.0, -4.0]), [16_380.0, -32_760.0]);
        assert_eq!(normalized(1, &[3.0, -1.0]), [0.75, -0.25]);
        assert_eq!(normalized(2, &[3.0, -4.0]), [0.6, -0.8]);
        let cube = 91f64.cbrt() as f32;
        let found = normalized(3, &[3e20, -4e20]);
        assert!(found.iter().zip([3.0 / cube, -4.0 / cube]).all(|(a, b)| (a - b).abs() < 1e-6));
        for n in [-1, 0, 1, 2, 3] {
            assert_eq!(normalized(n, &[0.0, 0.0]), [0.0, 0.0]);
        }
        assert_eq!(Normalization::numbered(-2), None);
    }

    #[test]
    fn scores_by_hand() {
        assert_eq!(relevance(&[-3.5]), -3.5);
        assert_eq!(relevance(&[1.0, 1.0]), 0.5);
        assert!((relevance(&[2.0, 0.0]) - 1.0 / (1.0 + (-2f32).exp())).abs() < 1e-6);
        assert_eq!(relevance(&[-200.0, 200.0]), 0.0);
        assert_eq!(relevance(&[]), 0.0);
    }
}
