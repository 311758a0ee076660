// Rows of a table, by token, by position, or its only one. A table in several parts is looked up once for each.
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
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(5) var<storage, read_write> out: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var row = 0u;
    if (c.list != NONE) {
        row = step[step[c.list] + id.y];
    }
    if (id.x >= 2u * c.chunks || row < c.first || row >= c.first + c.rows) {
        return;
    }
    let w = weights16(row - c.first, id.x / 2u, id.x % 2u);
    let to = (id.y * c.out_stride + c.out_offset) / 4u + 4u * id.x;
    out[to] = w[0];
    out[to + 1u] = w[1];
    out[to + 2u] = w[2];
    out[to + 3u] = w[3];
}
