// Which units a row chooses by their scores, in ascending order: a workgroup has one choice of one row. `program::Indexer` says
// what units are and which are chosen of equals.
struct Consts {
    unit: u32, // positions of one
    room: u32, // units of the list
    n_units: u32, // that are chosen
    n_last: u32, // of them, whatever their scores
    kind: u32, // score of a unit: 0 the greatest, 1 that of its last position, 2 that of its pool's last one
    pool: u32,
    n_choices: u32,
    out_offset: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read_write> scores: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const LANES = 256u;
const ABOVE_ALL = 0xffffffffu;
const NO_UNIT = -1.0;

var<workgroup> counts: array<u32, LANES>;

// A number in the order of scores, from its bits: zeros are equal whatever their sign.
fn ordered(bits: u32) -> u32 {
    if ((bits & 0x80000000u) == 0u) {
        return bits | 0x80000000u;
    }
    return select(~bits, 0x80000000u, bits == 0x80000000u);
}

// The score of a unit of a row at `position`, whose positions' scores begin at `begins`.
fn unit_score(begins: u32, u: u32, position: u32) -> u32 {
    if (c.kind == 2u) {
        let last = u / c.pool * c.pool + c.pool - 1u;
        // those without come before all others
        if (last > position) {
            return ordered(0x7f800000u);
        }
        return ordered(scores[begins + last]);
    }
    let end = min((u + 1u) * c.unit, position + 1u);
    if (c.kind == 1u) {
        return ordered(scores[begins + end - 1u]);
    }
    var most = 0u;
    for (var i = u * c.unit; i < end; i++) {
        most = max(most, ordered(scores[begins + i]));
    }
    return most;
}

fn total(lane: u32, mine: u32) -> u32 {
    counts[lane] = mine;
    workgroupBarrier();
    for (var n = LANES / 2u; n > 0u; n /= 2u) {
        if (lane < n) {
            counts[lane] += counts[lane + n];
        }
        workgroupBarrier();
    }
    let all = counts[0];
    workgroupBarrier();
    return all;
}

fn at_least(keys: u32, n: u32, least: u32, lane: u32) -> u32 {
    var mine = 0u;
    for (var u = lane; u < n; u += LANES) {
        mine += select(0u, 1u, scores[keys + u] >= least);
    }
    return total(lane, mine);
}

fn key_at(keys: u32, place: u32) -> u32 {
    return scores[keys + u32(out[place])];
}

// A unit finds its place in the heap of `n` units at `to`, from `top` on.
fn sink(keys: u32, to: u32, n: u32, top: u32, u: u32) {
    var hole = top;
    while (2u * hole + 1u < n) {
        var child = 2u * hole + 1u;
        if (child + 1u < n && key_at(keys, to + child + 1u) <= key_at(keys, to + child)) {
            child += 1u;
        }
        out[to + hole] = out[to + child];
        hole = child;
    }
    while (hole > top && key_at(keys, to + (hole - 1u) / 2u) > scores[keys + u]) {
        out[to + hole] = out[to + (hole - 1u) / 2u];
        hole = (hole - 1u) / 2u;
    }
    out[to + hole] = f32(u);
}

// Of equal scores those count that a heap keeps which has the least one on top.
fn keep_best(keys: u32, n: u32, to: u32, wanted: u32) {
    for (var i = 0u; i < wanted; i++) {
        out[to + i] = f32(i);
    }
    for (var i = wanted / 2u; i > 0u; i--) {
        sink(keys, to, wanted, i - 1u, i - 1u);
    }
    for (var u = wanted; u < n; u++) {
        if (scores[keys + u] > key_at(keys, to)) {
            sink(keys, to, wanted, 0u, u);
        }
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = id.y;
    let position = position_of(row);
    let n = position / c.unit + 1u;
    var n_last = min(c.n_last, n);
    var wanted = c.n_units - min(c.n_last, c.n_units);
    if (c.kind == 1u) {
        n_last = select(1u, 0u, (position + 1u) % c.unit == 0u);
        wanted = c.n_units;
    }
    let others = n - n_last;
    let positions = 64u * step[N_BLOCKS];
    let begins = (2u * row * c.n_choices + id.x) * positions;
    let keys = begins + c.n_choices * positions;
    let to = row * c.out_stride + c.out_offset + id.x * c.room;
    var least = select(0u, ABOVE_ALL, wanted == 0u);
    let are_scored = others > wanted && wanted > 0u;
    if (are_scored) {
        for (var u = lane; u < others; u += LANES) {
            scores[keys + u] = unit_score(begins, u, position);
        }
        storageBarrier();
        workgroupBarrier();
        // the score of the last one that is chosen, bit by bit
        for (var bit = 32u; bit > 0u; bit--) {
            let trial = least | (1u << (bit - 1u));
            if (at_least(keys, others, trial, lane) >= wanted) {
                least = trial;
            }
        }
        let are_tied = at_least(keys, others, least, lane) > wanted;
        if (are_tied && lane == 0u) {
            keep_best(keys, others, to, wanted);
        }
        storageBarrier();
        workgroupBarrier();
        if (are_tied) {
            for (var u = lane; u < others; u += LANES) {
                scores[keys + u] = 0u;
            }
        }
        storageBarrier();
        workgroupBarrier();
        if (are_tied) {
            for (var i = lane; i < wanted; i += LANES) {
                scores[keys + u32(out[to + i])] = ABOVE_ALL;
            }
            least = ABOVE_ALL;
        }
        storageBarrier();
        workgroupBarrier();
    }
    // a lane has neighbours
    let each = (others + LANES - 1u) / LANES;
    let begin = min(lane * each, others);
    let end = min(begin + each, others);
    var mine = 0u;
    for (var u = begin; u < end; u++) {
        if (wanted > 0u && (!are_scored || scores[keys + u] >= least)) {
            mine += 1u;
        }
    }
    counts[lane] = mine;
    workgroupBarrier();
    var before = 0u;
    var chosen = 0u;
    for (var i = 0u; i < LANES; i++) {
        before += select(0u, counts[i], i < lane);
        chosen += counts[i];
    }
    for (var u = begin; u < end; u++) {
        if (wanted > 0u && (!are_scored || scores[keys + u] >= least)) {
            out[to + before] = f32(u);
            before += 1u;
        }
    }
    for (var i = chosen + lane; i < c.room; i += LANES) {
        out[to + i] = select(NO_UNIT, f32(others + i - chosen), i - chosen < n_last);
    }
}
