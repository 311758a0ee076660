//! Runs in JSON that have no end: how long they may be.

#[path = "../../src/runs.rs"]
mod runs;

use runs::{Run, RunTokens};

/// Returns how many times `more` may follow a text.
fn most(text: &str, more: &str) -> usize {
    let words: Vec<Vec<u8>> =
        (0..=255_u8).map(|byte| vec![byte]).chain([b"\\n".to_vec()]).collect();
    let tokens = RunTokens::of(&words);
    let token = words.iter().position(|word| word == more.as_bytes());
    let token = token.expect("a word of the list");
    let mut run = Run::default().after(text.as_bytes());
    for n in 0..2000 {
        let mut mask = vec![u32::MAX; 9];
        run.narrow(&mut mask, &tokens);
        if mask[token / 32] >> (token % 32) & 1 == 0 {
            return n;
        }
        run = run.after(more.as_bytes());
    }
    usize::MAX
}

#[test]
fn digits_of_numbers_and_runs_in_texts_end() {
    assert_eq!(most("{\"a\": ", "7"), 19);
    assert_eq!(most("{\"a\": -", "0"), 19);
    assert_eq!(most("{\"a\": 12345", "0"), 14);
    assert_eq!(most("[1.", "0"), 19);
    assert_eq!(most("[1.5e", "9"), 2);
    assert_eq!(most("[1.5e+", "9"), 2);
    assert_eq!(most("[1e5, ", "9"), 19);
    assert_eq!(
        (most("{\"a\": \"", "7"), most("{\"a\": \"x", " "), most("[\"", "\\n")),
        (512, 512, 512)
    );
    assert_eq!(most("[\"\\\"", "7"), 512, "an escaped quote ends no text");
    assert_eq!(most("[\"x", "y"), usize::MAX);
    assert_eq!(most("[\"a\", ", "7"), 19);
}

#[test]
fn a_mask_is_never_emptied() {
    let tokens = RunTokens::of(&[b"7".to_vec(), b",".to_vec(), b"0".to_vec()]);
    let run = Run::default().after(&[b'7'; 30]);
    let narrowed = |mut mask: Vec<u32>| {
        run.narrow(&mut mask, &tokens);
        mask
    };
    assert_eq!((narrowed(vec![0b011]), narrowed(vec![0b001])), (vec![0b010], vec![0b001]));
    // zeros are removed before other digits
    assert_eq!((narrowed(vec![0b101]), narrowed(vec![0b100])), (vec![0b001], vec![0b100]));
}
