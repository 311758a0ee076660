//! Bit fields as GGUF blocks store them: planes of narrow fields over a run of bytes, and the 6-bit scale table.

/// Position of field `i`: `(byte, shift)`.
const fn place<const WIDTH: usize, const LANES: usize>(i: usize) -> (usize, usize) {
    let chunk = LANES * (8 / WIDTH);
    (i / chunk * LANES + i % LANES, i % chunk / LANES * WIDTH)
}

/// Field `i` of `WIDTH` bits (1, 2 or 4) in a run of bytes with `LANES` bytes per chunk.
///
/// A chunk holds `LANES * 8 / WIDTH` fields: the lowest `WIDTH` bits of its `LANES` bytes come first, then the
/// next `WIDTH` bits of the same bytes, and so on. `LANES = 1` is therefore the plain order, lowest bits first;
/// `<4, 16>` is "low nibbles are fields 0..16, high nibbles 16..32".
#[inline]
pub const fn field<const WIDTH: usize, const LANES: usize>(bytes: &[u8], i: usize) -> u8 {
    let (byte, shift) = place::<WIDTH, LANES>(i);
    (bytes[byte] >> shift) & ((1 << WIDTH) - 1)
}

/// Stores the low `WIDTH` bits of `value` as field `i`; the order is that of [`field`].
#[inline]
pub const fn set_field<const WIDTH: usize, const LANES: usize>(
    bytes: &mut [u8],
    i: usize,
    value: u8,
) {
    let (byte, shift) = place::<WIDTH, LANES>(i);
    let mask = (1 << WIDTH) - 1;
    bytes[byte] = (bytes[byte] & !(mask << shift)) | ((value & mask) << shift);
}

/// Writes the fields of [`field`] one after the other to `out`: all of `bytes`, or as many as `out` takes.
#[inline]
pub fn unpack<const WIDTH: usize, const LANES: usize>(bytes: &[u8], out: &mut [u8]) {
    planes::<WIDTH, LANES>(bytes, out, |out, field| *out = field);
}

/// Like [`unpack`], but sets the bits from `shift` on in `out` and leaves the others: the high bits of codes.
#[inline]
pub fn unpack_high<const WIDTH: usize, const LANES: usize>(
    bytes: &[u8],
    shift: u32,
    out: &mut [u8],
) {
    planes::<WIDTH, LANES>(bytes, out, |out, field| *out |= field << shift);
}

#[inline]
fn planes<const WIDTH: usize, const LANES: usize>(
    bytes: &[u8],
    out: &mut [u8],
    put: impl Fn(&mut u8, u8),
) {
    for (bytes, out) in bytes.chunks_exact(LANES).zip(out.chunks_exact_mut(LANES * 8 / WIDTH)) {
        for (plane, out) in out.chunks_exact_mut(LANES).enumerate() {
            for (&byte, out) in bytes.iter().zip(out) {
                put(out, (byte >> (plane * WIDTH)) & ((1 << WIDTH) - 1));
            }
        }
    }
}

/// The 6-bit `(scale, min)` of group `j` in `0..8` from the 12-byte table of Q4_K and Q5_K.
///
/// Groups 0..4 lie in the low six bits of bytes `j` (scale) and `j + 4` (min). Groups 4..8 have their low four bits
/// in byte `j + 4` (scale in the low nibble, min in the high one) and their top two bits in the two highest bits
/// of bytes `j - 4` (scale) and `j` (min).
#[inline]
pub const fn scale_min(table: &[u8; 12], j: usize) -> (u8, u8) {
    if j < 4 {
        (table[j] & 63, table[j + 4] & 63)
    } else {
        let low = table[j + 4];
        ((low & 15) | ((table[j - 4] >> 6) << 4), (low >> 4) | ((table[j] >> 6) << 4))
    }
}

/// Packs eight 6-bit scales and mins into the table that [`scale_min`] reads.
pub const fn pack_scale_min(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut table = [0; 12];
    let mut j = 0;
    while j < 4 {
        let (scale, min) = (scales[j + 4], mins[j + 4]);
        table[j] = (scales[j] & 63) | ((scale >> 4) << 6);
        table[j + 4] = (mins[j] & 63) | ((min >> 4) << 6);
        table[j + 8] = (scale & 15) | (min << 4);
        j += 1;
    }
    table
}
