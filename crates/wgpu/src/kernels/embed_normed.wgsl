// Rows of a table, as `embed.wgsl` finds them, and their RMS norms beside. A workgroup has a row.
struct Consts {
    rows: u32,
    chunks: u32,
    first: u32,
    d_stride: u32,
    s_base: u32,
    s_stride: u32,
    list: u32, // TOKENS or POSITIONS, or NONE for row 0
    out_offset: u32,
    out_stride: u32,
    normed_offset: u32,
    normed_stride: u32,
    dim: u32, // numbers of a row, without what fills it up
    weight: u32, // where the norm's factors begin in `vectors`, or NONE
    eps: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(5) var<storage, read> vectors: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read_write> normed: array<f32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var row = 0u;
    if (c.list != NONE) {
        row = step[step[c.list] + id.y];
    }
    if (row < c.first || row >= c.first + c.rows) {
        return;
    }
    let begins = (id.y * c.out_stride + c.out_offset) / 4u;
    var mine = 0.0;
    for (var i = lane; i < 2u * c.chunks; i += LANES) {
        let w = weights16(row - c.first, i / 2u, i % 2u);
        for (var k = 0u; k < 4u; k++) { // unrolled
            mine += dot(w[k], w[k]);
            out[begins + 4u * i + k] = w[k];
        }
    }
    let scale = 1.0 / sqrt(total(lane, mine) / f32(c.dim) + c.eps);
    let to = id.y * c.normed_stride + c.normed_offset;
    // a lane has the numbers that it wrote
    for (var i = lane; i < 2u * c.chunks; i += LANES) {
        for (var k = 16u * i; k < min(16u * i + 16u, c.dim); k++) {
            var y = out[begins + k / 4u][k % 4u] * scale;
            if (c.weight != NONE) {
                y *= vectors[c.weight + k];
            }
            normed[to + k] = y;
        }
    }
}
