//! What runs find on disk: the beginnings of their texts, kept by a model that is gone by then.

use std::sync::Arc;

use program::{Error, KeptPlace, KeptSessions, Model};

use super::{Subject, VerifyRun};
use crate::{Result, Session};

/// Under which name a text's beginning is kept.
fn name(chunk: usize, together: usize, mate: usize) -> String {
    format!("verify-{chunk}-{together}-{mate}")
}

fn place(model: &dyn Model) -> Result<Box<dyn KeptSessions + '_>> {
    let none = || Error::Unsupported("keeping sessions on disk".into());
    Ok(model.kept(KeptPlace::Conversations).ok_or_else(none)?)
}

impl Subject<'_> {
    /// Tokens of a prompt that come from disk.
    fn shared(&self) -> usize {
        self.matrix.prompt * 2 / 3
    }

    /// What each run will find.
    fn all(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let cuts = self.matrix.chunks.iter();
        cuts.flat_map(move |chunk| {
            let together = self.matrix.together.iter();
            together.flat_map(move |n| (0..*n).map(move |mate| (*chunk, *n, mate)))
        })
    }

    /// Keep the beginnings of all texts, of every other one with something else behind it.
    pub(super) fn keep(&self) -> Result<()> {
        let kept = place(&*self.model)?;
        for (chunk, together, mate) in self.all() {
            let prompt = self.prompt(mate as u64);
            let mut text = prompt[..self.shared()].to_vec();
            if mate.is_multiple_of(2) {
                text.extend_from_slice(&self.prompt(1000)[..8.min(self.shared())]);
            }
            let mut session = Session::new(Arc::clone(&self.model), self.cache, chunk)?;
            session.feed(&text, &Arc::default(), &mut |_| ())?;
            kept.keep(&name(chunk, together, mate), session.id(), &[])?;
        }
        Ok(())
    }

    /// A session with what there is of a text's beginning.
    pub(super) fn restored(
        &self,
        model: &Arc<dyn Model>,
        run: VerifyRun,
        mate: usize,
        prompt: &[u32],
    ) -> Result<Session> {
        let kept = place(&*self.model)?;
        let name = name(run.chunk, run.together, mate);
        let with = (Arc::clone(model), self.cache, run.chunk);
        let begins = &prompt[..self.shared()];
        Ok(Session::restored(with, (&*kept, &name), begins, &|| true)?.0)
    }

    /// Keep nothing any more.
    pub(super) fn discard(&self) -> Result<()> {
        let kept = place(&*self.model)?;
        for (chunk, together, mate) in self.all() {
            kept.discard(&name(chunk, together, mate))?;
        }
        Ok(())
    }
}
