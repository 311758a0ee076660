//! A toy model, vocabulary and chat format whose every answer depends on the whole history of tokens.

// Each test binary uses its own part of this file.
#![allow(dead_code, reason = "shared by several test binaries")]
#![allow(clippy::unwrap_used, reason = "a test stops at its first surprise")]

mod disk;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use engine::{ChatFormat, Message, PromptOptions, Result, Session, Span, Vocabulary};
use program::{
    Among, CacheOptions, CacheType, CandidateRows, Error, KeptPlace, KeptSessions, LogitRows,
    Model, OutputKind, Program, Rows, RowsOut, Sequence, SessionId, Shape, Step, StepOut,
    StepStats, ValueId, ValueSpec, Wanted, check_among, rows_among,
};

pub(crate) use disk::ToyDisk;

pub(crate) const BOS: u32 = 256;
pub(crate) const START: u32 = 257;
pub(crate) const END: u32 = 258;
pub(crate) const THINK: u32 = 259;
pub(crate) const END_THINK: u32 = 260;
/// Spelled `he`; `encode` always uses it, the model may spell with single letters.
pub(crate) const HE: u32 = 261;
pub(crate) const VOCAB: usize = 262;

const SPECIAL: [(u32, &str); 5] = [
    (BOS, "<s>"),
    (START, "<|im_start|>"),
    (END, "<|im_end|>"),
    (THINK, "<think>"),
    (END_THINK, "</think>"),
];

/// The logits after these tokens: any change of any token changes all of them.
pub(crate) fn logits_after(tokens: &[u32]) -> Vec<f32> {
    logits_over(VOCAB, tokens)
}

