// Before attention over latents: the rotated parts of queries and keys, queries as they were brought to the latents, the
// row `[c | k_pe]` into the cache. A workgroup has one head of one row, or what the row appends.
struct Consts {
    n_heads: u32,
    rank: u32, // numbers of a latent
    room: u32, // with the zeros behind them: a multiple of 4
    rope_dim: u32, // of the rotated part, which is even
    interleaved: u32,
    angles: u32, // which word of the step says where cos and sin are, or NONE
    temperature: u32, // the same for a factor of queries
    scale: f32,
    cache: u32,
    q_offset: u32,
    q_stride: u32,
    pe_offset: u32,
    pe_stride: u32,
    pe_pitch: u32, // from a head's to the next one's
    c_offset: u32,
    c_stride: u32,
    k_offset: u32,
    k_stride: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> q: array<f32>;
@group(0) @binding(3) var<storage, read> q_pe: array<f32>;
@group(0) @binding(4) var<storage, read> latents: array<f32>;
@group(0) @binding(5) var<storage, read> k_pe: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;
@group(0) @binding(7) var<storage, read_write> blocks: array<u32>;

const LANES = 64u;

// Element `i` of a rotated part that begins at `begins`, of the query or of the key.
fn part(is_query: bool, begins: u32, i: u32) -> f32 {
    if (is_query) {
        return q_pe[begins + i];
    }
    return k_pe[begins + i];
}

// The same rotated; 0 beyond the end.
fn turned(is_query: bool, begins: u32, i: u32, row: u32) -> f32 {
    if (i >= c.rope_dim) {
        return 0.0;
    }
    if (c.angles == NONE) {
        return part(is_query, begins, i);
    }
    let pairs = c.rope_dim / 2u;
    let is_interleaved = c.interleaved == 1u;
    let pair = select(i % pairs, i / 2u, is_interleaved);
    let one = part(is_query, begins, select(pair, 2u * pair, is_interleaved));
    let other = part(is_query, begins, select(pair + pairs, 2u * pair + 1u, is_interleaved));
    let angles = step[c.angles] + row * c.rope_dim;
    let cosine = bitcast<f32>(step[angles + 2u * pair]);
    let sine = bitcast<f32>(step[angles + 2u * pair + 1u]);
    let is_first = i == select(pair, 2u * pair, is_interleaved);
    return select(one * sine + other * cosine, one * cosine - other * sine, is_first);
}

fn latent(row: u32, i: u32) -> f32 {
    let at = row * c.c_stride + c.c_offset + min(i, c.rank - 1u);
    return select(0.0, latents[at], i < c.rank);
}

fn put_key(to: u32, x: vec4<f32>) {
{{PUT_KEY}}
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = id.y;
    let quads = (c.room + c.rope_dim + 3u) / 4u;
    if (id.x < c.n_heads) {
        var factor = c.scale;
        if (c.temperature != NONE) {
            factor *= bitcast<f32>(step[step[c.temperature] + row]);
        }
        let begin = row * c.q_stride + c.q_offset + id.x * c.room;
        let begins = row * c.pe_stride + c.pe_offset + id.x * c.pe_pitch;
        let to = row * c.out_stride + id.x * 4u * quads;
        for (var i = lane; i < c.room; i += LANES) {
            out[to + i] = q[begin + i] * factor;
        }
        for (var i = lane; i < 4u * quads - c.room; i += LANES) {
            out[to + c.room + i] = turned(true, begins, i, row) * factor;
        }
        return;
    }
    let position = position_of(row);
    let base = block_of(sequence_of(row), c.cache, position / POSITIONS_IN_BLOCK);
    let begins = row * c.k_stride + c.k_offset;
    for (var quad = lane; quad < quads; quad += LANES) {
        var four: vec4<f32>;
        for (var e = 0u; e < 4u; e++) {
            let i = 4u * quad + e;
            if (i < c.room) {
                four[e] = latent(row, i);
            } else {
                four[e] = turned(false, begins, i - c.room, row);
            }
        }
        put_key(base + key_unit(quads, 0u, quad, position % POSITIONS_IN_BLOCK), four);
    }
}
