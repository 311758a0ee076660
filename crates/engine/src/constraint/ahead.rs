//! Masks ahead of time: a constraint lives on a thread of its own, which computes what may follow a token while the model
//! computes its logits. Who asks says which tokens have come; whatever was taken back or drafted follows from that.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Constraint, TokenMask};
use crate::alike::alike;
use crate::{Error, Result};

/// The thread, and what it was asked for.
pub(crate) struct Ahead {
    asks: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
    /// Tokens that the constraint has kept when all is answered.
    kept: Vec<u32>,
    /// These and the draft after them.
    path: Vec<u32>,
    coming: Receiver<Answer>,
    /// What must follow `kept`, if that has come.
    forced: Option<Arc<[u32]>>,
    /// What may follow `kept`, that and one more token of the draft, and so on, as far as the draft may come.
    masks: Option<Vec<Mask>>,
}

/// A mask, or why there is none.
type Mask = Result<Arc<TokenMask>, String>;

enum Ask {
    /// Take back, keep, then say what follows each token of a draft.
    Next {
        back: usize,
        keep: Vec<u32>,
        draft: Vec<u32>,
        answer: Sender<Answer>,
    },
    Fork(Sender<Box<dyn Constraint>>),
}

/// What comes of an ask, in this order: what is known soon comes soon.
enum Answer {
    Forced(Arc<[u32]>),
    Masks(Vec<Mask>),
}

impl Ahead {
    /// Let a constraint that has kept `kept` compute what follows, at once.
    ///
    /// # Errors
    /// [`Error::Constraint`] if there is no thread to be had.
    pub(crate) fn new(constraint: Box<dyn Constraint>, kept: Vec<u32>) -> Result<Ahead> {
        let (asks, asked) = channel();
        let thread = std::thread::Builder::new()
            .name("constraint".into())
            // grammars nest
            .stack_size(16 << 20)
            .spawn(move || Server { constraint, known: None, failed: None }.serve(&asked))
            .map_err(|error| Error::Constraint { problem: error.to_string() })?;
        let mut ahead = Ahead {
            asks: Some(asks),
            thread: Some(thread),
            path: kept.clone(),
            kept,
            coming: channel().1,
            forced: None,
            masks: None,
        };
        ahead.ask(0, Vec::new(), &[])?;
        Ok(ahead)
    }

    /// Begin to compute what follows `tokens`, and each token of a draft after them.
    ///
    /// # Errors
    /// If the thread has died.
    pub(crate) fn begin(&mut self, tokens: &[u32], draft: &[u32]) -> Result<()> {
        let common = alike(&self.kept, tokens);
        let back = self.kept.len() - common;
        self.kept.truncate(common);
        self.kept.extend_from_slice(&tokens[common..]);
        self.ask(back, tokens[common..].to_vec(), draft)
    }

    fn ask(&mut self, back: usize, keep: Vec<u32>, draft: &[u32]) -> Result<()> {
        let (answer, coming) = channel();
        self.path.clear();
        self.path.extend_from_slice(&self.kept);
        self.path.extend_from_slice(draft);
        (self.coming, self.forced, self.masks) = (coming, None, None);
        let ask = Ask::Next { back, keep, draft: draft.to_vec(), answer };
        self.asks.as_ref().and_then(|asks| asks.send(ask).ok()).ok_or_else(died)
    }

    /// Whether `tokens` are of a draft that was begun.
    pub(crate) fn foresees(&self, tokens: &[u32]) -> bool {
        tokens.len() > self.kept.len() && self.path.starts_with(tokens)
    }

    fn wait(&mut self) -> Result<()> {
        let answer = self.coming.recv().map_err(|_| died())?;
        self.keep(answer);
        Ok(())
    }

    fn keep(&mut self, answer: Answer) {
        match answer {
            Answer::Forced(tokens) => self.forced = Some(tokens),
            Answer::Masks(masks) => self.masks = Some(masks),
        }
    }

    /// The tokens that must follow `tokens`: waits for them, and for no mask.
    ///
    /// # Errors
    /// If the thread has died.
    pub(crate) fn forced(&mut self, tokens: &[u32]) -> Result<Arc<[u32]>> {
        if self.kept != tokens {
            self.begin(tokens, &[])?;
        }
        loop {
            if let Some(forced) = &self.forced {
                return Ok(Arc::clone(forced));
            }
            self.wait()?;
        }
    }