pub(crate) fn logits_over(vocab: usize, tokens: &[u32]) -> Vec<f32> {
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for token in tokens {
        hash = (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    }
    (0..vocab as u64)
        .map(|i| {
            let z =
                (hash ^ i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            ((z ^ (z >> 29)) >> 40) as f32 / (1u64 << 24) as f32 * 8.0 - 4.0
        })
        .collect()
}

/// What the toy remembers.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) sessions: HashMap<u64, (Vec<u32>, usize)>,
    next: u64,
    /// The token to favour after so many tokens.
    script: HashMap<usize, u32>,
    /// Steps of more tokens than this fail.
    pub(crate) largest_step: Option<usize>,
    /// Steps of more tokens than this in all their sequences fail as a whole.
    pub(crate) widest_step: Option<usize>,
    /// Where several rows of a text have logits in one step, the lowest bit of one differs.
    pub(crate) several_rows_differ: bool,
    /// It would rather be asked for so many tokens than for all; how often it was.
    pub(crate) most_candidates: usize,
    pub(crate) asked_for_few: usize,
    /// Truncating reaches multiples of this length only, if it is given.
    pub(crate) reached: Option<usize>,
    /// Sessions share prefixes in whole blocks of this length, if it is given.
    pub(crate) shared: Option<usize>,
    /// A NaN appears after so many tokens.
    pub(crate) nan_at: Option<usize>,
    /// Where it keeps sessions, if it does.
    pub(crate) disk: Option<ToyDisk>,
    pub(crate) stats: StepStats,
}

/// A language model made of a hash function.
pub(crate) struct Toy {
    program: Arc<Program>,
    vocab: usize,
    pub(crate) state: Mutex<State>,
}

impl Toy {
    pub(crate) fn new() -> Arc<Toy> {
        Toy::with_vocab(VOCAB)
    }

    pub(crate) fn with_vocab(vocab: usize) -> Arc<Toy> {
        let shape = Shape { rows: Rows::Selected, groups: 1, dim: vocab };
        let mut program = Program::default();
        program.values.push(ValueSpec { name: "logits".into(), shape });
        program.outputs.push((OutputKind::Logits, ValueId(0)));
        Arc::new(Toy { program: Arc::new(program), vocab, state: Mutex::default() })
    }

    pub(crate) fn session(self: &Arc<Self>, capacity: usize, chunk: usize) -> Session {
        Session::new(self.clone(), cache(capacity), chunk).unwrap()
    }

    /// Make `tokens` by far the likeliest from position `at` on.
    pub(crate) fn script(&self, at: usize, tokens: &[u32]) {
        let mut state = self.state.lock().unwrap();
        state.script.extend(tokens.iter().enumerate().map(|(i, &token)| (at + i, token)));
    }

    /// Rows computed since the last call.
    pub(crate) fn take_rows(&self) -> u64 {
        std::mem::take(&mut self.state.lock().unwrap().stats.rows)
    }
}

pub(crate) fn cache(capacity: usize) -> CacheOptions {
    CacheOptions::new(CacheType::F16, CacheType::F16, capacity)
}

impl State {
    fn row(&self, vocab: usize, tokens: &[u32]) -> Vec<f32> {
        let mut row = logits_over(vocab, tokens);
        if let Some(&token) = self.script.get(&tokens.len()) {
            row[token as usize] += 50.0;
        }
        if self.nan_at == Some(tokens.len()) {
            row[3] = f32::NAN;
        }
        row
    }
}

impl Model for Toy {
    fn program(&self) -> &Arc<Program> {
        &self.program
    }

    fn open(&self, options: &CacheOptions) -> program::Result<SessionId> {
        let state = &mut *self.state.lock().unwrap();
        state.next += 1;
        state.sessions.insert(state.next, (Vec::new(), options.capacity));
        Ok(SessionId(state.next))
    }

    fn close(&self, id: SessionId) {
        self.state.lock().unwrap().sessions.remove(&id.0);
    }

    fn step(&self, step: &Step<'_>) -> program::Result<StepOut> {
        let state = &mut *self.state.lock().unwrap();
        step.check()?;
        let rows: usize = step.sequences.iter().map(|s| s.tokens.len()).sum();
        if state.widest_step.is_some_and(|most| rows > most) {
            return Err(Error::Memory { what: "a test", bytes: 2 });
        }
        let mut run = |s: &Sequence<'_>| {
            let mut logits = Vec::new();
            let (held, capacity) =
                state.sessions.get(&s.session.0).ok_or(Error::Session(s.session.0))?;
            let mut tokens = held.clone();
            assert!(tokens.len() + s.tokens.len() <= *capacity, "the session let too many through");
            if state.largest_step.is_some_and(|most| s.tokens.len() > most) {
                return Err(Error::Memory { what: "a test", bytes: 1 });
            }
            for (i, &token) in s.tokens.iter().enumerate() {
                if token as usize >= self.vocab {
                    return Err(Error::Token { token, vocab_size: self.vocab });
                }
                tokens.push(token);
                if i + s.outputs.count(s.tokens.len()) >= s.tokens.len() {
                    logits.extend(state.row(self.vocab, &tokens));
                }
            }
            if state.several_rows_differ && s.outputs.count(s.tokens.len()) > 1 {
                logits[0] = f32::from_bits(logits[0].to_bits() ^ 1);
            }
            state.stats.steps += 1;
            state.stats.rows += s.tokens.len() as u64;
            state.sessions.get_mut(&s.session.0).expect("seen above").0 = tokens;
            let LogitRows { logits, vocab_size, peaks } = LogitRows::new(logits, self.vocab);
            if let Wanted::Candidates { k } = s.outputs.what {
                state.asked_for_few += 1;
                return CandidateRows::of(&logits, vocab_size, &peaks, k).map(RowsOut::Candidates);
            }
            Ok(RowsOut::Logits(LogitRows { logits, vocab_size, peaks }))
        };
        Ok(StepOut { sequences: step.sequences.iter().map(&mut run).collect() })
    }

    fn step_among(
        &self,
        step: &Step<'_>,
        among: &[&[Among<'_>]],
        _: &(dyn Fn() -> bool + Sync),
    ) -> program::Result<StepOut> {
        check_among(&self.program, step, among)?;
        let mut whole = step.sequences.to_vec();
        for (sequence, _) in whole.iter_mut().zip(among).filter(|(_, rows)| !rows.is_empty()) {
            sequence.outputs.what = Wanted::Logits;
            self.state.lock().unwrap().asked_for_few += 1;
        }
        let out = self.step(&Step { sequences: &whole })?;
        let narrow = |((sequence, among), out): ((&Sequence<'_>, &&[Among<'_>]), _)| match sequence
            .outputs
            .what
        {
            Wanted::Candidates { k } if !among.is_empty() => {
                Ok(rows_among(&RowsOut::into_logits(out?), k, among))
            }
            _ => out,
        };
        let asked = step.sequences.iter().zip(among);
        Ok(StepOut { sequences: asked.zip(out.sequences).map(narrow).collect() })
    }

    fn most_candidates(&self) -> usize {
        self.state.lock().unwrap().most_candidates
    }

    fn len(&self, id: SessionId) -> program::Result<usize> {
        let state = self.state.lock().unwrap();
        state.sessions.get(&id.0).map(|s| s.0.len()).ok_or(Error::Session(id.0))
    }

    fn commit(&self, id: SessionId, len: usize) -> program::Result<()> {
        let held = self.len(id)?;
        if len > held { Err(Error::Length { len: held, wanted: len }) } else { Ok(()) }
    }

    fn truncate(&self, id: SessionId, len: usize) -> program::Result<usize> {
        self.commit(id, len)?;
        let state = &mut *self.state.lock().unwrap();
        let len = len - len % state.reached.unwrap_or(1);
        state.sessions.get_mut(&id.0).expect("it has a length").0.truncate(len);
        Ok(len)
    }

    fn fork(&self, id: SessionId, len: usize) -> program::Result<SessionId> {
        self.commit(id, len)?;
        let state = &mut *self.state.lock().unwrap();
        let (mut tokens, capacity) = state.sessions[&id.0].clone();
        tokens.truncate(len - len % state.reached.unwrap_or(1));
        state.next += 1;
        state.sessions.insert(state.next, (tokens, capacity));
        Ok(SessionId(state.next))
    }

    fn reuse(&self, id: SessionId, tokens: &[u32]) -> program::Result<usize> {
        let held = self.len(id)?;
        let state = &mut *self.state.lock().unwrap();
        let Some(block) = state.shared.filter(|_| tokens.starts_with(&state.sessions[&id.0].0))
        else {
            return Ok(0);
        };
        let common =
            |other: &Vec<u32>| other.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let most = state.sessions.values().map(|(other, _)| common(other) / block * block).max();
        let len = most.unwrap_or(0).max(held);
        state.sessions.get_mut(&id.0).expect("it has a length").0 = tokens[..len].to_vec();
        Ok(len - held)
    }

    fn kept(&self, _: KeptPlace) -> Option<Box<dyn KeptSessions + '_>> {
        let keeps = self.state.lock().unwrap().disk.is_some();
        keeps.then(|| Box::new(disk::OnDisk(self)) as Box<dyn KeptSessions>)
    }

    fn cache_bytes(&self, id: SessionId) -> program::Result<u64> {
        Ok(self.len(id)? as u64 * 4)
    }

    fn stats(&self) -> StepStats {
        self.state.lock().unwrap().stats
    }
}

