// Many rows of activations times a matrix, in tiles of 32 x 32 through workgroup memory. A lane has 4 x 4 sums.
const PITCH = 9u; // of 8 used: neighbouring rows lie in other banks

var<workgroup> tile_x: array<vec4<f32>, 32u * PITCH>;
var<workgroup> tile_w: array<vec4<f32>, 32u * PITCH>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_row = id.x * 32u;
    let first_n = id.y * 32u;
    let column = thread % 8u;
    let line = thread / 8u;
    let weight_row = min(first_row + thread / 2u, c.rows - 1u);
    let half = thread % 2u;
    var sums: array<vec4<f32>, 4>;
    for (var chunk = 0u; chunk < c.chunks; chunk++) {
        for (var i = 0u; i < 4u; i++) { // unrolled
            let n = line + 8u * i;
            tile_x[n * PITCH + column] = x[((first_n + n) * c.x_stride + c.x_offset) / 4u + 8u * chunk + column];
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
    let n_rows = step[c.counted];
    let each = select(1u, 2u, c.gate_kind != 0u);
    for (var i = 0u; i < 4u; i++) { // unrolled
        let n = first_n + 4u * line + i;
        for (var j = 0u; j < 4u; j += each) {
            let row = first_row + 4u * column + j;
            if (n < n_rows && row < c.rows) {
                var beside = 0.0;
                if (each == 2u) {
                    beside = biased(sums[i][min(j + 1u, 3u)], row + 1u);
                }
                put(n, (c.first + row) / each, finished(biased(sums[i][j], row), beside));
            }
        }
    }
}
