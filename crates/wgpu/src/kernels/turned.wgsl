// What the rows of pieces of a matrix sum up to, each times a number of the slot's own: a product with the piece turned.
// A workgroup has 128 columns of one row and slot: a lane has 16 of them and every eighth row. Parts of a matrix add to one
// another.
struct Consts {
    rows: u32, // of this part of the matrix
    chunks: u32, // of 32 weights, in a row
    first: u32, // number of the part's first row in the matrix
    d_stride: u32, // words of `scales` for the d of a row
    s_base: u32, // where the scales of groups begin
    s_stride: u32, // their words in a row
    each: u32, // rows of the matrix in a piece
    taken: u32, // how many are summed up, the first ones
    x_offset: u32,
    x_stride: u32,
    x_pitch: u32, // from a slot's numbers to the next one's
    out_offset: u32,
    out_stride: u32,
    out_pitch: u32, // from a slot to the next one: whole chunks
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(5) var<storage, read> x: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<vec4<f32>>;

const UNITS = 8u;
const SHARES = 8u;

var<workgroup> partial: array<vec4<f32>, UNITS * SHARES * 4u>;

@compute @workgroup_size(UNITS * SHARES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let at = id.x * UNITS + lane % UNITS;
    let begins = id.z * c.each;
    let numbers = id.y * c.x_stride + c.x_offset + id.z * c.x_pitch;
    let end = select(0u, c.taken, at < 2u * c.chunks);
    var sums: array<vec4<f32>, 4>;
    for (var j = lane / UNITS; j < end; j += SHARES) {
        let row = begins + j;
        if (row >= c.first && row < c.first + c.rows) {
            let w = weights16(row - c.first, at / 2u, at % 2u);
            let factor = x[numbers + j];
            sums[0] += factor * w[0];
            sums[1] += factor * w[1];
            sums[2] += factor * w[2];
            sums[3] += factor * w[3];
        }
    }
    for (var k = 0u; k < 4u; k++) {
        partial[4u * lane + k] = sums[k];
    }
    workgroupBarrier();
    let unit = id.x * UNITS + lane / 4u;
    if (lane >= 4u * UNITS || unit >= 2u * c.chunks) {
        return;
    }
    var y = vec4(0.0);
    for (var share = 0u; share < SHARES; share++) {
        y += partial[4u * (share * UNITS + lane / 4u) + lane % 4u];
    }
    let to = (id.y * c.out_stride + c.out_offset + id.z * c.out_pitch) / 4u + 4u * unit + lane % 4u;
    if (c.first > 0u) {
        y += out[to];
    }
    out[to] = y;
}
