//! Tables of values.

use quant::codebooks::IQ3_S_GRID;

#[test]
fn grid_entries_are_unique_quadruples_of_three_bits() {
    assert!(IQ3_S_GRID.iter().all(|entry| entry & 0x8888 == 0));
    let unique: std::collections::HashSet<u16> = IQ3_S_GRID.into_iter().collect();
    assert_eq!(unique.len(), IQ3_S_GRID.len());
}
