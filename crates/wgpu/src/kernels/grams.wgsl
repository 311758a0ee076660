// Rows of a table, for each head by a hash of the last few ids: `program::Grams`. Hashes have 64 bits, in two words each.
struct Consts {
    rows: u32, // of this part of the table
    chunks: u32,
    first: u32,
    d_stride: u32,
    s_base: u32,
    s_stride: u32,
    cols: u32,
    n_ids: u32,
    each: u32, // heads for each number of ids
    end: u32, // the id that ends a text
    numbers: u32, // where multipliers and heads begin in `vectors`: 16 bits in a number
    a_offset: u32,
    a_stride: u32,
    out_offset: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(5) var<storage, read> vectors: array<f32>;
@group(0) @binding(6) var<storage, read> ids: array<f32>;
@group(0) @binding(7) var<storage, read_write> out: array<f32>;

fn word(at: u32) -> u32 {
    return u32(vectors[c.numbers + at]) | (u32(vectors[c.numbers + at + 1u]) << 16u);
}

// The product of two words, low and high.
fn product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let one = (a & 0xffffu) * (b >> 16u);
    let other = (a >> 16u) * (b & 0xffffu);
    let middle = (low >> 16u) + (one & 0xffffu) + (other & 0xffffu);
    let high = (a >> 16u) * (b >> 16u) + (one >> 16u) + (other >> 16u) + (middle >> 16u);
    return vec2((low & 0xffffu) | (middle << 16u), high);
}

fn rest(hash: vec2<u32>, n: u32) -> u32 {
    var left = hash.y % n;
    for (var bit = 32u; bit > 0u; bit--) {
        let carries = (left >> 31u) == 1u;
        left = (left << 1u) | ((hash.x >> (bit - 1u)) & 1u);
        if (carries || left >= n) {
            left -= n;
        }
    }
    return left;
}

fn row_of_head(row: u32, head: u32) -> u32 {
    var hash = vec2(0u);
    let n = head / c.each + 2u;
    if (n <= c.n_ids) {
        var is_cut = false;
        for (var before = 0u; before < n; before++) {
            let counted = u32(ids[row * c.a_stride + c.a_offset + before]);
            is_cut = is_cut || (before > 0u && (counted == 0u || counted - 1u == c.end));
            let id = select(counted - 1u, c.end, is_cut || counted == 0u);
            let by = vec2(word(4u * before), word(4u * before + 2u));
            let low = product(id, by.x);
            hash ^= vec2(low.x, low.y + id * by.y);
        }
    }
    let its = 4u * c.n_ids + 4u * head;
    return word(its) + rest(hash, word(its + 2u));
}

@compute @workgroup_size(64)
fn main(
    @builtin(global_invocation_id) id: vec3<u32>,
    @builtin(workgroup_id) group: vec3<u32>,
) {
    let head = group.z;
    let row = row_of_head(id.y, head);
    if (id.x >= 2u * c.chunks || row < c.first || row >= c.first + c.rows) {
        return;
    }
    var w = weights16(row - c.first, id.x / 2u, id.x % 2u);
    let to = id.y * c.out_stride + c.out_offset + head * c.cols;
    for (var i = 0u; i < 16u; i++) {
        let at = 16u * id.x + i;
        if (at < c.cols) {
            out[to + at] = w[i / 4u][i % 4u];
        }
    }
}
