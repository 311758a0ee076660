// Rows of activations as `wide.wgsl` multiplies them: of f16, times the power of two that brings the largest number of a
// row below 1, whose exponent stands behind the row. A workgroup has a row.
struct Consts {
    chunks: u32, // of 32 numbers
    x_offset: u32,
    x_stride: u32,
    x_chosen: u32, // 1 where its rows are all of the step, of which the selected ones are multiplied
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> out: array<vec4<f16>>;

// The exponent of what is no number.
const NO_NUMBER = 1000.0;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var row = id.x;
    if (c.x_chosen == 1u) {
        row = step[step[SELECTED] + id.x];
    }
    let begin = (row * c.x_stride + c.x_offset) / 4u;
    let quads = 8u * c.chunks;
    let to = id.x * (quads + 2u);
    var most = vec4(0.0);
    // what is no number stays none in a sum
    var all = vec4(0.0);
    for (var first = lane; first < quads; first += 4u * LANES) {
        for (var k = 0u; k < 4u; k++) { // unrolled
            let y = x[begin + min(first + k * LANES, quads - 1u)];
            most = max(most, abs(y));
            all += y;
        }
    }
    let sum = total(lane, all.x + all.y + all.z + all.w);
    let largest = greatest(lane, max(max(most.x, most.y), max(most.z, most.w)));
    let is_finite = (bitcast<u32>(sum) & 0x7f800000u) != 0x7f800000u;
    // of normal numbers whose power has an inverse
    let exponent = clamp(i32((bitcast<u32>(largest) >> 23u) & 0xffu) - 126, -100, 126);
    let inverse = bitcast<f32>(u32(127 - exponent) << 23u);
    for (var i = lane; i < quads; i += LANES) {
        out[to + i] = vec4<f16>(x[begin + i] * inverse);
    }
    if (lane == 0u) {
        out[to + quads] = vec4<f16>(vec4(select(NO_NUMBER, f32(exponent), is_finite)));
    }
}
