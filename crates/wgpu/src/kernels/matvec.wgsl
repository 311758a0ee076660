// Few rows of activations times a matrix. A team of lanes shares ROWS weight rows: each lane takes every TEAM-th chunk of
// 32 weights, so that neighbours read neighbouring 16 bytes, and multiplies it with AT_ONCE rows of activations.
const AT_ONCE = {{AT_ONCE}}u;
const ROWS = {{ROWS}}u;
const TEAM = 32u;
const TEAMS = {{TEAMS}}u;

var<workgroup> partial: array<f32, AT_ONCE * ROWS * TEAM * TEAMS>;

fn sum_of(team: u32, row: u32, n: u32) -> f32 {
    let first = ((team * ROWS + row) * AT_ONCE + n) * TEAM;
    var sum = 0.0;
    for (var lane = 0u; lane < TEAM; lane++) {
        sum += partial[first + lane];
    }
    return sum;
}

@compute @workgroup_size(TEAM * TEAMS)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let lane = thread % TEAM;
    let team = thread / TEAM;
    let group = id.x + id.y * grid.x;
    let first = (group * TEAMS + team) * ROWS;
    let first_n = id.z * AT_ONCE;
    let base = (first_n * c.x_stride + c.x_offset) / 4u;
    var sums: array<f32, AT_ONCE * ROWS>;
    for (var chunk = lane; chunk < c.chunks; chunk += TEAM) {
        for (var half = 0u; half < 2u; half++) { // unrolled
            var xs: array<vec4<f32>, 4u * AT_ONCE>;
            var x_sums: array<f32, AT_ONCE>;
            for (var n = 0u; n < AT_ONCE; n++) { // unrolled
                let begins = n * (c.x_stride / 4u) + base + 8u * chunk + 4u * half;
                xs[4u * n] = x[begins];
                xs[4u * n + 1u] = x[begins + 1u];
                xs[4u * n + 2u] = x[begins + 2u];
                xs[4u * n + 3u] = x[begins + 3u];
                if (HAS_MIN) {
                    x_sums[n] = dot(xs[4u * n] + xs[4u * n + 1u] + xs[4u * n + 2u] + xs[4u * n + 3u], vec4(1.0));
                }
            }
            for (var r = 0u; r < ROWS; r++) { // unrolled
                let row = min(first + r, c.rows - 1u);
                let w = codes16(row * c.chunks + chunk, half);
                let s = scale16(row, chunk, half);
                for (var n = 0u; n < AT_ONCE; n++) { // unrolled
                    let product = dot(w[0], xs[4u * n]) + dot(w[1], xs[4u * n + 1u])
                        + dot(w[2], xs[4u * n + 2u]) + dot(w[3], xs[4u * n + 3u]);
                    var sum = s.x * product;
                    if (HAS_MIN) {
                        sum -= s.y * x_sums[n];
                    }
                    sums[r * AT_ONCE + n] += sum;
                }
            }
        }
    }
    for (var i = 0u; i < AT_ONCE * ROWS; i++) { // unrolled
        partial[(team * ROWS * AT_ONCE + i) * TEAM + lane] = sums[i];
    }
    workgroupBarrier();
    // a lane has one output: of a gate and its neighbour the first row's lane
    let n = lane % AT_ONCE;
    let at = first_n + n;
    let is_gated = c.gate_kind != 0u;
    let r = lane / AT_ONCE * select(1u, 2u, is_gated);
    let row = first + r;
    if (r < ROWS && row < c.rows && at < step[c.counted]) {
        let y = biased(sum_of(team, r, n), row);
        var beside = 0.0;
        if (is_gated) {
            beside = biased(sum_of(team, r + 1u, n), row + 1u);
        }
        put(at, (c.first + row) / select(1u, 2u, is_gated), finished(y, beside));
    }
}
