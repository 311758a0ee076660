// Many rows of activations times a matrix, in tiles of 32 x 32 through workgroup memory. A lane has 4 x 4 sums.
// where each row of activations begins in `x`
var<workgroup> starts: array<u32, 32>;

// That a workgroup goes through.
fn own_chunks() -> u32 {
    return c.chunks;
}

{{TILES}}
@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
    {{LANE}}
) {
    let first_row = id.x * 32u;
    let first_n = id.y * 32u;
    let column = thread % 8u;
    let line = thread / 8u;
    let weight_row = min(first_row + thread / 2u, c.rows - 1u);
    if (thread < 32u) {
        starts[thread] = (row_of(first_n + thread, c.x_chosen) * c.x_stride + c.x_offset) / 4u;
    }
    workgroupBarrier();
    var sums = products(thread, weight_row, {{WHO}});
    let n_rows = step[c.counted];
    let each = select(1u, 2u, c.gate_kind != 0u);
    for (var i = 0u; i < 4u; i++) { // unrolled for drivers
        let n = first_n + 4u * line + i;
        for (var j = 0u; j < 4u; j++) { // unrolled for drivers
            let row = first_row + 4u * column + j;
            if (j % each == 0u && n < n_rows && row < c.rows) {
                var beside = 0.0;
                if (each == 2u) {
                    beside = sums[i][min(j + 1u, 3u)] + bias_of(row + 1u);
                }
                let y = finished(sums[i][j] + bias_of(row), beside);
                let to = (c.first + row) / each;
                put(n, to, y + residual_of(n, to));
            }
        }
    }
}
