//! Blocks on disk, with everything that can go wrong beneath.
#![cfg(not(miri))]

mod ahead;
mod full;
mod kept;
mod kept_histories;
mod kills;
mod power;
mod records;
mod room;

use testing::Dice;

/// A block that depends on its seed.
fn block(len: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    (0..len).map(|_| dice.bits() as u8).collect()
}
