// A row of activations times some pieces of a matrix: the experts that it chose, or, one after another, those of its
// heads. The product with each has a slot of its own in the row's output. Lanes are as in `matvec.wgsl`; a matrix in
// several parts is gone through once for each.
const AT_ONCE = {{AT_ONCE}}u;
const ROWS = {{ROWS}}u;

@compute @workgroup_size(TEAM * TEAMS)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    {{LANE}}
) {
    let thread = {{THREAD}};
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
    var sums: array<f32, SUMS>;
    for (var chunk = lane; chunk < end; chunk += TEAM) {
        for (var half = 0u; half < 2u; half++) { // unrolled
            var acts: array<Acts, AT_ONCE>;
            for (var n = 0u; n < AT_ONCE; n++) { // unrolled
                let begin = n * (c.x_stride / 4u) + base + 8u * chunk + 4u * half;
                acts[n] = acts16(Sixteen(x[begin], x[begin + 1u], x[begin + 2u], x[begin + 3u]));
            }
            for (var r = 0u; r < ROWS; r++) { // unrolled
                let row = clamp(low + r, c.first, end_row - 1u) - c.first;
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
        let y = weighed(sum_of(team, r * AT_ONCE + n, width), row, factor);
        var beside = 0.0;
        if (is_gated) {
            beside = weighed(sum_of(team, (r + 1u) * AT_ONCE + n, width), row + 1u, factor);
        }
        out[to] = finished(y, beside);
    }
}
