//! BLAKE2b of short texts, without a key. Source: RFC 7693. The bundled model's corpus decides by it which names and
//! numbers training never saw; texts take their random numbers from it.

const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

#[rustfmt::skip]
const SIGMA: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

/// The digest of `N` bytes, at most 64. The length is part of what is digested: a short digest is no part of a long one.
pub(super) fn blake2b<const N: usize>(text: &[u8]) -> [u8; N] {
    const { assert!(N >= 1 && N <= 64) };
    let mut h = IV;
    h[0] ^= 0x0101_0000 ^ N as u64;
    let blocks = text.len().div_ceil(128).max(1);
    for (i, start) in (0..blocks).map(|i| (i, i * 128)) {
        let part = &text[start..text.len().min(start + 128)];
        let mut block = [0; 128];
        block[..part.len()].copy_from_slice(part);
        compress(&mut h, &block, (start + part.len()) as u64, i + 1 == blocks);
    }
    let mut out = [0; N];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = h[i / 8].to_le_bytes()[i % 8];
    }
    out
}

fn compress(h: &mut [u64; 8], block: &[u8; 128], count: u64, last: bool) {
    let (words, _) = block.as_chunks::<8>();
    let m: [u64; 16] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
    let mut v: [u64; 16] = std::array::from_fn(|i| if i < 8 { h[i] } else { IV[i - 8] });
    v[12] ^= count;
    if last {
        v[14] = !v[14];
    }
    for round in 0..12 {
        let s = &SIGMA[round % 10];
        for i in 0..4 {
            let column = [i, i + 4, i + 8, i + 12];
            mix(&mut v, column, m[s[2 * i]], m[s[2 * i + 1]]);
        }
        for i in 0..4 {
            let diagonal = [i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4];
            mix(&mut v, diagonal, m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
        }
    }
    for i in 0..8 {
        h[i] ^= v[i] ^ v[i + 8];
    }
}

fn mix(v: &mut [u64; 16], [a, b, c, d]: [usize; 4], x: u64, y: u64) {
    for (word, first, second) in [(x, 32, 24), (y, 16, 63)] {
        v[a] = v[a].wrapping_add(v[b]).wrapping_add(word);
        v[d] = (v[d] ^ v[a]).rotate_right(first);
        v[c] = v[c].wrapping_add(v[d]);
        v[b] = (v[b] ^ v[c]).rotate_right(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Python's `hashlib.blake2b(text, digest_size=N)`.
    #[test]
    fn digests_are_those_of_the_corpus() {
        assert_eq!(hex(&blake2b::<4>(b"abc")), "63906248");
        assert_eq!(hex(&blake2b::<4>(&[b'a'; 128])), "12cabd16");
        assert_eq!(
            hex(&blake2b::<32>(b"")),
            "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"
        );
        assert_eq!(
            hex(&blake2b::<32>(&[b'a'; 300])),
            "3c1292de00a518e36823f9ff908ac2da46be38718c018713403461df077e15f6"
        );
    }
}
