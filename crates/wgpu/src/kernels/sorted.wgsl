// Which rows each expert has, of many rows: tiles of up to 32 pairs of a row and a slot that chose the same one. One
// workgroup goes through all routes twice, a lane having the pairs of some experts: it counts them, then puts them down in
// ascending order, so that the same step has the same tiles.
struct Consts {
    counted: u32, // N_TOKENS or N_SELECTED
    n_experts: u32,
    n_used: u32,
    routes_offset: u32,
    routes_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> routes: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

const LANES = 256u;
const PAIRS = 32u; // of a tile
const WORDS = 2u + 2u * PAIRS; // of a tile

var<workgroup> ids: array<u32, LANES>;
var<workgroup> counts: array<u32, {{EXPERTS}}u>;
var<workgroup> seen: array<u32, {{EXPERTS}}u>;
var<workgroup> tiles: array<u32, {{EXPERTS}}u>; // which is the first

// Have the experts of some pairs, from `first` on, where all lanes see them.
fn stage(first: u32, pairs: u32, lane: u32) {
    workgroupBarrier();
    let pair = first + lane;
    ids[lane] = NONE;
    if (pair < pairs) {
        let row = pair / c.n_used;
        ids[lane] = u32(routes[row * c.routes_stride + c.routes_offset + pair % c.n_used]);
    }
    workgroupBarrier();
}

@compute @workgroup_size(LANES)
fn main(@builtin(local_invocation_index) lane: u32) {
    let pairs = step[c.counted] * c.n_used;
    for (var e = lane; e < c.n_experts; e += LANES) {
        counts[e] = 0u;
        seen[e] = 0u;
    }
    for (var first = 0u; first < pairs; first += LANES) {
        stage(first, pairs, lane);
        for (var e = lane; e < c.n_experts; e += LANES) {
            var n = 0u;
            for (var i = 0u; i < LANES; i++) {
                n += select(0u, 1u, ids[i] == e);
            }
            counts[e] += n;
        }
    }
    workgroupBarrier();
    if (lane == 0u) {
        var n = 0u;
        for (var e = 0u; e < c.n_experts; e++) {
            tiles[e] = n;
            n += (counts[e] + PAIRS - 1u) / PAIRS;
        }
        out[0] = n;
    }
    workgroupBarrier();
    for (var e = lane; e < c.n_experts; e += LANES) {
        for (var first = 0u; first < counts[e]; first += PAIRS) {
            let to = 1u + (tiles[e] + first / PAIRS) * WORDS;
            out[to] = e;
            out[to + 1u] = min(counts[e] - first, PAIRS);
        }
    }
    for (var first = 0u; first < pairs; first += LANES) {
        stage(first, pairs, lane);
        for (var e = lane; e < c.n_experts; e += LANES) {
            for (var i = 0u; i < LANES; i++) {
                if (ids[i] == e) {
                    let pair = first + i;
                    let begin = pair / c.n_used * c.routes_stride + c.routes_offset + pair % c.n_used;
                    let tile = tiles[e] + seen[e] / PAIRS;
                    let to = 1u + tile * WORDS + 2u + 2u * (seen[e] % PAIRS);
                    out[to] = pair;
                    out[to + 1u] = bitcast<u32>(routes[begin + c.n_used]);
                    seen[e] += 1u;
                }
            }
        }
    }
}
