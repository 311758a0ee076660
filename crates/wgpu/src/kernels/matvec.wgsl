// Few rows of activations times a matrix. A team of lanes shares ROWS weight rows: each lane takes every TEAM-th chunk of
// 32 weights, so that neighbours read neighbouring 16 bytes, and multiplies it with AT_ONCE rows of activations.
const AT_ONCE = {{AT_ONCE}}u;
const ROWS = {{ROWS}}u;

@compute @workgroup_size(TEAM * TEAMS)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    {{LANE}}
) {
    let thread = {{THREAD}};
    let lane = thread % TEAM;
    let team = thread / TEAM;
    let group = id.x + id.y * grid.x;
    let first = (group * TEAMS + team) * ROWS;
    let first_n = id.z * AT_ONCE;
    // a lane has one output: of a gate and its neighbour the first row's lane. What is added to it is asked for now, so that
    // nobody waits for it in the end
    let n = lane % AT_ONCE;
    let at = first_n + n;
    let is_gated = c.gate_kind != 0u;
    let r = lane / AT_ONCE * select(1u, 2u, is_gated);
    let row = first + r;
    let is_put = r < ROWS && row < c.rows && at < step[c.counted];
    var added = vec3(0.0);
    if (is_put) {
        added = vec3(bias_of(row), 0.0, residual_of(at, (c.first + row) / select(1u, 2u, is_gated)));
        if (is_gated) {
            added.y = bias_of(row + 1u);
        }
    }
    var begins: array<u32, AT_ONCE>;
    for (var n = 0u; n < AT_ONCE; n++) { // unrolled
        begins[n] = (row_of(first_n + n, c.x_chosen) * c.x_stride + c.x_offset) / 4u;
    }
    var sums: array<f32, SUMS>;
    for (var chunk = lane; chunk < c.chunks; chunk += TEAM) {
        for (var half = 0u; half < 2u; half++) { // unrolled
            var acts: array<Acts, AT_ONCE>;
            for (var n = 0u; n < AT_ONCE; n++) { // unrolled
                let at = begins[n] + 8u * chunk + 4u * half;
                acts[n] = acts16(Sixteen(x[at], x[at + 1u], x[at + 2u], x[at + 3u]));
            }
            for (var r = 0u; r < ROWS; r++) { // unrolled
                let row = min(first + r, c.rows - 1u);
                let w = codes16(row * c.chunks + chunk, half);
                let s = scale16(row, chunk, half);
                for (var n = 0u; n < AT_ONCE; n++) { // unrolled
                    sums[r * AT_ONCE + n] += scaled16(w, s, acts[n]);
                }
            }
        }
    }
    keep(sums, team, lane, width);
    workgroupBarrier();
    if (is_put) {
        let y = sum_of(team, r * AT_ONCE + n, width) + added.x;
        var beside = 0.0;
        if (is_gated) {
            beside = sum_of(team, (r + 1u) * AT_ONCE + n, width) + added.y;
        }
        put(at, (c.first + row) / select(1u, 2u, is_gated), finished(y, beside) + added.z);
    }
}
