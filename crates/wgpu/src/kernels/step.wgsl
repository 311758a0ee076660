// What a step is about: see `batch.rs`, which writes these words.
@group(0) @binding(1) var<storage, read> step: array<u32>;

const N_TOKENS = 0u;
const N_SELECTED = 1u;
// where lists begin
const TOKENS = 2u;
const POSITIONS = 3u;
const SEQUENCE_OF_ROW = 4u;
const SELECTED = 5u;
const SEQUENCES = 6u; // [first row, rows, first position] each
const TILES = 7u; // [first row, rows] each
const TABLES = 8u; // by sequence and cache: [where its list of blocks begins, number of the first of them]
// numbers
const N_CACHES = 9u;
const TILE_ROWS = 10u;
const N_SPLITS = 11u;
const N_TILES = 12u;
const N_BEST = 13u; // likeliest tokens that are wanted of a row
const ALLOWED = 14u; // by selected row: [where its bits begin or NONE, their words]; itself NONE if no row has bits
const TOLD = 15u; // how many logits are told, then [selected row, token] each
const N_BLOCKS = 16u; // of the longest past
// from there on: where the numbers of each rotation and each temperature begin

const NONE = 0xffffffffu;

fn position_of(row: u32) -> u32 {
    return step[step[POSITIONS] + row];
}

fn sequence_of(row: u32) -> u32 {
    return step[step[SEQUENCE_OF_ROW] + row];
}
