//! Numbers as numpy draws them.

use conformance::internals::Generator;

/// FNV-1a.
fn hash(values: impl Iterator<Item = f32>) -> u64 {
    values.flat_map(f32::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Numbers drawn by numpy 2.4. There are enough normal ones to reach the tail of the ziggurat and the edges of its layers.
#[test]
fn numbers_are_those_of_numpy() {
    let mut numbers = Generator::new(&[0, (1 << 48) - 1]);
    let bits = [14_945_075_910_229_567_770, 1_067_544_796_502_727_718];
    assert_eq!([numbers.bits(), numbers.bits()], bits);
    let mut numbers = Generator::new(&[1, 2, 3, 4, 5, 6]);
    assert_eq!(hash((0..100_000).map(|_| numbers.normal_f32())), 0x7b1a_a626_1cb1_91ad);
    let mut numbers = Generator::new(&[7]);
    assert_eq!(hash((0..100_000).map(|_| numbers.normal() as f32)), 0x96f0_d87b_3379_01bb);
    let mut numbers = Generator::new(&[7]);
    let uniform = (0..1000).map(|_| numbers.uniform(-4.0, 1.0) as f32);
    assert_eq!(hash(uniform), 0x23e3_b1ca_26c8_78a1);
    assert_eq!(Generator::new(&[0, 77]).permutation(8), [0, 2, 4, 3, 1, 7, 6, 5]);
}
