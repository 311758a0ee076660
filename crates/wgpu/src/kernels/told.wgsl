// Logits of single tokens, behind the likeliest ones: see `best.wgsl`.
struct Consts {
    offset: u32,
    stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> numbers: array<u32>;
@group(0) @binding(3) var<storage, read_write> out: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let list = step[TOLD]; // how many there are, then [row, token] each
    if (id.x >= step[list]) {
        return;
    }
    let row = step[list + 1u + 2u * id.x];
    let token = step[list + 2u + 2u * id.x];
    out[2u * step[N_SELECTED] * step[N_BEST] + id.x] = numbers[row * c.stride + c.offset + token];
}
