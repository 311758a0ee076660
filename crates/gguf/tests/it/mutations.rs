//! A valid file with each byte changed, cut at every length, or hit at random: refused or read, never a panic.

use std::time::{Duration, Instant};

use gguf::Gguf;
use proptest::prelude::*;

use crate::build::{error, exercise, sample};

/// From one place that is changed to the next: under Miri, which takes a thousand times as long, a prime number.
const STEP: usize = if cfg!(miri) { 97 } else { 1 };

fn survive(bytes: Vec<u8>) {
    match Gguf::from_bytes(bytes.clone()) {
        Ok(gguf) => {
            exercise(&gguf);
        }
        Err(_) => {
            error(bytes);
        }
    }
}

#[test]
fn each_byte_changed() {
    let good = sample().to_bytes().unwrap();
    let start = Instant::now();
    for at in (0..good.len()).step_by(STEP) {
        for byte in [0x00, 0xFF, good[at].wrapping_add(1), good[at] ^ 0x80] {
            let mut bad = good.clone();
            bad[at] = byte;
            survive(bad);
        }
    }
    let time = start.elapsed();
    assert!(cfg!(miri) || time < Duration::from_secs(20), "{time:?}");
}

#[test]
fn cut_at_each_length() {
    let good = sample().to_bytes().unwrap();
    let gguf = Gguf::from_bytes(good.clone()).unwrap();
    let data: usize = gguf.tensors().iter().map(|t| t.byte_len().next_multiple_of(32)).sum();
    for len in (0..good.len()).step_by(STEP) {
        let text = error(good[..len].to_vec());
        if len >= 4 {
            assert!(
                text.starts_with("truncated: ") && text.ends_with("download again"),
                "{len}: {text}"
            );
        }
        let section = match len {
            0..4 => "too short",
            4..24 => "header",
            _ if len >= good.len() - data => "tensor data",
            _ => "",
        };
        assert!(text.contains(section), "{len}: expected `{section}` in {text}");
    }
    assert!(
        error(good[..400].to_vec()).contains("metadata pair "),
        "{}",
        error(good[..400].to_vec())
    );
    let in_table = good.len() - data - 80;
    assert!(error(good[..in_table].to_vec()).contains("tensor table, entry "));
    assert!(
        error(good[..good.len() - 1].to_vec())
            .contains(&format!("needs at least {} bytes", good.len()))
    );
}

proptest! {
    /// Eight bytes at once make lengths and counts of any size.
    #[test]
    fn random_words(hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), 0_u32..64), 1..4)) {
        let mut bytes = sample().to_bytes().unwrap();
        for (at, word, shift) in hits {
            let at = at.index(bytes.len() - 8);
            bytes[at..at + 8].copy_from_slice(&(word >> shift).to_le_bytes());
        }
        survive(bytes);
    }

    #[test]
    fn random_bytes_after_a_header(n_tensors in 0_u8..4, n_pairs in 0_u8..4, rest: Vec<u8>) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(u64::from(n_tensors).to_le_bytes());
        bytes.extend(u64::from(n_pairs).to_le_bytes());
        bytes.extend(rest);
        survive(bytes);
    }
}
