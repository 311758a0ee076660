// A recurrence over rows. A workgroup has a strip of 16 columns of a head's matrix and goes from the state before a sequence's
// rows through those since to the step's own, one after another; columns have nothing to do with each other. Four lanes have a
// column, each every fourth of its rows, in registers. What workgroups behind these do is at the end.
//
// A matrix is kept as `[strip][key_dim][16]`.
struct Consts {
    n_heads: u32,
    n_key_heads: u32,
    key_dim: u32,
    value_dim: u32,
    by_turns: u32, // how heads share keys: see `program::ScanDims`
    by_row: u32, // whether each row of a matrix has a decay of its own
    cache: u32,
    row: u32, // numbers that a row gives: all inputs but the first
    number: f32, // what is added under roots, or the factor on what is read
    a: u32, // where numbers of the rule begin in `vectors`, or NONE
    d: u32,
    offset_0: u32,
    stride_0: u32,
    offset_1: u32,
    stride_1: u32,
    offset_2: u32,
    stride_2: u32,
    offset_3: u32,
    stride_3: u32,
    offset_4: u32,
    stride_4: u32,
    offset_5: u32,
    stride_5: u32,
    begin_2: u32, // where inputs begin in what a row gives; those that there are not behind its end
    begin_3: u32,
    begin_4: u32,
    begin_5: u32,
    out_offset: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
// inputs lie in as many buffers as they need
@group(0) @binding(3) var<storage, read> numbers_0: array<f32>;
@group(0) @binding(4) var<storage, read> numbers_1: array<f32>;
@group(0) @binding(5) var<storage, read> numbers_2: array<f32>;
@group(0) @binding(6) var<storage, read> numbers_3: array<f32>;
@group(0) @binding(7) var<storage, read_write> states: array<f32>;
@group(0) @binding(8) var<storage, read_write> out: array<f32>;

const STRIP = 16u;
const PARTS = 4u;
const LANES = 64u;
const KEYS_EACH = {{KEYS_EACH}}u; // rows of the matrix that a lane has
const COPIED = 256u; // numbers of rows that a workgroup keeps

var<workgroup> before: array<vec4<f32>, LANES>;
var<workgroup> behind: array<f32, 128>;

// A row: one of the step's values, or one in a ring.
struct Row {
    is_own: bool,
    at: u32, // its number among values, or where it begins in the ring
}

fn row_of(s: States, position: u32) -> Row {
    let own = position >= s.start;
    return Row(own, select(s.ring + ring_row(position, c.row), s.first_row + position - s.start, own));
}

// What a row of the step reads with; those before have no more to read.
fn query(row: Row, i: u32) -> f32 {
    if (row.is_own) {
        return {{IN_0}}[row.at * c.stride_0 + c.offset_0 + i];
    }
    return 0.0;
}

// What a row gives, input by input.
fn input_1(row: Row, i: u32) -> f32 {
    if (row.is_own) {
        return {{IN_1}}[row.at * c.stride_1 + c.offset_1 + i];
    }
    return states[row.at + i];
}

fn input_2(row: Row, i: u32) -> f32 {
    if (row.is_own) {
        return {{IN_2}}[row.at * c.stride_2 + c.offset_2 + i];
    }
    return states[row.at + c.begin_2 + i];
}

fn input_3(row: Row, i: u32) -> f32 {
    if (row.is_own) {
        return {{IN_3}}[row.at * c.stride_3 + c.offset_3 + i];
    }
    return states[row.at + c.begin_3 + i];
}

fn input_4(row: Row, i: u32) -> f32 {
    if (row.is_own) {
        return {{IN_4}}[row.at * c.stride_4 + c.offset_4 + i];
    }
    return states[row.at + c.begin_4 + i];
}

fn input_5(row: Row, i: u32) -> f32 {
    if (row.is_own) {
        return {{IN_5}}[row.at * c.stride_5 + c.offset_5 + i];
    }
    return states[row.at + c.begin_5 + i];
}

// All inputs but the first, one after another.
fn given(row: Row, i: u32) -> f32 {
    if (!row.is_own) {
        return states[row.at + i];
    }
    if (i < c.begin_2) {
        return input_1(row, i);
    }
    if (i < c.begin_3) {
        return input_2(row, i - c.begin_2);
    }
    if (i < c.begin_4) {
        return input_3(row, i - c.begin_3);
    }
    if (i < c.begin_5) {
        return input_4(row, i - c.begin_4);
    }
    return input_5(row, i - c.begin_5);
}

// The third input's decay of a row of a head's matrix; `all` where it is one for all of them.
fn decay(row: Row, head: u32, i: u32, all: f32) -> f32 {
    if (c.by_row == 1u) {
        return exp(input_3(row, head * c.key_dim + i));
    }
    return all;
}

// Sums over the rows of a matrix, for each lane those of its column. Both are used once for a row at most, in this order, and
// the second by every row: what one lane still reads no other one writes before the next of these barriers.
fn sums_before(lane: u32, mine: vec4<f32>) -> vec4<f32> {
    before[lane] = mine;
    workgroupBarrier();
    let i = lane % STRIP;
    return (before[i] + before[i + STRIP]) + (before[i + 2u * STRIP] + before[i + 3u * STRIP]);
}

fn sum_behind(lane: u32, position: u32, mine: f32) -> f32 {
    let first = position % 2u * LANES;
    behind[first + lane] = mine;
    workgroupBarrier();
    let i = first + lane % STRIP;
    return (behind[i] + behind[i + STRIP]) + (behind[i + 2u * STRIP] + behind[i + 3u * STRIP]);
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let states_at = states_of(id.y, c.cache);
    let strips = (c.value_dim + STRIP - 1u) / STRIP;
    if (id.x >= c.n_heads * strips) {
        keep(states_at, (id.x - c.n_heads * strips) * COPIED, lane);
        return;
    }
    let head = id.x / strips;
    let column = id.x % strips * STRIP + lane % STRIP;
    let part = lane / STRIP;
    let is_used = column < c.value_dim;
    let key_head = select(head / (c.n_heads / c.n_key_heads), head % c.n_key_heads, c.by_turns == 1u);
    let keys = key_head * c.key_dim;
    let values = head * c.value_dim + column;
    let kept = id.x * c.key_dim * STRIP + lane % STRIP;
    var matrix: array<f32, KEYS_EACH>;
    for (var j = 0u; j < KEYS_EACH; j++) {
        let i = j * PARTS + part;
        matrix[j] = 0.0;
        if (states_at.base != NONE && i < c.key_dim) {
            matrix[j] = states[states_at.base + kept + i * STRIP];
        }
    }
    for (var position = states_at.begins; position < states_at.end; position++) {
        let row = row_of(states_at, position);
        var v = 0.0;
        if (is_used) {
            v = input_2(row, values);
        }
        var y = 0.0;
{{ROW}}
        y = sum_behind(lane, position, y);
{{READ}}
        if (row.is_own && is_used && part == 0u) {
            out[row.at * c.out_stride + c.out_offset + values] = y;
        }
        if (states_at.fold != NONE && position + 1u == states_at.folds) {
            for (var j = 0u; j < KEYS_EACH; j++) {
                let i = j * PARTS + part;
                if (i < c.key_dim) {
                    states[states_at.fold + kept + i * STRIP] = matrix[j];
                }
            }
        }
    }
}

// Some numbers of all rows that a step leaves for later ones.
fn keep(s: States, first: u32, lane: u32) {
    for (var position = s.stored_from; position < s.end; position++) {
        let row = row_of(s, position);
        let to = s.stored + ring_row(position, c.row);
        for (var i = first + lane; i < min(first + COPIED, c.row); i += LANES) {
            states[to + i] = given(row, i);
        }
    }
}