/// Bytes as tokens, a few control tokens, and a ChatML-like template.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ToyFormat {
    /// The template trims replies.
    pub(crate) trims: bool,
    /// The template drops the thoughts of earlier replies.
    pub(crate) drops_thoughts: bool,
    /// The template opens a thought for the model.
    pub(crate) opens_thought: bool,
}

impl Vocabulary for ToyFormat {
    fn vocab_size(&self) -> usize {
        VOCAB
    }

    fn bytes(&self, token: u32) -> Cow<'_, [u8]> {
        match token {
            0..=255 => Cow::Owned(vec![token as u8]),
            HE => Cow::Borrowed(b"he"),
            _ => Cow::Borrowed(b""),
        }
    }

    fn spelling(&self, token: u32) -> Option<Cow<'_, str>> {
        let special = SPECIAL.iter().find(|(id, _)| *id == token);
        special.map(|(_, text)| Cow::Borrowed(*text))
    }

    fn is_eog(&self, token: u32) -> bool {
        token == END
    }
}

impl ChatFormat for ToyFormat {
    fn render(
        &self,
        messages: &[Message],
        _: &PromptOptions<'_>,
        _: &Arc<AtomicBool>,
    ) -> Result<Vec<Span>> {
        let mut out = vec![];
        let mut put = |text: &str, special| out.push(Span { text: text.to_owned(), special });
        for message in messages {
            put("<|im_start|>", true);
            put(&message.role, true);
            put("\n", true);
            let mut content = message.content.as_str();
            if message.role == "assistant" {
                if self.drops_thoughts {
                    content = content.rsplit("</think>").next().unwrap().trim_start();
                }
                if self.trims {
                    content = content.trim();
                }
            }
            put(content, false);
            put("<|im_end|>\n", true);
        }
        put("<|im_start|>assistant\n", true);
        if self.opens_thought {
            put("<think>\n", true);
        }
        Ok(out)
    }

    fn encode(&self, spans: &[Span], start: bool) -> Result<Vec<u32>> {
        let mut out = if start { vec![BOS] } else { vec![] };
        for span in spans {
            let mut rest = span.text.as_str();
            while !rest.is_empty() {
                let special =
                    SPECIAL.iter().find(|(_, text)| span.special && rest.starts_with(text));
                if let Some((id, text)) = special {
                    out.push(*id);
                    rest = &rest[text.len()..];
                } else if let Some(after) = rest.strip_prefix("he") {
                    out.push(HE);
                    rest = after;
                } else {
                    let n = rest.chars().next().unwrap().len_utf8();
                    out.extend(rest[..n].bytes().map(u32::from));
                    rest = &rest[n..];
                }
            }
        }
        Ok(out)
    }
}

/// Letters as tokens, one each.
pub(crate) fn spell(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}
