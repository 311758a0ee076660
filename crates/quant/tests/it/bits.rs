//! Bit fields, and the table of scales.

use quant::bits::{field, pack_scale_min, scale_min, set_field};

#[test]
fn fields_come_in_the_documented_order() {
    let bytes: Vec<u8> = (0..32).collect();
    assert_eq!(field::<4, 16>(&bytes, 15), 15);
    assert_eq!(field::<4, 16>(&bytes, 16 + 15), 0);
    assert_eq!(field::<4, 16>(&bytes, 32), 0);
    assert_eq!(field::<4, 16>(&bytes, 32 + 16), 1);
    assert_eq!(field::<1, 1>(&[0b1000_0000, 1], 7), 1);
    assert_eq!(field::<1, 1>(&[0b1000_0000, 1], 8), 1);
    assert_eq!(field::<2, 1>(&[0b1110_0100], 2), 2);
}

#[test]
fn set_field_is_the_inverse_of_field() {
    let mut bytes = [0xA5; 64];
    for i in 0..256 {
        set_field::<2, 32>(&mut bytes, i, (i * 7 / 3) as u8);
    }
    for i in 0..256 {
        assert_eq!(field::<2, 32>(&bytes, i), (i * 7 / 3) as u8 & 3);
    }
}

#[test]
fn scale_table_round_trips() {
    let scales = [0, 63, 1, 32, 17, 48, 15, 63];
    let mins = [63, 0, 33, 5, 16, 31, 62, 47];
    let table = pack_scale_min(&scales, &mins);
    for j in 0..8 {
        assert_eq!(scale_min(&table, j), (scales[j], mins[j]));
    }
}
