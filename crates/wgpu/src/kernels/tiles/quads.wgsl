// Tiles of 32 x 32 numbers of f32.
const PITCH = 9u; // of 8 used: neighbouring rows lie in other banks

var<workgroup> tile_x: array<vec4<f32>, 32u * PITCH>;
var<workgroup> tile_w: array<vec4<f32>, 32u * PITCH>;

fn products(thread: u32, weight_row: u32, subgroup: u32) -> array<vec4<f32>, 4> {
    let chunks = own_chunks();
    let column = thread % 8u;
    let line = thread / 8u;
    let half = thread % 2u;
    var sums: array<vec4<f32>, 4>;
    for (var chunk = 0u; chunk < chunks; chunk++) {
        for (var i = 0u; i < 4u; i++) { // unrolled
            let n = line + 8u * i;
            tile_x[n * PITCH + column] = x[starts[n] + 8u * chunk + column];
        }
        let w = weights16(weight_row, chunk, half);
        let to = (thread / 2u) * PITCH + 4u * half;
        tile_w[to] = w[0];
        tile_w[to + 1u] = w[1];
        tile_w[to + 2u] = w[2];
        tile_w[to + 3u] = w[3];
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {
            let w0 = tile_w[(4u * column) * PITCH + k];
            let w1 = tile_w[(4u * column + 1u) * PITCH + k];
            let w2 = tile_w[(4u * column + 2u) * PITCH + k];
            let w3 = tile_w[(4u * column + 3u) * PITCH + k];
            for (var i = 0u; i < 4u; i++) { // unrolled
                let a = tile_x[(4u * line + i) * PITCH + k];
                sums[i] += vec4(dot(a, w0), dot(a, w1), dot(a, w2), dot(a, w3));
            }
        }
        workgroupBarrier();
    }
    return sums;
}

