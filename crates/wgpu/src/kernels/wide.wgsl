// Many rows of activations, which `rounded.wgsl` made f16 of, times a matrix, in tiles of 64 x 64, of which each of four
// subgroups has a quarter as 2 x 2 matrices of 16 x 16. Sums are of f32.
const PITCH = 40u; // of 32 used: a multiple of 16 bytes, and neighbouring rows lie in other banks
const SUM_PITCH = 72u; // of 64 used
// what weights are multiplied with, so that small ones are normal numbers
const BOOST = {{BOOST}};

var<workgroup> tile_x: array<f16, 64u * PITCH>;
var<workgroup> tile_w: array<f16, 64u * PITCH>;
var<workgroup> tile_sums: array<f32, 64u * SUM_PITCH>;
// what the sums of each row of activations are multiplied with
var<workgroup> factors: array<f32, 64>;

alias SixteenHalves = array<vec4<f16>, 4>;

fn sixteen_of(begin: u32) -> SixteenHalves {
    return SixteenHalves(x[begin], x[begin + 1u], x[begin + 2u], x[begin + 3u]);
}

fn factor_of(exponent: f32) -> f32 {
    let bits = u32(i32(min(exponent, 127.0)) + 127) << 23u;
    return bitcast<f32>(select(bits, 0x7fc00000u, exponent > 500.0));
}

@compute @workgroup_size(128)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    let first_row = id.x * 64u;
    let first_n = id.y * 64u;
    let half = thread % 2u;
    let weight_row = min(first_row + thread / 2u, c.rows - 1u);
    let n_rows = step[c.counted];
    // what is beyond the last row is not put down
    let x_stride = 8u * c.chunks + 2u;
    if (thread < 64u) {
        let end = min(first_n + thread, n_rows - 1u) * x_stride + 8u * c.chunks;
        factors[thread] = factor_of(f32(x[end].x)) / BOOST;
    }
    for (var i = thread; i < 64u * SUM_PITCH; i += 128u) {
        tile_sums[i] = 0.0;
    }
    workgroupBarrier();
    let begin = min(first_n + thread / 2u, n_rows - 1u) * x_stride + 4u * half;
    let quarter_n = (subgroup / 2u % 2u) * 32u;
    let quarter_row = (subgroup % 2u) * 32u;
    // no control flow depends on what a subgroup has
    var sums: array<coop_mat16x16<f32, C>, 4>;
    for (var i = 0u; i < 4u; i++) { // unrolled
        let at = (quarter_n + (i / 2u) * 16u) * SUM_PITCH + quarter_row + (i % 2u) * 16u;
        sums[i] = coopLoadT<coop_mat16x16<f32, C>>(&tile_sums[at], SUM_PITCH);
    }
    let to = (thread / 2u) * PITCH + 16u * half;
    var xs = sixteen_of(begin);
    var ws = weights16(weight_row, 0u, half);
    for (var chunk = 0u; chunk < c.chunks; chunk++) {
        for (var i = 0u; i < 16u; i++) { // unrolled
            tile_x[to + i] = xs[i / 4u][i % 4u];
        }
        for (var i = 0u; i < 16u; i++) { // unrolled
            tile_w[to + i] = f16(ws[i / 4u][i % 4u] * BOOST);
        }
        workgroupBarrier();
        // the next numbers are on their way while these are multiplied
        let next = min(chunk + 1u, c.chunks - 1u);
        xs = sixteen_of(begin + 8u * next);
        ws = weights16(weight_row, next, half);
        for (var k = 0u; k < 2u; k++) { // unrolled
            let at_x = quarter_n * PITCH + k * 16u;
            let at_w = quarter_row * PITCH + k * 16u;
            let a = coopLoadT<coop_mat16x16<f16, A>>(&tile_x[at_x], PITCH);
            let below = coopLoadT<coop_mat16x16<f16, A>>(&tile_x[at_x + 16u * PITCH], PITCH);
            let b = coopLoad<coop_mat16x16<f16, B>>(&tile_w[at_w], PITCH);
            let beside = coopLoad<coop_mat16x16<f16, B>>(&tile_w[at_w + 16u * PITCH], PITCH);
            sums[0] = coopMultiplyAdd(a, b, sums[0]);
            sums[1] = coopMultiplyAdd(a, beside, sums[1]);
            sums[2] = coopMultiplyAdd(below, b, sums[2]);
            sums[3] = coopMultiplyAdd(below, beside, sums[3]);
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) { // unrolled
        let at = (quarter_n + (i / 2u) * 16u) * SUM_PITCH + quarter_row + (i % 2u) * 16u;
        coopStoreT(sums[i], &tile_sums[at], SUM_PITCH);
    }
    workgroupBarrier();
    let each = select(1u, 2u, c.gate_kind != 0u);
    let column = thread % 16u;
    for (var i = thread / 16u; i < 64u; i += 8u) {
        let n = first_n + i;
        let factor = factors[i];
        for (var j = 0u; j < 4u; j++) {
            let row = first_row + 4u * column + j;
            if (j % each == 0u && n < n_rows && row < c.rows) {
                let at = i * SUM_PITCH + 4u * column + j;
                var beside = 0.0;
                if (each == 2u) {
                    beside = tile_sums[at + 1u] * factor + bias_of(row + 1u);
                }
                let y = finished(tile_sums[at] * factor + bias_of(row), beside);
                let to = (c.first + row) / each;
                put(n, to, y + residual_of(n, to));
            }
        }
    }
}
