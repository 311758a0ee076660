// Products with pieces of a matrix, each in a slot of its own: shared by `pieces.wgsl` and `grouped.wgsl`.
struct Consts {
    rows: u32, // of this part of the matrix
    chunks: u32, // of 32 weights, in a row
    first: u32, // number of the part's first row in the matrix
    d_stride: u32, // words of `scales` for the d of a row
    s_base: u32, // where the scales of groups begin
    s_stride: u32, // their words in a row
    counted: u32, // N_TOKENS or N_SELECTED
    each: u32, // rows of the matrix in a piece
    skipped: u32, // of these, before those that are multiplied
    taken: u32, // how many are multiplied
    slots: u32, // of a row
    routes_offset: u32, // of the numbers of pieces in a row's routes; NONE: slots are pieces
    routes_stride: u32,
    weights: u32, // of the factors on the products in a row's routes; NONE for 1
    bias: u32, // where it begins in `vectors`, or NONE
    x_offset: u32,
    x_stride: u32,
    x_pitch: u32, // from what the first slot is multiplied with to the next one's
    out_offset: u32,
    out_stride: u32,
    out_pitch: u32, // from a slot to the next one; what its products do not fill is zeros
    act_kind: u32,
    gate_kind: u32, // 0 for none; else neighbouring rows are a gate and what it lets through
    act_a: f32,
    act_b: f32,
    act_c: f32,
    act_d: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(5) var<storage, read> vectors: array<f32>;
@group(0) @binding(6) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> routes: array<u32>;
@group(0) @binding(8) var<storage, read_write> out: array<f32>;

// The product with a row of the matrix, with its bias, and times the factor that stands at word `at` of the routes.
fn weighed(sum: f32, row: u32, at: u32) -> f32 {
    var y = sum;
    if (c.bias != NONE) {
        y += vectors[c.bias + row];
    }
    if (c.weights != NONE) {
        y *= bitcast<f32>(routes[at]);
    }
    return y;
}
