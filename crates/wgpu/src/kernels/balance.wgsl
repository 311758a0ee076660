// A matrix of each row becomes nearly doubly stochastic, and is turned: `program::Op::Sinkhorn`. A lane has rows and columns.
struct Consts {
    n: u32,
    rounds: u32,
    eps: f32,
    a_offset: u32,
    a_stride: u32,
    out_offset: u32,
    out_stride: u32,
}

@group(0) @binding(0) var<uniform> c: Consts;
@group(0) @binding(2) var<storage, read> a: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;

const LANES = 32u;
const MOST = 1024u; // numbers of a matrix

var<workgroup> shares: array<f32, MOST>;

@compute @workgroup_size(LANES)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let begins = id.y * c.a_stride + c.a_offset;
    for (var row = lane; row < c.n; row += LANES) {
        var most = -3e38;
        for (var i = 0u; i < c.n; i++) {
            most = max(most, a[begins + row * c.n + i]);
        }
        var sum = 0.0;
        for (var i = 0u; i < c.n; i++) {
            sum += exp(a[begins + row * c.n + i] - most);
        }
        for (var i = 0u; i < c.n; i++) {
            shares[row * c.n + i] = exp(a[begins + row * c.n + i] - most) / sum + c.eps;
        }
    }
    workgroupBarrier();
    for (var round = 0u; round < c.rounds; round++) {
        if (round > 0u) {
            for (var row = lane; row < c.n; row += LANES) {
                var sum = c.eps;
                for (var i = 0u; i < c.n; i++) {
                    sum += shares[row * c.n + i];
                }
                for (var i = 0u; i < c.n; i++) {
                    shares[row * c.n + i] /= sum;
                }
            }
        }
        workgroupBarrier();
        for (var column = lane; column < c.n; column += LANES) {
            var sum = c.eps;
            for (var i = 0u; i < c.n; i++) {
                sum += shares[i * c.n + column];
            }
            for (var i = 0u; i < c.n; i++) {
                shares[i * c.n + column] /= sum;
            }
        }
        workgroupBarrier();
    }
    let to = id.y * c.out_stride + c.out_offset;
    for (var i = lane; i < c.n * c.n; i += LANES) {
        out[to + i] = shares[(i % c.n) * c.n + i / c.n];
    }
}
