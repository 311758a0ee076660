//! Dispatches of what recurs.

use program::Rows;

use super::{Bound, Choice, Grid, Maker};
use crate::kernels::Shader;
use crate::kernels::recurrence::{CONV, SCAN, SCAN_BUFFERS, SCAN_COPIED, SCAN_INPUTS, SCAN_STRIP};
use crate::plan::{ConvWork, ScanWork};

impl Maker<'_> {
    pub(super) fn conv(&mut self, work: &ConvWork) {
        let ConvWork { cache, channels, taps, bias, width, step, finish, x, out } = *work;
        let consts = [
            &[channels as u32][..],
            &self.at(x),
            &self.at(out),
            &[cache as u32, self.vector(taps), self.vector(bias), width as u32, step as u32],
            &finish.words(),
        ]
        .concat();
        let bound = vec![
            Bound::Vectors,
            Bound::Buffer(x.buffer),
            Bound::Blocks(cache),
            Bound::Buffer(out.buffer),
        ];
        let grid = Grid::Elements { cols: channels, each: 64, rows: Rows::Tokens };
        self.push((&CONV, Choice::One(Shader::conv()), grid), out.buffer, bound, consts);
    }

    pub(super) fn scan(&mut self, work: &ScanWork) {
        let (dims, cache, out) = (work.dims, work.cache, work.out);
        let row: usize = work.inputs[1..].iter().map(|(_, cols)| cols).sum();
        let mut places = [[0; 2]; SCAN_INPUTS];
        // where each begins in what a row gives
        let mut begins = [row as u32; SCAN_INPUTS];
        let mut begin = 0;
        for (i, (place, cols)) in work.inputs.iter().enumerate() {
            places[i] = self.at(*place);
            begins[i] = begin;
            begin += if i == 0 { 0 } else { *cols as u32 };
        }
        let [a, d] = work.vectors.map(|id| self.vector(id));
        let consts = [
            &[dims.n_heads, dims.n_key_heads, dims.key_dim, dims.value_dim].map(|n| n as u32)[..],
            &[u32::from(dims.by_turns), u32::from(work.by_row), cache as u32, row as u32],
            &[work.number.to_bits(), a, d],
            places.as_flattened(),
            &begins[2..],
            &self.at(out),
        ]
        .concat();
        let buffers = work.buffers();
        let number = |place: &crate::plan::Place| {
            buffers.iter().position(|buffer| *buffer == place.buffer).unwrap_or(0)
        };
        let numbers: Vec<usize> = work.inputs.iter().map(|(place, _)| number(place)).collect();
        let mut bound = vec![Bound::Vectors];
        bound.extend(buffers.iter().map(|buffer| Bound::Buffer(*buffer)));
        bound.resize(1 + SCAN_BUFFERS, Bound::Nothing);
        bound.extend([Bound::Blocks(cache), Bound::Buffer(out.buffer)]);
        let strips = dims.n_heads * dims.value_dim.div_ceil(SCAN_STRIP);
        let grid = Grid::Scan { groups: strips + row.div_ceil(SCAN_COPIED) };
        let choice = Choice::One(Shader::scan(work.rule, dims.key_dim, &numbers));
        self.push((&SCAN, choice, grid), out.buffer, bound, consts);
    }
}
