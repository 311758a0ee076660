// The likeliest tokens, likeliest first: of each stretch of a row of logits, then of what all its stretches found. A token
// is a pair [key, id]: greater keys are likelier, of equals the lower id is.
struct Consts {
    cols: u32, // logits of a row
    offset: u32,
    stride: u32,
    stretch: u32, // logits of a stretch
    stretches: u32, // of a row
    lists: u32, // of a row, here: stretches at first, then one
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> numbers: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<vec2<u32>>;

const LANES = 256u;
// a logit that is no number, or too large to be one: above all others, so that it is found
const NOT_FINITE = 0xff800000u;
// where there are fewer tokens than are wanted
const NOBODY = vec2<u32>(0u, NONE);

var<workgroup> keys: array<u32, LANES>;
var<workgroup> ids: array<u32, LANES>;

// A number in the order of the logits, from their bits: zeros are equal whatever their sign.
fn key(bits: u32) -> u32 {
    if ((bits & 0x7f800000u) == 0x7f800000u) {
        return NOT_FINITE;
    }
    if ((bits & 0x80000000u) == 0u) {
        return bits | 0x80000000u;
    }
    return select(~bits, 0x80000000u, bits == 0x80000000u);
}

fn likelier(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y < b.y);
}

{{BODY}}

// The likeliest of a lane's tokens that are less likely than `last`.
fn next(row: u32, list: u32, lane: u32, last: vec2<u32>) -> vec2<u32> {
    let n = count(list);
    var found = NOBODY;
    for (var i = lane; i < n; i += LANES) {
        let one = token(row, list, i);
        if (likelier(last, one) && likelier(one, found)) {
            found = one;
        }
    }
    return found;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let k = step[N_BEST];
    let first = (id.y * c.lists + id.x) * k;
    var mine = next(id.y, id.x, lane, vec2(NONE, 0u));
    for (var i = 0u; i < k; i++) {
        keys[lane] = mine.x;
        ids[lane] = mine.y;
        workgroupBarrier();
        for (var half = LANES / 2u; half > 0u; half /= 2u) {
            if (lane < half) {
                let other = vec2(keys[lane + half], ids[lane + half]);
                if (likelier(other, vec2(keys[lane], ids[lane]))) {
                    keys[lane] = other.x;
                    ids[lane] = other.y;
                }
            }
            workgroupBarrier();
        }
        let best = vec2(keys[0], ids[0]);
        workgroupBarrier();
        if (lane == 0u) {
            out[first + i] = best;
        }
        // whoever had it looks for another
        if (best.x != 0u && mine.y == best.y) {
            mine = next(id.y, id.x, lane, best);
        }
    }
}
