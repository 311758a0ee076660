// In subgroups of `width` lanes, and through workgroup memory where a team has several.
fn keep(sums: array<f32, SUMS>, team: u32, lane: u32, width: u32) {
    for (var i = 0u; i < SUMS; i++) { // unrolled
        var sum = sums[i];
        for (var k = 0u; k < 7u; k++) { // unrolled
            if ((1u << k) < min(width, TEAM)) {
                sum += subgroupShuffleXor(sum, 1u << k);
            }
        }
        if (lane % width == 0u) {
            partial[(team * SUMS + i) * TEAM + lane / width] = sum;
        }
    }
}

fn sum_of(team: u32, i: u32, width: u32) -> f32 {
    return joined((team * SUMS + i) * TEAM, max(TEAM / width, 1u));
}
