//! Rows read back from panels are the rows of the file.

use kernels::linear::{PANEL_ROWS, linear_kernels, split_kernels};

#[test]
fn unpacked_rows_are_dequantized_rows() {
    for kernel in linear_kernels() {
        let cols = 2 * kernel.ty().block_len().max(37);
        let cols = cols.next_multiple_of(kernel.ty().block_len());
        let format = quant::format(kernel.ty()).expect("kernels are for weight types");
        let row_bytes = kernel.ty().row_bytes(cols).expect("whole blocks");
        let rows: Vec<Vec<u8>> = (0..PANEL_ROWS - 1)
            .map(|r| {
                let noise = |i: usize| ((i * 2_654_435_761 + r * 40_503) >> 7) as u8;
                let mut bytes: Vec<u8> = (0..row_bytes).map(noise).collect();
                if format.can_quantize() {
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
            kernel.unpack(&panel, lane..lane + 1, &mut got);
            for (want, got) in want.iter().zip(&got) {
                let near =
                    (want - got).abs() <= want.abs() * 1e-6 || (want.is_nan() && got.is_nan());
                assert!(near || want == got, "{} lane {lane}: {got}, not {want}", kernel.name());
            }
        }
        kernel.unpack(&panel, PANEL_ROWS - 1..PANEL_ROWS, &mut got);
        assert!(got.iter().all(|x| *x == 0.0), "{}: an absent row is zero", kernel.name());
    }
}

/// What the coarse and the fine part of a row stand for adds up to the row, exactly.
#[test]
fn unpacked_coarse_and_fine_add_up_to_the_row() {
    for [coarse, fine] in split_kernels() {
        let (ty, cols) = (coarse.ty(), 512);
        let format = quant::format(ty).expect("kernels are for weight types");
        let rows: Vec<Vec<u8>> = (0..PANEL_ROWS)
            .map(|r| {
                let x: Vec<f32> = (0..cols).map(|i| ((i * 7 + r) as f32).sin()).collect();
                let mut bytes = vec![0; ty.row_bytes(cols).expect("whole blocks")];
                assert!(format.quantize(&x, &mut bytes), "{ty}");
                bytes
            })
            .collect();
        let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
        let [coarse, fine] = [coarse, fine].map(|kernel| {
            let (mut panel, mut out) = (vec![0; kernel.panel_bytes(cols)], vec![0.0; 16 * cols]);
            kernel.pack(&slices, cols, &mut panel);
            kernel.unpack(&panel, 0..PANEL_ROWS, &mut out);
            out
        });
        let mut want = vec![0.0; cols];
        for ((row, coarse), fine) in rows.iter().zip(coarse.chunks(cols)).zip(fine.chunks(cols)) {
            format.dequantize(row, &mut want);
            for ((want, coarse), fine) in want.iter().zip(coarse).zip(fine) {
                assert_eq!(*want, coarse + fine, "{ty}");
            }
        }
        let norm = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
        assert!(norm(&fine) < 0.02 * norm(&coarse), "{ty}: the fine part matters little");
    }
}
