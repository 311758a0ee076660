// What needs a sum over each group of a row: norms and their like. A workgroup has one group.
struct Consts {
    dim: u32,
    a_offset: u32,
    a_stride: u32,
    b_offset: u32,
    b_stride: u32,
    out_offset: u32,
    out_stride: u32,
    weight: u32, // where factors begin in `vectors`, or NONE
    weight_step: u32, // from a group's factors to the next one's: 0 or dim
    bias: u32,
    bias_step: u32,
    number: f32, // eps, or how many deviations
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
@group(0) @binding(3) var<storage, read> a: array<f32>;
@group(0) @binding(4) var<storage, read> b: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begins = id.y * c.a_stride + c.a_offset + id.x * c.dim;
    let beside = id.y * c.b_stride + c.b_offset + id.x * c.dim;
    let to = id.y * c.out_stride + c.out_offset + id.x * c.dim;
    let count = f32(c.dim);
{{BODY}}
}
