//! MXFP4 by hand.

use quant::Block;
use quant::bits::set_field;
use quant::codebooks::E2M1;
use quant::formats::BlockMxfp4;

#[test]
fn values_by_hand() {
    let mut block = BlockMxfp4 { e: 127, q: [0; 16] };
    for i in 0..16 {
        set_field::<4, 16>(&mut block.q, i, i as u8);
    }
    let value = |i: usize| block.d() * f32::from(E2M1[usize::from(block.code(i))]);
    let want = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    assert_eq!(std::array::from_fn(value), want);
    assert_eq!(std::array::from_fn(|i| -value(8 + i)), want);
    let d = |e| BlockMxfp4 { e, q: [0; 16] }.d();
    assert_eq!(
        (d(0), d(1), d(2), d(255)),
        (2f32.powi(-128), 2f32.powi(-127), 2f32.powi(-126), 2f32.powi(127))
    );
}

#[test]
fn floats_of_four_bits_come_back() {
    let x: Vec<f32> = (0..32).map(|i| f32::from(E2M1[i % 16]) * 0.375).collect();
    let halved: Vec<f32> = x.iter().map(|x| x / 3.0).collect();
    let quantize = BlockMxfp4::QUANTIZE.expect("weights can be quantized to it");
    let block = quantize(&halved);
    let back: Vec<f32> =
        (0..32).map(|i| block.d() * f32::from(E2M1[usize::from(block.code(i))])).collect();
    assert_eq!(back, halved);
}
