//! [`Lent`]: what a turn works with may be somebody's, for a while, or its own.

use std::ops::{Deref, DerefMut};

/// Something lent to a turn, or given to it.
pub enum Lent<'a, T> {
    /// It goes back to its owner when the turn ends.
    Borrowed(&'a mut T),
    /// The turn hands it out when it ends.
    Owned(Box<T>),
}

impl<T> Lent<'_, T> {
    /// What was given; `None` of what was only lent.
    pub fn into_owned(self) -> Option<T> {
        match self {
            Lent::Borrowed(_) => None,
            Lent::Owned(own) => Some(*own),
        }
    }
}

impl<'a, T> From<&'a mut T> for Lent<'a, T> {
    fn from(lent: &'a mut T) -> Self {
        Lent::Borrowed(lent)
    }
}

impl<T> From<T> for Lent<'_, T> {
    fn from(given: T) -> Self {
        Lent::Owned(Box::new(given))
    }
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Lent::Borrowed(lent) => lent,
            Lent::Owned(own) => own,
        }
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match self {
            Lent::Borrowed(lent) => lent,
            Lent::Owned(own) => own,
        }
    }
}
