// Attention over the cache. A workgroup has the queries of one tile, up to SLOTS pairs of a row and a query head that read
// the same key-value head: some heads of one row, or one head of some rows; and of the blocks that they see one stretch.
// Block by block: a lane is a position and has its scores with all queries; then sums and maxima of each query are brought
// up to date; then a lane has quads of value vectors at some of the positions, for all queries, so that each is read once.
struct Consts {
    n_heads: u32,
    n_kv_heads: u32,
    mask: u32, // 0 causal, 1 window, 2 chunk, 3 all, 4 around
    reach: u32, // its number
    softcap: f32, // 0 for none
    slopes: u32, // by head, in `vectors`, or NONE
    sinks: u32,
    cache: u32,
    value_dim: u32,
    q_stride: u32,
    out_offset: u32,
    out_stride: u32,
    unit: u32, // positions of a unit, of which rows chose some, or 0: they read all
    n_choices: u32, // of a row: one, or one for each key-value head
    limit: u32, // rows before this position read all
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
@group(0) @binding(3) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> blocks: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> marks: array<u32>; // of a row's choices: a bit for each unit
@group(0) @binding(6) var<storage, read_write> out: array<f32>;
@group(0) @binding(7) var<storage, read_write> partials: array<vec4<f32>>;

const SLOTS = 8u;
const LANES = 64u;
const KEY_QUADS = {{KEY_QUADS}}u;
const VALUE_QUADS = {{VALUE_QUADS}}u;
// whether queries are kept in workgroup memory; what has no room there is read where it lies
const ARE_NEAR = {{NEAR}}u > 1u;
// quads of a key that are read at once, and positions of values
const KEYS_AT_ONCE = {{KEYS_AT_ONCE}}u;
const VALUES_AT_ONCE = {{VALUES_AT_ONCE}}u;
// lanes that have the quads of a value between them, how many quads each has, and how many such parts of the lanes there are
const VALUE_LANES = {{VALUE_LANES}}u;
const OWN = {{OWN}}u;
const PARTS = LANES / VALUE_LANES;
const UNSEEN = -3e38;
const LEAST = -1e30;

var<workgroup> queries: array<vec4<f32>, {{NEAR}}u>;
var<workgroup> weights: array<f32, SLOTS * LANES>;
var<workgroup> maxima: array<f32, LANES>;
var<workgroup> totals: array<f32, LANES>;
var<workgroup> factors: array<f32, SLOTS>;
var<workgroup> ends: array<vec2<f32>, SLOTS>;
var<workgroup> parts: array<vec4<f32>, LANES>;

struct Tile {
    first_row: u32,
    rows: u32,
    group: u32, // query heads of a key-value head
    kv_head: u32,
    first: u32, // query head of the group
    by_row: bool, // slots are rows
}

fn key(unit: u32) -> vec4<f32> {
    return {{KEY}};
}

fn value(unit: u32) -> vec4<f32> {
    return {{VALUE}};
}

fn value_at(kv_head: u32, quad: u32, position: u32) -> u32 {
    return {{VALUE_AT}};
}

fn is_used(t: Tile, slot: u32) -> bool {
    return select(t.first + slot < t.group, slot < t.rows, t.by_row);
}

// Slots that are used: the first ones.
fn n_used(t: Tile) -> u32 {
    return select(min(t.group - t.first, SLOTS), t.rows, t.by_row);
}

fn row_of(t: Tile, slot: u32) -> u32 {
    return select(t.first_row, t.first_row + slot, t.by_row);
}

fn head_of(t: Tile, slot: u32) -> u32 {
    return t.kv_head * t.group + select(t.first + slot, t.first, t.by_row);
}

// Where the query of a slot begins.
fn query_at(t: Tile, slot: u32) -> u32 {
    return row_of(t, slot) * c.q_stride / 4u + head_of(t, slot) * KEY_QUADS;
}

fn query(t: Tile, slot: u32, quad: u32) -> vec4<f32> {
    if (ARE_NEAR) {
        return queries[slot * KEY_QUADS + quad];
    }
    return q[query_at(t, slot) + quad];
}

fn first_seen(position: u32) -> u32 {
    switch (c.mask) {
        case 1u: { return (position + 1u) - min(position + 1u, c.reach); }
        case 2u: { return position / c.reach * c.reach; }
        case 4u: { return position - min(position, c.reach); }
        default: { return 0u; }
    }
}

fn end_seen(position: u32, len: u32) -> u32 {
    switch (c.mask) {
        case 3u: { return len; }
        case 4u: { return min(position + 1u + min(c.reach, len), len); }
        default: { return position + 1u; }
    }
}

// Whether a row reads a position that its mask lets it see.
fn is_chosen(row: u32, kv_head: u32, j: u32) -> bool {
    if (c.unit == 0u || position_of(row) < c.limit) {
        return true;
    }
    let unit = j / c.unit;
    let at = (row * c.n_choices + min(kv_head, c.n_choices - 1u)) * 2u * step[N_BLOCKS];
    return ((marks[at + unit / 32u] >> (unit % 32u)) & 1u) == 1u;
}

// Whether any row of a tile reads any position of a block.
fn is_read(t: Tile, block: u32) -> bool {
    if (c.unit == 0u) {
        return true;
    }
    let first = block * POSITIONS_IN_BLOCK / c.unit;
    let last = (block * POSITIONS_IN_BLOCK + POSITIONS_IN_BLOCK - 1u) / c.unit;
    for (var row = t.first_row; row < t.first_row + t.rows; row++) {
        for (var unit = first; unit <= last; unit++) {
            if (is_chosen(row, t.kv_head, unit * c.unit)) {
                return true;
            }
        }
    }
    return false;
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    var t: Tile;
    t.group = c.n_heads / c.n_kv_heads;
    t.by_row = step[TILE_ROWS] > 1u;
    let tiles_of_head = select((t.group + SLOTS - 1u) / SLOTS, t.group, t.by_row);
    t.kv_head = id.y / tiles_of_head;
    t.first = (id.y % tiles_of_head) * select(SLOTS, 1u, t.by_row);
    t.first_row = step[step[TILES] + 2u * id.x];
    t.rows = step[step[TILES] + 2u * id.x + 1u];
    let sequence = sequence_of(t.first_row);
    let record = step[SEQUENCES] + 3u * sequence;
    let len = step[record + 1u] + step[record + 2u];
    if (ARE_NEAR) {
        for (var i = lane; i < n_used(t) * KEY_QUADS; i += LANES) {
            queries[i] = q[query_at(t, i / KEY_QUADS) + i % KEY_QUADS];
        }
    }
    // the blocks that any of the queries sees, and this workgroup's stretch of them
    let low_end = first_seen(position_of(t.first_row));
    let high_end = end_seen(position_of(t.first_row + t.rows - 1u), len);
    let first_block = low_end / POSITIONS_IN_BLOCK;
    let end_block = (high_end + POSITIONS_IN_BLOCK - 1u) / POSITIONS_IN_BLOCK;
    let splits = step[N_SPLITS];
    let each = (end_block - first_block + splits - 1u) / splits;
    let begin = first_block + id.z * each;
    let end = min(begin + each, end_block);
    let used = n_used(t);
    // 8 lanes look after one query
    let my_slot = lane / 8u;
    var most = LEAST;
    var total = 0.0;
    // of each query, each quad
    var sums: array<vec4<f32>, SLOTS * OWN>;
    let own_quad = lane % VALUE_LANES;
    let own_part = lane / VALUE_LANES;
    workgroupBarrier();
    for (var block = begin; block < end; block++) {
        if (!is_read(t, block)) {
            continue;
        }
        let base = block_of(sequence, c.cache, block);
        let j = block * POSITIONS_IN_BLOCK + lane;
        var products: array<f32, SLOTS>;
        for (var i = 0u; i < KEY_QUADS; i += KEYS_AT_ONCE) {
            var keys: array<vec4<f32>, KEYS_AT_ONCE>;
            for (var k = 0u; k < KEYS_AT_ONCE; k++) { // unrolled
                keys[k] = key(base + key_unit(KEY_QUADS, t.kv_head, i + k, lane));
            }
            for (var s = 0u; s < SLOTS; s++) { // unrolled
                if (s < used) {
                    for (var k = 0u; k < KEYS_AT_ONCE; k++) { // unrolled
                        products[s] += dot(query(t, s, i + k), keys[k]);
                    }
                }
            }
        }
        for (var s = 0u; s < SLOTS; s++) { // unrolled
            var score = UNSEEN;
            if (is_used(t, s)) {
                let p = position_of(row_of(t, s));
                if (j >= first_seen(p) && j < end_seen(p, len) && is_chosen(row_of(t, s), t.kv_head, j)) {
                    score = products[s];
                    if (c.softcap > 0.0) {
                        score = softcap(score, c.softcap);
                    }
                    if (c.slopes != NONE) {
                        let distance = select(p - j, j - p, j > p);
                        score -= vectors[c.slopes + head_of(t, s)] * f32(distance);
                    }
                }
            }
            weights[s * LANES + lane] = score;
        }
        workgroupBarrier();
        var mine = LEAST;
        for (var i = lane % 8u; i < LANES; i += 8u) {
            mine = max(mine, weights[my_slot * LANES + i]);
        }
        maxima[lane] = mine;
        workgroupBarrier();
        var highest = most;
        for (var i = 0u; i < 8u; i++) {
            highest = max(highest, maxima[my_slot * 8u + i]);
        }
        var sum = 0.0;
        for (var i = lane % 8u; i < LANES; i += 8u) {
            let score = weights[my_slot * LANES + i];
            let weight = select(exp(score - highest), 0.0, score <= UNSEEN);
            weights[my_slot * LANES + i] = weight;
            sum += weight;
        }
        totals[lane] = sum;
        let shrinks = exp(most - highest);
        most = highest;
        if (lane % 8u == 0u) {
            factors[my_slot] = shrinks;
        }
        workgroupBarrier();
        total *= shrinks;
        for (var i = 0u; i < 8u; i++) {
            total += totals[my_slot * 8u + i];
        }
        let n = min(POSITIONS_IN_BLOCK, high_end - block * POSITIONS_IN_BLOCK);
        for (var s = 0u; s < SLOTS; s++) { // unrolled
            for (var e = 0u; e < OWN; e++) { // unrolled
                sums[s * OWN + e] *= factors[s];
            }
        }
        for (var p = own_part; p < n; p += PARTS * VALUES_AT_ONCE) {
            var values: array<vec4<f32>, VALUES_AT_ONCE * OWN>;
            for (var k = 0u; k < VALUES_AT_ONCE; k++) { // unrolled
                // what lies behind the last position is no number perhaps
                let at = min(p + k * PARTS, n - 1u);
                for (var e = 0u; e < OWN; e++) { // unrolled
                    let quad = min(own_quad + e * LANES, VALUE_QUADS - 1u);
                    values[k * OWN + e] = value(base + value_at(t.kv_head, quad, at));
                }
            }
            for (var s = 0u; s < SLOTS; s++) { // unrolled
                if (s < used) {
                    for (var k = 0u; k < VALUES_AT_ONCE; k++) { // unrolled
                        let at = p + k * PARTS;
                        let weight = select(0.0, weights[s * LANES + min(at, n - 1u)], at < n);
                        for (var e = 0u; e < OWN; e++) { // unrolled
                            sums[s * OWN + e] += weight * values[k * OWN + e];
                        }
                    }
                }
            }
        }
        workgroupBarrier();
    }
    if (lane % 8u == 0u) {
        ends[my_slot] = vec2(most, total);
    }
    workgroupBarrier();
    for (var s = 0u; s < SLOTS; s++) { // unrolled
        for (var e = 0u; e < OWN; e++) { // unrolled
            var sum = sums[s * OWN + e];
            if (PARTS > 1u) {
                parts[lane] = sum;
                workgroupBarrier();
                for (var part = 1u; part < PARTS; part++) {
                    sum += parts[own_quad + part * VALUE_LANES];
                }
                workgroupBarrier();
            }
            let quad = own_quad + e * LANES;
            if (own_part == 0u && s < used && quad < VALUE_QUADS) {
                put(t, s, quad, sum, vec2(splits, id.z));
            }
        }
    }
}

// What was found for a query: a quad of it, of one of several stretches or of all.
fn put(t: Tile, slot: u32, quad: u32, sum: vec4<f32>, stretch: vec2<u32>) {
    let row = row_of(t, slot);
    let h = head_of(t, slot);
    if (stretch.x > 1u) {
        let to = ((row * c.n_heads + h) * stretch.x + stretch.y) * (VALUE_QUADS + 1u);
        partials[to + quad] = sum;
        if (quad == 0u) {
            partials[to + VALUE_QUADS] = vec4(ends[slot], 0.0, 0.0);
        }
        return;
    }
    var high = ends[slot].x;
    var all = ends[slot].y;
    if (c.sinks != NONE) {
        let sink = vectors[c.sinks + h];
        high = max(high, sink);
        all = all * exp(ends[slot].x - high) + exp(sink - high);
    }
    let y = sum * (exp(ends[slot].x - high) / all);
    let to = row * c.out_stride + c.out_offset + h * c.value_dim + 4u * quad;
    for (var e = 0u; e < 4u; e++) { // unrolled
        if (4u * quad + e < c.value_dim) {
            out[to + e] = y[e];
        }
    }
}
