// What the lanes of a workgroup have together.
const LANES = {{LANES}}u;
var<workgroup> together: array<f32, LANES>;

fn total(lane: u32, mine: f32) -> f32 {
    together[lane] = mine;
    workgroupBarrier();
    for (var n = LANES / 2u; n > 0u; n /= 2u) {
        if (lane < n) {
            together[lane] += together[lane + n];
        }
        workgroupBarrier();
    }
    let all = together[0];
    workgroupBarrier();
    return all;
}

fn greatest(lane: u32, mine: f32) -> f32 {
    together[lane] = mine;
    workgroupBarrier();
    for (var n = LANES / 2u; n > 0u; n /= 2u) {
        if (lane < n) {
            together[lane] = max(together[lane], together[lane + n]);
        }
        workgroupBarrier();
    }
    let most = together[0];
    workgroupBarrier();
    return most;
}
