// How keys and values lie in a block of 64 positions, in units of 4 numbers: `[head][quad][position]` of keys, so that lanes
// that are positions read neighbouring units, then `[head][position][quad]` of values, where lanes are quads.
const POSITIONS_IN_BLOCK = 64u;
const KEY_WORDS = {{KEY_WORDS}}u; // of a unit of keys: 4 in f32, 2 in f16
const VALUE_WORDS = {{VALUE_WORDS}}u;

// Where the block that holds a position of a sequence begins, in words.
fn block_of(sequence: u32, cache: u32, block: u32) -> u32 {
    let entry = step[TABLES] + 2u * (sequence * step[N_CACHES] + cache);
    // blocks begin at multiples of 16 bytes
    return 4u * step[step[entry] + block - step[entry + 1u]];
}

fn key_unit(quads: u32, head: u32, quad: u32, position: u32) -> u32 {
    return KEY_WORDS * ((head * quads + quad) * POSITIONS_IN_BLOCK + position);
}

fn value_unit(n_heads: u32, key_quads: u32, quads: u32, head_quad: vec2<u32>, position: u32) -> u32 {
    let keys = KEY_WORDS * n_heads * key_quads * POSITIONS_IN_BLOCK;
    return keys + VALUE_WORDS * ((head_quad.x * POSITIONS_IN_BLOCK + position) * quads + head_quad.y);
}