    /// What may follow `tokens`, if it is there within some time; whatever is wrong is told where it is waited for.
    pub(crate) fn mask_within(&mut self, tokens: &[u32], most: Duration) -> Option<Arc<TokenMask>> {
        let begun = tokens.len() >= self.kept.len() && self.path.starts_with(tokens);
        if !begun {
            self.begin(tokens, &[]).ok()?;
        }
        let until = Instant::now() + most;
        loop {
            if let Some(masks) = &self.masks {
                return masks.get(tokens.len() - self.kept.len())?.clone().ok();
            }
            let left = until.saturating_duration_since(Instant::now());
            let answer = self.coming.recv_timeout(left).ok()?;
            self.keep(answer);
        }
    }

    /// What may follow `tokens`: waits for it if it was begun, else computes it.
    ///
    /// # Errors
    /// [`Error::Constraint`] if the tokens may not come at all, or what follows cannot be computed.
    pub(crate) fn mask(&mut self, tokens: &[u32]) -> Result<Arc<TokenMask>> {
        let begun = tokens.len() >= self.kept.len() && self.path.starts_with(tokens);
        if !begun {
            self.begin(tokens, &[])?;
        }
        let place = tokens.len() - self.kept.len();
        loop {
            if let Some(masks) = &self.masks {
                // else the draft cannot come so far
                let there = masks.get(place).cloned();
                let mask = there.unwrap_or_else(|| Err("a token came that may not".to_owned()));
                return mask.map_err(|problem| Error::Constraint { problem });
            }
            self.wait()?;
        }
    }
}

impl Clone for Ahead {
    /// # Panics
    /// If the thread has died, or there is no other to be had.
    fn clone(&self) -> Ahead {
        let (answer, forked) = channel();
        let asks = self.asks.as_ref().expect("it is there until it is dropped");
        asks.send(Ask::Fork(answer)).expect("the thread lives");
        let constraint = forked.recv().expect("the thread lives");
        Ahead::new(constraint, self.kept.clone()).expect("there is another thread")
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            // it died or it ended; either way it is over
            let _ = thread.join();
        }
    }
}

fn died() -> Error {
    Error::Constraint { problem: "what computes it has failed".into() }
}

/// The side of the thread.
struct Server {
    constraint: Box<dyn Constraint>,
    /// What follows what was kept, if that was computed.
    known: Option<(Arc<[u32]>, Mask)>,
    failed: Option<String>,
}

impl Server {
    fn serve(mut self, asked: &Receiver<Ask>) {
        while let Ok(ask) = asked.recv() {
            match ask {
                Ask::Fork(answer) => {
                    let _ = answer.send(self.constraint.fork());
                }
                Ask::Next { back, keep, draft, answer } => {
                    // nobody may wait for it any more
                    let _ = self.next(back, &keep, &draft, &answer);
                }
            }
        }
    }

    fn next(
        &mut self,
        back: usize,
        keep: &[u32],
        draft: &[u32],
        answer: &Sender<Answer>,
    ) -> Result<(), SendError<Answer>> {
        if self.failed.is_none() && (back > 0 || !keep.is_empty()) {
            self.known = None;
            self.failed = self.advance(back, keep).err().map(|error| problem(&error));
        }
        if let Some(problem) = &self.failed {
            answer.send(Answer::Forced([].into()))?;
            return answer.send(Answer::Masks(vec![Err(problem.clone())]));
        }
        let (forced, mask) = match self.known.take() {
            Some(known) => {
                answer.send(Answer::Forced(Arc::clone(&known.0)))?;
                known
            }
            None => {
                let forced: Arc<[u32]> = self.constraint.forced().into();
                // also if nobody waits: what is known is kept
                let _ = answer.send(Answer::Forced(Arc::clone(&forced)));
                (forced, self.mask())
            }
        };
        let mut masks = vec![mask.clone()];
        self.known = Some((forced, mask));
        self.follow(draft, &mut masks);
        answer.send(Answer::Masks(masks))
    }

    fn advance(&mut self, back: usize, keep: &[u32]) -> Result<()> {
        if back > 0 {
            self.constraint.take_back(back)?;
        }
        keep.iter().try_for_each(|&token| self.constraint.keep(token))
    }

