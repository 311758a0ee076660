//! [`EitherForm`]: constrains a reply to one of several forms.

use super::{Constraint, TokenMask};
use crate::{Error, Result};

/// Constraint that accepts a text in any one of several forms. The tokens of the text decide which form it has.
pub struct EitherForm {
    forms: Vec<OneForm>,
    /// Number of tokens accepted so far.
    len: usize,
}

/// One of the forms, with its state.
struct OneForm {
    constraint: Box<dyn Constraint>,
    /// Tokens allowed next; `None` until they are computed.
    mask: Option<TokenMask>,
    /// Number of tokens after which the form rejected the next one; `None` while the form still matches.
    left: Option<usize>,
}

impl OneForm {
    fn mask(&mut self) -> Result<&TokenMask> {
        if self.mask.is_none() {
            self.mask = Some(self.constraint.mask()?);
        }
        Ok(self.mask.get_or_insert_default())
    }
}

impl EitherForm {
    /// Creates the constraint from these forms, which have received no tokens yet.
    pub fn new(forms: Vec<Box<dyn Constraint>>) -> EitherForm {
        let one = |constraint| OneForm { constraint, mask: None, left: None };
        EitherForm { forms: forms.into_iter().map(one).collect(), len: 0 }
    }

    fn open(&mut self) -> impl Iterator<Item = &mut OneForm> {
        self.forms.iter_mut().filter(|form| form.left.is_none())
    }
}

fn none_is_left() -> Error {
    Error::Constraint { problem: "no form of the reply goes on so".to_owned() }
}

impl Constraint for EitherForm {
    fn mask(&mut self) -> Result<TokenMask> {
        let mut all: Option<TokenMask> = None;
        for form in self.open() {
            let mask = form.mask()?;
            all = Some(all.map_or_else(|| mask.clone(), |all| all.union(mask)));
        }
        all.ok_or_else(none_is_left)
    }

    fn forced(&mut self) -> Vec<u32> {
        let mut open = self.open();
        match (open.next(), open.next()) {
            (Some(form), None) => form.constraint.forced(),
            _ => Vec::new(),
        }
    }

    fn keep(&mut self, token: u32) -> Result<()> {
        let len = self.len;
        let mut any = false;
        for form in self.open() {
            match form.mask()?.has(token) {
                true => {
                    form.mask = None;
                    form.constraint.keep(token)?;
                    any = true;
                }
                false => form.left = Some(len),
            }
        }
        self.len += 1;
        if any { Ok(()) } else { Err(none_is_left()) }
    }

    fn take_back(&mut self, n: usize) -> Result<()> {
        let len = self.len.checked_sub(n).ok_or_else(none_is_left)?;
        for form in &mut self.forms {
            let kept = form.left.unwrap_or(self.len);
            if len <= kept {
                form.left = None;
                form.mask = None;
                form.constraint.take_back(kept - len)?;
            }
        }
        self.len = len;
        Ok(())
    }

    fn take_text(&mut self, text: &str) -> Result<()> {
        // the text continues the tokens so far; forms that rejected one of those are dropped
        self.forms.retain_mut(|form| {
            form.mask = None;
            form.left.is_none() && form.constraint.take_text(text).is_ok()
        });
        if self.forms.is_empty() { Err(none_is_left()) } else { Ok(()) }
    }

    fn fork(&self) -> Box<dyn Constraint> {
        let fork = |form: &OneForm| OneForm {
            constraint: form.constraint.fork(),
            mask: form.mask.clone(),
            left: form.left,
        };
        Box::new(EitherForm { forms: self.forms.iter().map(fork).collect(), len: self.len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constraint::tests::Word;

    fn either(words: &[&'static [u32]]) -> EitherForm {
        EitherForm::new(words.iter().map(|word| Word::boxed(word)).collect())
    }

    fn next(form: &mut EitherForm) -> Vec<u32> {
        form.mask().unwrap().tokens().collect()
    }

    #[test]
    fn tokens_decide_which_form_a_text_has_and_may_be_taken_back() {
        let mut form = either(&[&[1, 2, 3], &[1, 5], &[4]]);
        assert_eq!(next(&mut form), [1, 4]);
        assert!(form.forced().is_empty());
        form.keep(1).unwrap();
        assert_eq!(next(&mut form), [2, 5]);
        form.keep(2).unwrap();
        assert_eq!((next(&mut form), form.forced()), (vec![3], vec![3]));
        let mut other = form.fork();
        form.take_back(1).unwrap();
        assert_eq!(next(&mut form), [2, 5]);
        form.keep(5).unwrap();
        form.take_back(2).unwrap();
        assert_eq!(next(&mut form), [1, 4]);
        form.keep(4).unwrap();
        assert!(form.keep(1).is_err(), "no form goes on");
        assert_eq!(other.mask().unwrap().tokens().collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_text_renews_the_masks_and_drops_forms_that_do_not_match() {
        let (a, b, c) = (u32::from(b'a'), u32::from(b'b'), u32::from(b'c'));
        const WORDS: [&[u32]; 3] = [&[97, 98, 1], &[97, 99, 2], &[98, 97, 3]];
        let mut form = either(&WORDS);
        assert_eq!(next(&mut form), [a, b]);
        form.take_text("a").unwrap();
        assert_eq!(next(&mut form), [b, c]);
        let mut form = either(&WORDS);
        form.keep(b).unwrap();
        form.take_text("a").unwrap();
        assert_eq!((next(&mut form), form.forced()), (vec![3], vec![3]));
        let mut form = either(&WORDS);
        form.keep(b).unwrap();
        assert!(form.take_text("ac").is_err(), "a form that has left takes no text");
    }
}
