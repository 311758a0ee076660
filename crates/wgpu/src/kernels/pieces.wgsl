// A row of activations times some pieces of a matrix: the experts that it chose, or, one after another, those of its
// heads. The product with each has a slot of its own in the row's output. Lanes are as in `matvec.wgsl`; a matrix in
// several parts is gone through once for each.
struct Consts {
    rows: u32, // of this part of the matrix
    chunks: u32, // of 32 weights, in a row
    first: u32, // number of the part's first row in the matrix
    d_stride: u32, // words of `scales` for the d of a row
    s_base: u32, // where the scales of groups begin
    s_stride: u32, // their words in a row
    counted: u32, // N_TOKENS or N_SELECTED
    each: u32, // rows of the matrix in a piece
    skipped: u32, // of these, before those that are multiplied
    taken: u32, // how many are multiplied
    routes_offset: u32, // of the numbers of pieces in a row's routes; NONE: slots are pieces
    routes_stride: u32,
    weights: u32, // of the factors on the products in a row's routes; NONE for 1
    bias: u32, // where it begins in `vectors`, or NONE
    x_offset: u32,
    x_stride: u32,
    x_pitch: u32, // from what the first slot is multiplied with to the next one's
    out_offset: u32,
    out_stride: u32,
    out_pitch: u32, // from a slot to the next one; what its products do not fill is zeros
    act_kind: u32,
    gate_kind: u32, // 0 for none; else neighbouring rows are a gate and what it lets through
    act_a: f32,
    act_b: f32,
    act_c: f32,
    act_d: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(5) var<storage, read> vectors: array<f32>;
@group(0) @binding(6) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> routes: array<f32>;
@group(0) @binding(8) var<storage, read_write> out: array<f32>;

const AT_ONCE = {{AT_ONCE}}u;
const ROWS = {{ROWS}}u;
const TEAM = 32u;
const TEAMS = 2u;

var<workgroup> partial: array<f32, AT_ONCE * ROWS * TEAM * TEAMS>;

fn sum_of(team: u32, row: u32, n: u32) -> f32 {
    let first = ((team * ROWS + row) * AT_ONCE + n) * TEAM;
    var sum = 0.0;
    for (var lane = 0u; lane < TEAM; lane++) {
        sum += partial[first + lane];
    }
    return sum;
}

// The product with a row of the matrix, with its bias and the factor of its slot.
fn weighed(sum: f32, row: u32, at: u32, slot: u32) -> f32 {
    var y = sum;
    if (c.bias != NONE) {
        y += vectors[c.bias + row];
    }
    if (c.weights != NONE) {
        y *= routes[at * c.routes_stride + c.weights + slot];
    }
    return y;
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
        piece = u32(routes[first_n * c.routes_stride + c.routes_offset + slot]);
    }
    let begins = piece * c.each + c.skipped;
    let low = begins + first;
    let end_row = c.first + c.rows;
    let is_here = first < c.taken && low + ROWS > c.first && low < end_row;
    let end = select(0u, 2u * c.chunks, is_here);
    let base = (first_n * c.x_stride + c.x_offset + slot * c.x_pitch) / 4u;
    var sums: array<f32, AT_ONCE * ROWS>;
    for (var at = 2u * lane; at < end; at += 2u * TEAM) {
        for (var half = at; half < at + 2u; half++) {
            var xs: array<vec4<f32>, 4u * AT_ONCE>;
            var x_sums: array<f32, AT_ONCE>;
            for (var n = 0u; n < AT_ONCE; n++) {
                let begin = n * (c.x_stride / 4u) + base + 4u * half;
                xs[4u * n] = x[begin];
                xs[4u * n + 1u] = x[begin + 1u];
                xs[4u * n + 2u] = x[begin + 2u];
                xs[4u * n + 3u] = x[begin + 3u];
                if (HAS_MIN) {
                    x_sums[n] = dot(xs[4u * n] + xs[4u * n + 1u] + xs[4u * n + 2u] + xs[4u * n + 3u], vec4(1.0));
                }
            }
            for (var r = 0u; r < ROWS; r++) {
                let row = clamp(low + r, c.first, end_row - 1u) - c.first;
                let w = codes16(row * 2u * c.chunks + half);
                let s = scale16(row, half);
                for (var n = 0u; n < AT_ONCE; n++) {
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
    for (var i = 0u; i < AT_ONCE * ROWS; i++) {
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
        let y = weighed(sum_of(team, r, n), row, at, slot);
        var beside = 0.0;
        if (is_gated) {
            beside = weighed(sum_of(team, r + 1u, n), row + 1u, at, slot);
        }
        out[to] = finished(y, beside);
    }
}
