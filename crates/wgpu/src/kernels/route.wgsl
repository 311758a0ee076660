// From the scores of all experts of a row to those that it uses, and how much of each: `program::Router` says what that
// is. A workgroup has one row.
struct Consts {
    n_experts: u32,
    n_used: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
    sigmoid: u32, // 1 for sigmoids, 0 for softmax
    bias: u32, // where it begins in `vectors`, or NONE
    factors: u32, // likewise
    n_groups: u32, // 0 for none
    groups_used: u32,
    two_best: u32, // a group is as good as: 0 its best expert, 1 the sum of its best two
    per_chunk: u32,
    normalize: u32,
    least_sum: f32,
    scale: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
@group(0) @binding(3) var<storage, read> scores: array<f32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const LEAST = -3e38;
// the key of minus infinity: that of experts whose group is not considered
const LOWEST = 0x007fffffu;

var<workgroup> keys: array<u32, {{EXPERTS}}u>;
var<workgroup> groups: array<u32, {{GROUPS}}u>;
var<workgroup> ids: array<u32, {{USED}}u>;
var<workgroup> weights: array<f32, {{USED}}u>;
var<workgroup> bests: array<vec2<u32>, LANES>;

// A number in the order of scores, never 0; what is no number is highest, so that it shows.
fn key(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0xff800000u;
    }
    return select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
}

fn number(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u));
}

// What the score `x` is worth, beside the highest of its row and the sum of all.
fn probability(x: f32, highest: f32, sum: f32) -> f32 {
    if (c.sigmoid == 1u) {
        return sigmoid(x);
    }
    return exp(x - highest) / sum;
}

// The best of all, of equals the one with the lower number, as a pair [key, number]; nobody looks for it again.
fn best(lane: u32) -> u32 {
    var mine = vec2(0u, NONE);
    for (var e = lane; e < c.n_experts; e += LANES) {
        if (keys[e] > mine.x) {
            mine = vec2(keys[e], e);
        }
    }
    bests[lane] = mine;
    workgroupBarrier();
    for (var n = LANES / 2u; n > 0u; n /= 2u) {
        if (lane < n) {
            let a = bests[lane];
            let b = bests[lane + n];
            if (b.x > a.x || (b.x == a.x && b.y < a.y)) {
                bests[lane] = b;
            }
        }
        workgroupBarrier();
    }
    let found = bests[0].y;
    workgroupBarrier();
    if (lane == 0u) {
        keys[found] = 0u;
    }
    workgroupBarrier();
    return found;
}

// Experts outside the best groups are left out.
fn keep_best_groups(lane: u32) {
    let len = c.n_experts / c.n_groups;
    for (var g = lane; g < c.n_groups; g += LANES) {
        var first = 0u;
        var second = 0u;
        for (var e = g * len; e < (g + 1u) * len; e++) {
            let one = keys[e];
            second = max(second, min(first, one));
            first = max(first, one);
        }
        groups[g] = first;
        if (c.two_best == 1u) {
            groups[g] = key(number(first) + number(second));
        }
    }
    workgroupBarrier();
    for (var e = lane; e < c.n_experts; e += LANES) {
        let its = e / len;
        var better = 0u;
        for (var g = 0u; g < c.n_groups; g++) {
            if (groups[g] > groups[its] || (groups[g] == groups[its] && g < its)) {
                better += 1u;
            }
        }
        if (better >= c.groups_used) {
            keys[e] = LOWEST;
        }
    }
    workgroupBarrier();
}

// Of equal experts one stays with the sum of their weights; the lowest others follow, with weights of 0.
fn join_equals() {
    var n = 0u;
    for (var i = 0u; i < c.n_used; i++) {
        var j = 0u;
        while (j < n && ids[j] != ids[i]) {
            j += 1u;
        }
        if (j < n) {
            weights[j] += weights[i];
        } else {
            ids[n] = ids[i];
            weights[n] = weights[i];
            n += 1u;
        }
    }
    for (var other = 0u; n < c.n_used; other++) {
        var j = 0u;
        while (j < n && ids[j] != other) {
            j += 1u;
        }
        if (j == n) {
            ids[n] = other;
            weights[n] = 0.0;
            n += 1u;
        }
    }
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begins = id.y * c.x_stride + c.x_offset;
    var highest = LEAST;
    for (var e = lane; e < c.n_experts; e += LANES) {
        highest = max(highest, scores[begins + e]);
    }
    highest = greatest(lane, highest);
    var sum = 0.0;
    for (var e = lane; e < c.n_experts; e += LANES) {
        sum += exp(scores[begins + e] - highest);
    }
    sum = total(lane, sum);
    for (var e = lane; e < c.n_experts; e += LANES) {
        var s = probability(scores[begins + e], highest, sum);
        if (c.bias != NONE) {
            s += vectors[c.bias + e];
        }
        keys[e] = key(s);
    }
    workgroupBarrier();
    if (c.n_groups > 0u) {
        keep_best_groups(lane);
    }
    for (var i = 0u; i < c.n_used; i++) {
        let found = best(lane);
        if (lane == 0u) {
            ids[i] = found / c.per_chunk;
        }
    }
    if (lane != 0u) {
        return;
    }
    var all = 0.0;
    for (var i = 0u; i < c.n_used; i++) {
        weights[i] = probability(scores[begins + ids[i]], highest, sum);
        all += weights[i];
    }
    for (var i = 0u; i < c.n_used; i++) {
        if (c.normalize == 1u) {
            weights[i] /= max(all, c.least_sum);
        }
        weights[i] *= c.scale;
        if (c.factors != NONE) {
            weights[i] *= vectors[c.factors + ids[i]];
        }
    }
    if (c.per_chunk > 1u) {
        join_equals();
    }
    let to = id.y * c.out_stride + c.out_offset;
    for (var i = 0u; i < c.n_used; i++) {
        out[to + i] = f32(ids[i]);
        out[to + c.n_used + i] = weights[i];
    }
}
