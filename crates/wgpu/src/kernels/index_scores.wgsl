// What an indexer makes of a block's keys for one row: a lane is a position. Of a row: scores by choice and position, then as
// much room for those of units.
struct Consts {
    n_heads: u32,
    dim: u32,
    cache: u32,
    limit: u32, // rows before this position choose all
    is_weighted: u32, // heads have one choice together
    w_offset: u32,
    w_stride: u32,
    q_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read> blocks: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> scores: array<f32>;

const LANES = 64u;

fn key(unit: u32) -> vec4<f32> {
    return {{KEY}};
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = id.y;
    let position = position_of(row);
    let j = id.x * POSITIONS_IN_BLOCK + lane;
    if (position < c.limit || j > position) {
        return;
    }
    let quads = (c.dim + 3u) / 4u;
    let base = block_of(sequence_of(row), c.cache, id.x);
    let positions = POSITIONS_IN_BLOCK * step[N_BLOCKS];
    let n_choices = select(c.n_heads, 1u, c.is_weighted == 1u);
    let to = 2u * row * n_choices * positions + j;
    var all = 0.0;
    for (var h = 0u; h < c.n_heads; h++) {
        let query = row * c.q_stride / 4u + h * quads;
        var product = 0.0;
        for (var i = 0u; i < quads; i++) {
            product += dot(q[query + i], key(base + key_unit(quads, 0u, i, lane)));
        }
        if (c.is_weighted == 1u) {
            all += w[row * c.w_stride + c.w_offset + h] * max(product, 0.0);
        } else {
            scores[to + h * positions] = product;
        }
    }
    if (c.is_weighted == 1u) {
        scores[to] = all;
    }
}
