//! Splits of made-up texts against what Python's `regex` makes of the published patterns (`tests/data/splits.py`).

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokenizer::internals::{Splitter, find_pre_tokenizer, pre_tokenizers};

const DIGESTS: &str = include_str!("../data/splits.json");

/// Texts to a digest.
const TEXTS: usize = 1000;

/// SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

fn texts(block: u64, pools: &[Vec<String>]) -> Vec<String> {
    let mut numbers = Numbers(block);
    let mut text = || {
        let parts = 1 + numbers.below(24);
        let mut part = || {
            let pool = &pools[numbers.below(pools.len())];
            pool[numbers.below(pool.len())].as_str()
        };
        (0..parts).map(|_| part()).collect()
    };
    (0..TEXTS).map(|_| text()).collect()
}

/// Of each family 2,000 texts; `ROOFLIGHT_SPLITS=100` takes all 100,000.
#[test]
fn splits_are_those_of_the_published_patterns() {
    let data: Value = serde_json::from_str(DIGESTS).unwrap();
    let pools: Vec<Vec<String>> = serde_json::from_value(data["pools"].clone()).unwrap();
    let families = data["families"].as_object().unwrap();
    assert_eq!(
        families.len(),
        pre_tokenizers().map(|pre| pre.patterns).collect::<std::collections::HashSet<_>>().len()
    );
    let blocks = std::env::var("ROOFLIGHT_SPLITS").map_or(2, |n| n.parse().unwrap());
    for (name, digests) in families {
        let splitter = Splitter::new(find_pre_tokenizer(name).unwrap().patterns).unwrap();
        for (block, expected) in (0..blocks).zip(digests.as_array().unwrap()) {
            let mut digest = Sha256::new();
            for text in texts(block, &pools) {
                let mut first = true;
                let mut each = |piece: &str| {
                    if !first {
                        digest.update([0]);
                    }
                    first = false;
                    digest.update(piece);
                    Ok(())
                };
                splitter.split(&text, &mut each).unwrap();
                digest.update([1]);
            }
            let digest: String =
                digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, expected.as_str().unwrap(), "{name}, block {block}");
        }
    }
    eprintln!("{} families, {} texts of each", families.len(), blocks as usize * TEXTS);
}
