//! What is dear to make and asked for again: kept by what it was made of, the latest of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;

/// Things of one kind, by what they were made of. Nobody waits while one is made: two may make the same one.
pub(super) struct Kept<K, V> {
    /// The one that was asked for last stands last.
    all: Mutex<VecDeque<(K, Arc<V>)>>,
    most: usize,
}

impl<K: PartialEq, V> Kept<K, V> {
    /// Nothing, of at most so many.
    pub(super) fn new(most: usize) -> Kept<K, V> {
        Kept { all: Mutex::default(), most }
    }

    /// What was made of `key`, or is made now.
    ///
    /// # Errors
    /// Those of `make`; they are not kept.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        if let Some(value) = self.find(&key) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        let mut all = self.lock();
        if all.len() >= self.most {
            all.pop_front();
        }
        all.push_back((key, Arc::clone(&value)));
        Ok(value)
    }

    fn find(&self, key: &K) -> Option<Arc<V>> {
        let mut all = self.lock();
        let at = all.iter().position(|(known, _)| known == key)?;
        let found = all.remove(at)?;
        let value = Arc::clone(&found.1);
        all.push_back(found);
        Some(value)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(K, Arc<V>)>> {
        // a list is whole whatever happened beside it
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ApiError;

    #[test]
    fn the_latest_are_kept_and_made_once() {
        let kept = Kept::new(2);
        let mut made = Vec::new();
        for key in ["a", "b", "a", "c", "a", "b"] {
            let value = kept.get(key, || {
                made.push(key);
                Ok(key.to_owned())
            });
            assert_eq!(*value.unwrap(), key);
        }
        assert_eq!(made, ["a", "b", "c", "b"], "a was asked for again before c came");
        let failed = |_| kept.get("x", || Err(ApiError::invalid("no"))).unwrap_err().message;
        assert_eq!([0, 1].map(failed), ["no", "no"]);
        assert_eq!(*kept.get("x", || Ok("yes".into())).unwrap(), "yes");
    }
}
