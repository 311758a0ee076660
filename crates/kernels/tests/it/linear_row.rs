//! Rows read back from panels are the rows of the file.

use kernels::linear::{PANEL_ROWS, linear_kernels};

use crate::linear::is_tested;
use crate::support::sizes;

#[test]
fn unpacked_rows_are_dequantized_rows() {
    for kernel in linear_kernels().filter(|kernel| is_tested(kernel.ty())) {
        let cols = 2 * kernel.ty().block_len().max(37);
        let cols = cols.next_multiple_of(kernel.ty().block_len());
        let format = quant::format(kernel.ty()).expect("kernels are for weight types");
        let row_bytes = kernel.ty().row_bytes(cols).expect("whole blocks");
        let rows: Vec<Vec<u8>> = (0..sizes(PANEL_ROWS - 1, 2))
            .map(|r| {
                let noise = |i: usize| ((i * 2_654_435_761 + r * 40_503) >> 7) as u8;
                let mut bytes: Vec<u8> = (0..row_bytes).map(noise).collect();
                // whose search takes Miri minutes; what noise stands for is read as well
                if format.can_quantize() && !cfg!(miri) {
                    let x: Vec<f32> = (0..cols).map(|i| ((i * 7 + r) as f32).sin()).collect();
                    assert!(format.quantize(&x, &mut bytes), "{}", kernel.name());
                }
                bytes
            })
            .collect();
        let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let mut panel = vec![0; kernel.panel_bytes(cols)];
        kernel.pack(&slices, cols, &mut panel);
        let (mut want, mut got) = (vec![0.0; cols], vec![1.0; cols]);
        for (lane, row) in rows.iter().enumerate() {
            format.dequantize(row, &mut want);
            kernel.unpack_row(&panel, lane, &mut got);
            for (want, got) in want.iter().zip(&got) {
                let near =
                    (want - got).abs() <= want.abs() * 1e-6 || (want.is_nan() && got.is_nan());
                assert!(near || want == got, "{} lane {lane}: {got}, not {want}", kernel.name());
            }
        }
        kernel.unpack_row(&panel, PANEL_ROWS - 1, &mut got);
        assert!(got.iter().all(|x| *x == 0.0), "{}: an absent row is zero", kernel.name());
    }
}
