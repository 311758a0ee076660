// What several workgroups of `attend.wgsl` found of one query, in stretches of the past, becomes its attention.
struct Consts {
    n_heads: u32,
    value_quads: u32,
    value_dim: u32,
    sinks: u32,
    out_offset: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
@group(0) @binding(3) var<storage, read> partials: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let splits = step[N_SPLITS];
    let row = id.y;
    let h = id.x;
    let pitch = c.value_quads + 1u;
    let first = (row * c.n_heads + h) * splits * pitch;
    var highest = -1e30;
    for (var s = 0u; s < splits; s++) {
        highest = max(highest, partials[first + s * pitch + c.value_quads].x);
    }
    var all = 0.0;
    if (c.sinks != NONE) {
        let sink = vectors[c.sinks + h];
        highest = max(highest, sink);
        all = exp(sink - highest);
    }
    for (var s = 0u; s < splits; s++) {
        let ends = partials[first + s * pitch + c.value_quads];
        all += ends.y * exp(ends.x - highest);
    }
    for (var quad = lane; quad < c.value_quads; quad += 64u) {
        var sum = vec4(0.0);
        for (var s = 0u; s < splits; s++) {
            let factor = exp(partials[first + s * pitch + c.value_quads].x - highest);
            sum += partials[first + s * pitch + quad] * factor;
        }
        let to = row * c.out_stride + c.out_offset + h * c.value_dim + 4u * quad;
        for (var e = 0u; e < 4u; e++) {
            if (4u * quad + e < c.value_dim) {
                out[to + e] = sum[e] / all;
            }
        }
    }
}
