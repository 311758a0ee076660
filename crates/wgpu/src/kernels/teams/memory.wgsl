// Through workgroup memory.
const width = 1u;

fn keep(sums: array<f32, SUMS>, team: u32, lane: u32, width: u32) {
    for (var i = 0u; i < SUMS; i++) { // unrolled
        partial[(team * SUMS + i) * TEAM + lane] = sums[i];
    }
}

// Of a team, after all lanes have kept theirs.
fn sum_of(team: u32, i: u32, width: u32) -> f32 {
    return joined((team * SUMS + i) * TEAM, TEAM);
}
