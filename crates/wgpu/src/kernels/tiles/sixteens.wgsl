// Tiles of 32 rows of two times sixteen codes, with what each sixteen are scaled with.
const PITCH = 3u; // of 2 used: neighbouring rows lie in other banks

var<workgroup> tile_x: array<Acts, 32u * PITCH>;
var<workgroup> tile_w: array<Codes, 32u * PITCH>;
var<workgroup> tile_scales: array<vec2<f32>, 32u * PITCH>;

fn products(thread: u32, weight_row: u32, subgroup: u32) -> array<vec4<f32>, 4> {
    let chunks = own_chunks();
    let column = thread % 8u;
    let line = thread / 8u;
    let own = thread % 2u;
    let to = (thread / 2u) * PITCH + own;
    var sums: array<vec4<f32>, 4>;
    for (var chunk = 0u; chunk < chunks; chunk++) {
        let begin = starts[thread / 2u] + 8u * chunk + 4u * own;
        tile_x[to] = acts16(Sixteen(x[begin], x[begin + 1u], x[begin + 2u], x[begin + 3u]));
        tile_w[to] = codes16(weight_row * c.chunks + chunk, own);
        tile_scales[to] = scale16(weight_row, chunk, own);
        workgroupBarrier();
        for (var half = 0u; half < 2u; half++) { // unrolled
            for (var j = 0u; j < 4u; j++) { // unrolled
                let at = (4u * column + j) * PITCH + half;
                let w = tile_w[at];
                let scale = tile_scales[at];
                for (var i = 0u; i < 4u; i++) { // unrolled
                    sums[i][j] += scaled16(w, scale, tile_x[(4u * line + i) * PITCH + half]);
                }
            }
        }
        workgroupBarrier();
    }
    return sums;
}

