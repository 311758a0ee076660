// What a device can do at most. The data is zeros, which no compiler knows: so nothing can be left out, and nothing is
// ever written.
struct Consts {
    each: u32, // quads that a lane reads in a round, a multiple of four
    rounds: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(1) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;

const LANES = 256u;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) n: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let at = id.x * LANES + lane;
    let lanes = n.x * LANES;
{{BODY}}
    if (found) {
        out[0] = at;
    }
}
