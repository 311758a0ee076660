// What each element of a row is by itself.
struct Consts {
    cols: u32, // of the output
    a_offset: u32,
    a_stride: u32,
    b_offset: u32,
    b_stride: u32,
    out_offset: u32,
    out_stride: u32,
    p: u32, // what these are depends on the op
    q: u32,
    r: u32,
    factor: f32,
    act_kind: u32,
    gate_kind: u32, // 0 for none
    act_a: f32,
    act_b: f32,
    act_c: f32,
    act_d: f32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> vectors: array<f32>;
@group(0) @binding(3) var<storage, read> a_numbers: array<f32>;
@group(0) @binding(4) var<storage, read> b_numbers: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

fn a(row: u32, i: u32) -> f32 {
    return a_numbers[row * c.a_stride + c.a_offset + i];
}

fn b(row: u32, i: u32) -> f32 {
    return b_numbers[row * c.b_stride + c.b_offset + i];
}

// `p` groups of x, each times its weight: `q` numbers in a group.
fn mixed(row: u32, i: u32) -> f32 {
    let first = (i / c.q) * c.p;
    var sum = 0.0;
    for (var j = 0u; j < c.p; j++) {
        sum += a(row, first + j) * b(row, j * c.q + i % c.q);
    }
    return sum;
}

// The mean of all rows of the sequence of a selected row.
fn mean(row: u32, i: u32) -> f32 {
    let sequence = sequence_of(step[step[SELECTED] + row]);
    let first = step[step[SEQUENCES] + 3u * sequence];
    let n = step[step[SEQUENCES] + 3u * sequence + 1u];
    var sum = 0.0;
    var lost = 0.0;
    // what a sum loses is added to the next number
    for (var j = 0u; j < n; j++) {
        let y = a(first + j, i) - lost;
        let t = sum + y;
        lost = (t - sum) - y;
        sum = t;
    }
    return sum / f32(n);
}

// A group of `p` numbers.
fn summed(row: u32, i: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < c.p; j++) {
        sum += a(row, i * c.p + j);
    }
    return sum;
}

// The sum of `p` slots, of which each begins `q` numbers behind the one before, each times its weight if they have some.
fn joined(row: u32, i: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < c.p; j++) {
        var weight = 1.0;
        if (c.b_offset != NONE) {
            weight = b(row, j);
        }
        sum += weight * a(row, j * c.q + i);
    }
    return sum;
}

// The root of a size, at least of `least`, with its sign; 0 and what is no number stay.
fn signed_root(x: f32, least: f32) -> f32 {
    let root = sqrt(max(abs(x), least));
    if (x > 0.0) {
        return root;
    }
    return select(x, -root, x < 0.0);
}

fn value(row: u32, i: u32) -> f32 {
    return {{VALUE}};
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < c.cols) {
        out[id.y * c.out_stride + c.out_offset + id.x] = value(id.y, id.x);
    }
}
