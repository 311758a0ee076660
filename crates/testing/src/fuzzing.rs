//! Seeds of fuzz targets and numbers to change them by: targets also run as tests, without a fuzzer.

use std::path::Path;

/// Numbers that look random and are the same each time.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// A start for each seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// At least 0, less than `n`; 0 if there is no such number.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n.max(1) as u64) as usize
    }
}

/// How many mutations of each seed a test tries: `ROOFLIGHT_MUTATIONS`, else `usual`.
///
/// # Panics
/// If the variable is no number.
pub fn mutations(usual: u64) -> u64 {
    match std::env::var("ROOFLIGHT_MUTATIONS") {
        Ok(n) => n.parse().expect("ROOFLIGHT_MUTATIONS: a number"),
        Err(_) => usual,
    }
}

/// The seed files of a fuzz target: their names and bytes, by name.
///
/// # Panics
/// If there are none.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?))
    };
    let seeds: std::io::Result<Vec<_>> =
        std::fs::read_dir(&dir).and_then(|entries| entries.map(read).collect());
    let mut seeds = seeds.unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    assert!(!seeds.is_empty(), "{} holds seeds", dir.display());
    seeds.sort();
    seeds
}
