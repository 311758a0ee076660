//! Lists and ranges of numbers on the command line.

use std::str::FromStr;

use crate::counts;

/// Longest list: a range with a slip of the finger must not take hours to start.
const MAX: usize = 1000;
const LARGEST: usize = 1 << 24;

/// `1,2,4`, `0-4096+1024`, `1-8*2`, `1-4`, or a mix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers(Vec<usize>);

/// The numbers of all lists, in order.
pub(super) fn all(lists: &[Numbers]) -> impl Iterator<Item = usize> {
    lists.iter().flat_map(|list| list.0.iter().copied())
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = Vec::new();
        for part in text.split(',') {
            range(part.trim(), &mut numbers)?;
        }
        Ok(Self(numbers))
    }
}

fn range(part: &str, numbers: &mut Vec<usize>) -> Result<(), String> {
    let wrong =
        || format!("expected N, FIRST-LAST, FIRST-LAST+STEP or FIRST-LAST*FACTOR, found `{part}`");
    let Some((first, rest)) = part.split_once('-') else {
        numbers.push(number(part).ok_or_else(wrong)?);
        return Ok(());
    };
    let (last, step) = match (rest.split_once('+'), rest.split_once('*')) {
        (Some((last, step)), _) => (last, number(step).filter(|n| *n > 0).map(Step::Add)),
        (None, Some((last, factor))) => (last, number(factor).filter(|n| *n > 1).map(Step::Times)),
        (None, None) => (rest, Some(Step::Add(1))),
    };
    let step = step.ok_or_else(wrong)?;
    let last = number(last).ok_or_else(wrong)?;
    let mut at = Some(number(first).ok_or_else(wrong)?);
    while let Some(n) = at.filter(|n| *n <= last) {
        if numbers.len() == MAX {
            return Err(format!("more than {MAX} numbers in `{part}`"));
        }
        numbers.push(n);
        at = step.after(n);
    }
    Ok(())
}

/// How a range goes on.
#[derive(Clone, Copy)]
enum Step {
    Add(usize),
    Times(usize),
}

impl Step {
    /// The number after `n`, if there is a greater one.
    fn after(self, n: usize) -> Option<usize> {
        let next = match self {
            Step::Add(step) => n.checked_add(step)?,
            Step::Times(factor) => n.checked_mul(factor)?,
        };
        (next > n).then_some(next)
    }
}

fn number(text: &str) -> Option<usize> {
    usize::try_from(counts::whole(text)?).ok().filter(|n| *n <= LARGEST)
}

/// `512,128`.
pub(super) fn pair(text: &str) -> Result<(usize, usize), String> {
    let (prompt, generate) = text.split_once(',').ok_or("expected PROMPT,GENERATED")?;
    match (number(prompt), number(generate)) {
        (Some(prompt), Some(generate)) => Ok((prompt, generate)),
        _ => Err("expected PROMPT,GENERATED".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        for (text, want) in [
            ("512", vec![512]),
            ("0-4k+2k", vec![0, 2048, 4096]),
            ("1,2, 4", vec![1, 2, 4]),
            ("0-4096+2048", vec![0, 2048, 4096]),
            ("1-9*2", vec![1, 2, 4, 8]),
            ("2-4,7", vec![2, 3, 4, 7]),
            ("0-8*2", vec![0]),
        ] {
            assert_eq!(text.parse(), Ok(Numbers(want)), "{text}");
        }
        for text in ["", "x", "1-", "1-4+0", "1-4*1", "-3", "0-100000"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
        assert_eq!(pair("512,128"), Ok((512, 128)));
        assert!(pair("512").is_err());
    }
}
