// The weighted sum of what the experts that a row chose make of its slots. A workgroup has some outputs of one row; a team
// of lanes shares the chunks of all slots, so that narrow experts keep it busy. Parts of a matrix add to one another.
struct Consts {
    rows: u32, // of this part of the matrix
    chunks: u32, // of 32 weights, in a row
    first: u32, // number of the part's first row in the matrix
    d_stride: u32, // words of `scales` for the d of a row
    s_base: u32, // where the scales of groups begin
    s_stride: u32, // their words in a row
    each: u32, // rows of the matrix in an expert
    n_used: u32,
    routes_offset: u32, // of the numbers of experts in a row's routes
    routes_stride: u32,
    weights: u32, // of the factors on what they make; NONE for 1
    bias: u32, // where it begins in `beside`, or NONE
    r_offset: u32, // of the residual in `beside`, or NONE
    r_stride: u32,
    x_offset: u32,
    x_stride: u32,
    x_pitch: u32, // from a slot to the next one
    out_offset: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
// biases or a residual: no mixture has both
@group(0) @binding(5) var<storage, read> beside: array<f32>;
@group(0) @binding(6) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> routes: array<f32>;
@group(0) @binding(8) var<storage, read_write> out: array<f32>;

const ROWS = 2u;
const TEAM = 32u;
const TEAMS = 2u;

var<workgroup> partial: array<f32, ROWS * TEAM * TEAMS>;

fn expert(n: u32, slot: u32) -> u32 {
    return u32(routes[n * c.routes_stride + c.routes_offset + slot]);
}

fn weight(n: u32, slot: u32) -> f32 {
    if (c.weights == NONE) {
        return 1.0;
    }
    return routes[n * c.routes_stride + c.weights + slot];
}

fn is_here(row: u32) -> bool {
    return row >= c.first && row < c.first + c.rows;
}

@compute @workgroup_size(TEAM * TEAMS)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let lane = thread % TEAM;
    let team = thread / TEAM;
    let first = (id.x * TEAMS + team) * ROWS;
    let n = id.y;
    var sums: array<f32, ROWS>;
    for (var i = lane; i < c.n_used * c.chunks; i += TEAM) {
        let slot = i / c.chunks;
        let chunk = i % c.chunks;
        let begins = expert(n, slot) * c.each + first;
        if (begins + ROWS <= c.first || begins >= c.first + c.rows) {
            continue;
        }
        let factor = weight(n, slot);
        let base = (n * c.x_stride + c.x_offset + slot * c.x_pitch) / 4u;
        for (var half = 0u; half < 2u; half++) { // unrolled
            let begin = base + 8u * chunk + 4u * half;
            let a = x[begin];
            let b = x[begin + 1u];
            let e = x[begin + 2u];
            let f = x[begin + 3u];
            for (var r = 0u; r < ROWS; r++) { // unrolled
                if (is_here(begins + r)) {
                    let row = begins + r - c.first;
                    let w = codes16(row * c.chunks + chunk, half);
                    let s = scale16(row, chunk, half);
                    var sum = s.x * (dot(w[0], a) + dot(w[1], b) + dot(w[2], e) + dot(w[3], f));
                    if (HAS_MIN) {
                        sum -= s.y * dot(a + b + e + f, vec4(1.0));
                    }
                    sums[r] += factor * sum;
                }
            }
        }
    }
    for (var r = 0u; r < ROWS; r++) { // unrolled
        partial[(team * ROWS + r) * TEAM + lane] = sums[r];
    }
    workgroupBarrier();
    let local = first + lane;
    if (lane >= ROWS || local >= c.each) {
        return;
    }
    var y = 0.0;
    for (var i = 0u; i < TEAM; i++) {
        y += partial[(team * ROWS + lane) * TEAM + i];
    }
    if (c.bias != NONE) {
        for (var slot = 0u; slot < c.n_used; slot++) {
            let row = expert(n, slot) * c.each + local;
            if (is_here(row)) {
                y += weight(n, slot) * beside[c.bias + row];
            }
        }
    }
    let to = n * c.out_stride + c.out_offset + local;
    if (c.first > 0u) {
        y += out[to];
    } else if (c.r_offset != NONE) {
        y += beside[n * c.r_stride + c.r_offset + local];
    }
    out[to] = y;
}
