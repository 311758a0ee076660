// Before attention: heads of q and k are normed and rotated, q is scaled, k and v enter the cache. A workgroup has one head
// of one row: first those of q, then, where the layer appends, those of k and of v.
struct Consts {
    n_heads: u32,
    n_kv_heads: u32,
    key_dim: u32,
    value_dim: u32,
    rotated: u32, // leading elements that rotate
    interleaved: u32,
    angles: u32, // which word of the step says where cos and sin are, or NONE
    temperature: u32, // the same for a factor of q
    scale: f32,
    cache: u32,
    q_offset: u32,
    q_stride: u32,
    k_offset: u32,
    k_stride: u32,
    v_offset: u32,
    v_stride: u32,
    out_stride: u32,
    norms: u32, // bits: q before the rotation, q behind it, k before, k behind
    q_before: u32, // where factors begin in `vectors`, or NONE for 1
    k_before: u32,
    eps_before: f32,
    q_behind: u32,
    k_behind: u32,
    eps_behind: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
@group(0) @binding(3) var<storage, read> q: array<f32>;
@group(0) @binding(4) var<storage, read> k: array<f32>;
@group(0) @binding(5) var<storage, read> v: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;
@group(0) @binding(7) var<storage, read_write> blocks: array<u32>;

const MOST = 1024u; // elements of a head

var<workgroup> head: array<f32, MOST>;

fn norm(lane: u32, weight: u32, eps: f32) {
    var mine = 0.0;
    for (var i = lane; i < c.key_dim; i += LANES) {
        mine += head[i] * head[i];
    }
    let scale = 1.0 / sqrt(total(lane, mine) / f32(c.key_dim) + eps);
    for (var i = lane; i < c.key_dim; i += LANES) {
        var factor = 1.0;
        if (weight != NONE) {
            factor = vectors[weight + i];
        }
        head[i] = head[i] * scale * factor;
    }
    workgroupBarrier();
}

fn rotate(lane: u32, row: u32) {
    let pairs = c.rotated / 2u;
    let angles = step[c.angles] + row * c.rotated;
    for (var i = lane; i < pairs; i += LANES) {
        let first = select(i, 2u * i, c.interleaved == 1u);
        let second = select(i + pairs, 2u * i + 1u, c.interleaved == 1u);
        let cosine = bitcast<f32>(step[angles + 2u * i]);
        let sine = bitcast<f32>(step[angles + 2u * i + 1u]);
        let one = head[first];
        let other = head[second];
        head[first] = one * cosine - other * sine;
        head[second] = one * sine + other * cosine;
    }
    workgroupBarrier();
}

// Four elements of the head from `first` on, zeros beyond its end.
fn quad(first: u32, dim: u32) -> vec4<f32> {
    var four = vec4(0.0);
    for (var i = 0u; i < 4u; i++) {
        if (first + i < dim) {
            four[i] = head[first + i];
        }
    }
    return four;
}

fn put_key(to: u32, x: vec4<f32>) {
{{PUT_KEY}}
}

fn put_value(to: u32, x: vec4<f32>) {
{{PUT_VALUE}}
}

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = id.y;
    let position = position_of(row);
    let key_quads = (c.key_dim + 3u) / 4u;
    let value_quads = (c.value_dim + 3u) / 4u;
    let is_query = id.x < c.n_heads;
    let is_key = !is_query && id.x < c.n_heads + c.n_kv_heads;
    let dim = select(c.value_dim, c.key_dim, is_query || is_key);
    for (var i = lane; i < dim; i += LANES) {
        if (is_query) {
            head[i] = q[row * c.q_stride + c.q_offset + id.x * dim + i];
        } else if (is_key) {
            head[i] = k[row * c.k_stride + c.k_offset + (id.x - c.n_heads) * dim + i];
        } else {
            head[i] = v[row * c.v_stride + c.v_offset + (id.x - c.n_heads - c.n_kv_heads) * dim + i];
        }
    }
    workgroupBarrier();
    if (is_query || is_key) {
        let norms = select(c.norms >> 2u, c.norms, is_query);
        if ((norms & 1u) != 0u) {
            norm(lane, select(c.k_before, c.q_before, is_query), c.eps_before);
        }
        if (c.angles != NONE) {
            rotate(lane, row);
        }
        if ((norms & 2u) != 0u) {
            norm(lane, select(c.k_behind, c.q_behind, is_query), c.eps_behind);
        }
    }
    if (is_query) {
        var factor = c.scale;
        if (c.temperature != NONE) {
            factor *= bitcast<f32>(step[step[c.temperature] + row]);
        }
        let to = row * c.out_stride + id.x * 4u * key_quads;
        for (var i = lane; i < 4u * key_quads; i += LANES) {
            out[to + i] = select(0.0, head[min(i, dim - 1u)] * factor, i < dim);
        }
        return;
    }
    let base = block_of(sequence_of(row), c.cache, position / POSITIONS_IN_BLOCK);
    let at = position % POSITIONS_IN_BLOCK;
    if (is_key) {
        for (var i = lane; i < key_quads; i += LANES) {
            put_key(base + key_unit(key_quads, id.x - c.n_heads, i, at), quad(4u * i, dim));
        }
    } else {
        let kv_head = id.x - c.n_heads - c.n_kv_heads;
        for (var i = lane; i < value_quads; i += LANES) {
            let to = value_unit(c.n_kv_heads, key_quads, value_quads, vec2(kv_head, i), at);
            put_value(base + to, quad(4u * i, dim));
        }
    }
}
