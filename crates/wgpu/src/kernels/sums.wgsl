// What the lanes of a workgroup have together.
const LANES = 64u;
var<workgroup> sums: array<f32, LANES>;

fn total(lane: u32, mine: f32) -> f32 {
    sums[lane] = mine;
    workgroupBarrier();
    for (var n = LANES / 2u; n > 0u; n /= 2u) {
        if (lane < n) {
            sums[lane] += sums[lane + n];
        }
        workgroupBarrier();
    }
    let all = sums[0];
    workgroupBarrier();
    return all;
}
