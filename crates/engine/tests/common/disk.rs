//! A disk for the toy: it keeps tokens by name, and does with them what a test wants.

use std::collections::BTreeMap;
use std::time::Duration;

use program::{
    CacheOptions, Error, KeptNow, KeptPart, KeptSession, KeptSessions, Result, SessionId,
};

use super::Toy;

/// What is on it.
#[derive(Clone, Default)]
pub(crate) struct ToyDisk {
    /// Tokens and note, by name.
    pub(crate) kept: BTreeMap<String, (Vec<u32>, Vec<u8>)>,
    /// The order in which they were used.
    pub(crate) used: Vec<String>,
    /// Seconds that a token takes to read.
    pub(crate) seconds_each: f64,
    /// Sessions that have room.
    pub(crate) room: Option<usize>,
    /// Why all are of no use, if they are not.
    pub(crate) differs: Option<String>,
    /// Reading fails, for good.
    pub(crate) is_damaged: bool,
    /// Reading fails for now.
    pub(crate) is_out_of_reach: bool,
    /// How many tokens can be had back, if not all.
    pub(crate) reached: Option<usize>,
}

impl ToyDisk {
    fn touch(&mut self, name: &str) {
        self.used.retain(|known| known != name);
        self.used.push(name.to_owned());
    }

    fn find(&self, name: &str) -> Result<&(Vec<u32>, Vec<u8>)> {
        let none = || Error::Disk { problem: format!("{name}: not there"), is_damage: true };
        if self.is_out_of_reach {
            return Err(Error::disk("too many open files"));
        }
        self.kept.get(name).ok_or_else(none)
    }
}

pub(super) struct OnDisk<'a>(pub(super) &'a Toy);

impl OnDisk<'_> {
    fn with<T>(&self, work: impl FnOnce(&mut ToyDisk) -> T) -> T {
        work(self.0.state.lock().unwrap().disk.as_mut().expect("it has one"))
    }
}

impl KeptSessions for OnDisk<'_> {
    fn names(&self) -> Vec<String> {
        self.with(|disk| disk.used.clone())
    }

    fn about(&self, name: &str, _: &CacheOptions) -> Result<KeptSession> {
        self.with(|disk| {
            let (tokens, note) = disk.find(name)?.clone();
            let differs = disk.differs.clone();
            Ok(KeptSession { bytes: tokens.len() as u64, tokens, note, differs })
        })
    }

    fn part(&self, name: &str, _: &CacheOptions, len: usize) -> Result<KeptPart> {
        self.with(|disk| {
            let positions = disk.find(name)?.0.len().min(len);
            let time = Duration::from_secs_f64(disk.seconds_each * positions as f64);
            Ok(KeptPart { positions, bytes: positions as u64, time })
        })
    }

    fn keep(&self, name: &str, id: SessionId, note: &[u8]) -> Result<KeptNow> {
        let tokens = self.0.state.lock().unwrap().sessions[&id.0].0.clone();
        self.with(|disk| {
            let mut now = KeptNow { positions: tokens.len(), ..KeptNow::default() };
            disk.kept.insert(name.to_owned(), (tokens, note.to_vec()));
            disk.touch(name);
            while disk.room.is_some_and(|room| disk.kept.len() > room) {
                let oldest = disk.used.remove(0);
                disk.kept.remove(&oldest);
                now.let_go += 1;
            }
            Ok(now)
        })
    }

    fn restore(
        &self,
        name: &str,
        id: SessionId,
        tokens: &[u32],
        go_on: &dyn Fn() -> bool,
    ) -> Result<KeptPart> {
        if !go_on() {
            return Err(Error::Cancelled);
        }
        let found = self.with(|disk| {
            disk.touch(name);
            match disk.is_damaged {
                true => Err(Error::Disk { problem: format!("{name}: checksum"), is_damage: true }),
                false => {
                    let tokens = &disk.find(name)?.0;
                    Ok(tokens[..disk.reached.unwrap_or(tokens.len())].to_vec())
                }
            }
        });
        let found = found?;
        let same = found.iter().zip(tokens).take_while(|(held, wanted)| held == wanted);
        let positions = same.count();
        let mut state = self.0.state.lock().unwrap();
        state.sessions.get_mut(&id.0).expect("it is open").0 = tokens[..positions].to_vec();
        Ok(KeptPart { positions, ..KeptPart::default() })
    }

    fn discard(&self, name: &str) -> Result<()> {
        self.with(|disk| {
            disk.find(name)?;
            disk.kept.remove(name);
            disk.used.retain(|known| known != name);
            Ok(())
        })
    }
}
