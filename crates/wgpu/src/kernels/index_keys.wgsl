// Before an indexer scores: heads of queries are rotated, and its key enters the cache. A workgroup has one head of one row, or
// the key that the row appends.
struct Consts {
    n_heads: u32,
    dim: u32,
    rope_start: u32, // elements before those that rotate
    rotated: u32,
    interleaved: u32,
    q_angles: u32, // which word of the step says where cos and sin are, or NONE
    k_angles: u32,
    cache: u32,
    q_offset: u32,
    q_stride: u32,
    k_offset: u32,
    k_stride: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> q: array<f32>;
@group(0) @binding(3) var<storage, read> k: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;
@group(0) @binding(5) var<storage, read_write> blocks: array<u32>;

const LANES = 64u;

// Element `i` of a head that begins at `begins`.
fn element(is_query: bool, begins: u32, i: u32) -> f32 {
    if (is_query) {
        return q[begins + i];
    }
    return k[begins + i];
}

// The same rotated; 0 beyond the end.
fn turned(is_query: bool, begins: u32, i: u32, row: u32) -> f32 {
    if (i >= c.dim) {
        return 0.0;
    }
    let word = select(c.k_angles, c.q_angles, is_query);
    if (word == NONE || i < c.rope_start || i >= c.rope_start + c.rotated) {
        return element(is_query, begins, i);
    }
    let pairs = c.rotated / 2u;
    let at = i - c.rope_start;
    let is_interleaved = c.interleaved == 1u;
    let pair = select(at % pairs, at / 2u, is_interleaved);
    let first = select(pair, 2u * pair, is_interleaved);
    let second = select(pair + pairs, 2u * pair + 1u, is_interleaved);
    let one = element(is_query, begins, c.rope_start + first);
    let other = element(is_query, begins, c.rope_start + second);
    let angles = step[word] + row * c.rotated;
    let cosine = bitcast<f32>(step[angles + 2u * pair]);
    let sine = bitcast<f32>(step[angles + 2u * pair + 1u]);
    return select(one * sine + other * cosine, one * cosine - other * sine, at == first);
}

fn put_key(to: u32, x: vec4<f32>) {
{{PUT_KEY}}
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = id.y;
    let quads = (c.dim + 3u) / 4u;
    if (id.x < c.n_heads) {
        let begins = row * c.q_stride + c.q_offset + id.x * c.dim;
        for (var i = lane; i < 4u * quads; i += LANES) {
            out[row * c.out_stride + id.x * 4u * quads + i] = turned(true, begins, i, row);
        }
        return;
    }
    let position = position_of(row);
    let base = block_of(sequence_of(row), c.cache, position / POSITIONS_IN_BLOCK);
    let begins = row * c.k_stride + c.k_offset;
    for (var quad = lane; quad < quads; quad += LANES) {
        var four: vec4<f32>;
        for (var e = 0u; e < 4u; e++) {
            four[e] = turned(false, begins, 4u * quad + e, row);
        }
        put_key(base + key_unit(quads, 0u, quad, position % POSITIONS_IN_BLOCK), four);
    }
}
