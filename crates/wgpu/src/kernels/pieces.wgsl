// A row of activations times some pieces of a matrix: the experts that it chose, or, one after another, those of its
// heads. The product with each has a slot of its own in the row's output. Lanes are as in `matvec.wgsl`; a matrix in
// several parts is gone through once for each.
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
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let lane = thread % TEAM;
    let team = thread / TEAM;
    let first = (id.x * TEAMS + team) * ROWS;
    let first_n = id.y * AT_ONCE;
    let slot = id.z;
    var piece = slot;
    // rows choose pieces for themselves: then a workgroup has one row
    if (c.routes_offset != NONE) {
        piece = u32(bitcast<f32>(routes[first_n * c.routes_stride + c.routes_offset + slot]));
    }
    let begins = piece * c.each + c.skipped;
    let low = begins + first;
    let end_row = c.first + c.rows;
    let is_here = first < c.taken && low + ROWS > c.first && low < end_row;
    let end = select(0u, c.chunks, is_here);
    let base = (first_n * c.x_stride + c.x_offset + slot * c.x_pitch) / 4u;
    var sums: array<f32, AT_ONCE * ROWS>;
    for (var chunk = lane; chunk < end; chunk += TEAM) {
        for (var half = 0u; half < 2u; half++) { // unrolled
            var xs: array<vec4<f32>, 4u * AT_ONCE>;
            var x_sums: array<f32, AT_ONCE>;
            for (var n = 0u; n < AT_ONCE; n++) { // unrolled
                let begin = n * (c.x_stride / 4u) + base + 8u * chunk + 4u * half;
                xs[4u * n] = x[begin];
                xs[4u * n + 1u] = x[begin + 1u];
                xs[4u * n + 2u] = x[begin + 2u];
                xs[4u * n + 3u] = x[begin + 3u];
                if (HAS_MIN) {
                    x_sums[n] = dot(xs[4u * n] + xs[4u * n + 1u] + xs[4u * n + 2u] + xs[4u * n + 3u], vec4(1.0));
                }
            }
            for (var r = 0u; r < ROWS; r++) { // unrolled
                let row = clamp(low + r, c.first, end_row - 1u) - c.first;
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
    let by = select(1u, 2u, is_gated);
    let r = lane / AT_ONCE * by;
    let local = first + r;
    if (r >= ROWS || at >= step[c.counted] || local >= by * c.out_pitch) {
        return;
    }
    let row = begins + local;
    let to = at * c.out_stride + c.out_offset + slot * c.out_pitch + local / by;
    if (local >= c.taken) {
        out[to] = 0.0;
    } else if (row >= c.first && row < end_row) {
        let factor = at * c.routes_stride + c.weights + slot;
        let y = weighed(sum_of(team, r, n), row, factor);
        var beside = 0.0;
        if (is_gated) {
            beside = weighed(sum_of(team, r + 1u, n), row + 1u, factor);
        }
        out[to] = finished(y, beside);
    }
}
