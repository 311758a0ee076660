//! Operations on 16 rows of four bytes in arrays.

use kernels::internals::Portable;
use kernels::linear::PANEL_ROWS;

type Array = [i32; PANEL_ROWS];

/// The same in every row.
fn splat(x: i32) -> Array {
    [x; PANEL_ROWS]
}

#[test]
fn operations_are_those_of_the_bytes() {
    let x = splat(0x8001_f00fu32.cast_signed());
    let first = |x: Array| x[0].cast_unsigned();
    assert_eq!(first(Portable.shift(x, 4)), 0x0800_0f00);
    assert_eq!(first(Portable.shift(x, -4)), 0x0010_00f0);
    assert_eq!(first(Portable.shift(x, 0)), 0x8001_f00f);
    let table = std::array::from_fn(|i| 200 + i as u8);
    assert_eq!(first(Portable.lookup(table, splat(0x0f00_0102))), 0xd7c8_c9ca);
    let pair = Portable.pair(splat(-2), splat(3));
    assert_eq!(first(pair), 0x0003_fffe);
    let sum = Portable.dot_pairs(splat(1), pair, pair[0]);
    assert_eq!(sum[0], 1 + 4 + 9);
}

#[test]
fn products_of_bytes_wrap_and_do_not_saturate() {
    let sum = Portable.dot_bytes(splat(i32::MAX), splat(-1), 0x7f7f_7f7f);
    assert_eq!(sum[0], i32::MAX.wrapping_add(4 * 255 * 127));
    let sum = Portable.dot_bytes(splat(0), splat(-1), -0x7f7f_7f80);
    assert_eq!(sum[0], 4 * 255 * -128);
}