    /// What follows each token of a draft, up to the first that may not come.
    fn follow(&mut self, draft: &[u32], masks: &mut Vec<Mask>) {
        let mut drafted = 0;
        for &token in draft {
            let may = matches!(masks.last(), Some(Ok(mask)) if mask.has(token));
            if !may || self.constraint.keep(token).is_err() {
                break;
            }
            drafted += 1;
            masks.push(self.mask());
        }
        if drafted > 0 {
            self.failed = self.constraint.take_back(drafted).err().map(|error| problem(&error));
        }
    }

    fn mask(&mut self) -> Mask {
        match self.constraint.mask() {
            Ok(mask) if mask.is_empty() => Err("no token may come next".into()),
            Ok(mask) => Ok(Arc::new(mask)),
            Err(error) => Err(problem(&error)),
        }
    }
}

fn problem(error: &Error) -> String {
    match error {
        Error::Constraint { problem } => problem.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token `n` may be followed by `n + 1` and `n + 2`, up to 9.
    #[derive(Clone)]
    struct Rising(Vec<u32>);

    impl Constraint for Rising {
        fn mask(&mut self) -> Result<TokenMask> {
            let last = self.0.last().copied().unwrap_or(0);
            let bits = [last + 1, last + 2].into_iter().filter(|&next| next <= 9);
            Ok(TokenMask::from_bits(vec![bits.map(|bit| 1 << bit).sum()]))
        }
        fn forced(&mut self) -> Vec<u32> {
            self.0.last().filter(|&&last| last == 8).map(|_| vec![9]).unwrap_or_default()
        }
        fn keep(&mut self, token: u32) -> Result<()> {
            match self.mask()?.has(token) {
                true => self.0.push(token),
                false => return Err(Error::Constraint { problem: format!("not {token}") }),
            }
            Ok(())
        }
        fn take_back(&mut self, n: usize) -> Result<()> {
            self.0.truncate(self.0.len() - n);
            Ok(())
        }
        fn fork(&self) -> Box<dyn Constraint> {
            Box::new(self.clone())
        }
    }

    fn tokens(mask: Result<Arc<TokenMask>>) -> Vec<u32> {
        mask.unwrap().tokens().collect()
    }

    #[test]
    fn masks_follow_tokens_whatever_was_begun() {
        let mut ahead = Ahead::new(Box::new(Rising(Vec::new())), Vec::new()).unwrap();
        assert_eq!(tokens(ahead.mask(&[])), [1, 2]);
        ahead.begin(&[1], &[3, 5, 9, 9]).unwrap();
        assert_eq!(tokens(ahead.mask(&[1])), [2, 3]);
        assert_eq!(tokens(ahead.mask(&[1, 3])), [4, 5]);
        assert_eq!(tokens(ahead.mask(&[1, 3, 5])), [6, 7]);
        assert!(ahead.mask(&[1, 3, 5, 9]).is_err(), "9 may not follow 5");
        // another token than the draft's
        assert_eq!(tokens(ahead.mask(&[1, 2])), [3, 4]);
        // taken back, and on in another way
        assert_eq!(tokens(ahead.mask(&[2, 4, 6, 8])), [9]);
        assert_eq!(*ahead.forced(&[2, 4, 6, 8]).unwrap(), [9]);
        assert!(ahead.forced(&[2, 4, 6]).unwrap().is_empty());
        // what is known is not computed again, and a draft can follow
        ahead.begin(&[2, 4, 6], &[7, 8]).unwrap();
        assert_eq!(tokens(ahead.mask(&[2, 4, 6, 7])), [8, 9]);
        assert_eq!(tokens(ahead.mask(&[2, 4, 6])), [7, 8]);
        let mut other = ahead.clone();
        assert_eq!(tokens(other.mask(&[2, 4, 6])), [7, 8]);
        assert_eq!(tokens(ahead.mask(&[2, 4, 6, 8])), [9]);
    }

    #[test]
    fn what_cannot_go_on_is_an_error_and_stays_one() {
        let mut ahead = Ahead::new(Box::new(Rising(Vec::new())), Vec::new()).unwrap();
        let problem = ahead.mask(&[7]).unwrap_err().to_string();
        assert!(problem.ends_with("not 7"), "{problem}");
        assert!(ahead.mask(&[1]).is_err());
        let mut over = Ahead::new(Box::new(Rising(Vec::new())), Vec::new()).unwrap();
        let problem = over.mask(&[1, 3, 5, 7, 9]).unwrap_err().to_string();
        assert!(problem.ends_with("no token may come next"), "{problem}");
    }
}
