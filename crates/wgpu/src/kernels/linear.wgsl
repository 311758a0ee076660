// What the products of a matrix are finished with: shared by `matvec.wgsl` and `matmat.wgsl`.
struct Consts {
    rows: u32, // of this part of the matrix
    chunks: u32, // of 32 weights, in a row
    first: u32, // number of the part's first row in the matrix
    d_stride: u32, // words of `scales` for the d of a row
    s_base: u32, // where the scales of groups begin
    s_stride: u32, // their words in a row
    counted: u32, // N_TOKENS or N_SELECTED
    x_offset: u32,
    x_stride: u32,
    x_chosen: u32, // 1 where its rows are all of the step, of which the selected ones are multiplied
    bias: u32, // where it begins in `vectors`, or NONE
    r_offset: u32, // of the residual, or NONE
    r_stride: u32,
    r_chosen: u32, // the same
    out_offset: u32,
    out_stride: u32,
    act_kind: u32,
    gate_kind: u32, // 0 for none; else neighbouring rows of a matrix are a gate and what it lets through
    act_a: f32,
    act_b: f32,
    act_c: f32,
    act_d: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(5) var<storage, read> vectors: array<f32>;
@group(0) @binding(6) var<storage, read> x: array<{{X}}>;
@group(0) @binding(7) var<storage, read> residual: array<f32>;
@group(0) @binding(8) var<storage, read_write> out: array<f32>;

// The row of a value that row `n` of a product is of.
fn row_of(n: u32, chosen: u32) -> u32 {
    if (chosen == 0u) {
        return n;
    }
    // what is beyond the last one is not put down
    return step[step[SELECTED] + min(n, step[N_SELECTED] - 1u)];
}

fn bias_of(row: u32) -> f32 {
    if (c.bias == NONE) {
        return 0.0;
    }
    return vectors[c.bias + c.first + row];
}

fn residual_of(n: u32, row: u32) -> f32 {
    if (c.r_offset == NONE) {
        return 0.0;
    }
    return residual[row_of(n, c.r_chosen) * c.r_stride + c.r_offset + row];
}

fn put(n: u32, row: u32, value: f32) {
    out[n * c.out_stride + c.out_offset + row] = value;
}
