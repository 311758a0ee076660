// How the lanes of a team put their sums together. Neighbours are added first, then pairs of them, and so on: whoever adds
// them, the bits are the same.
const TEAM = {{TEAM}}u;
const TEAMS = {{TEAMS}}u;
// of each lane
const SUMS = {{SUMS}}u;

// of each team, and each of the sums, what its lanes have, or what groups of them have together
var<workgroup> partial: array<f32, SUMS * TEAM * TEAMS>;

fn two(at: u32) -> f32 {
    return partial[at] + partial[at + 1u];
}

fn four(at: u32) -> f32 {
    return two(at) + two(at + 2u);
}

fn eight(at: u32) -> f32 {
    return four(at) + four(at + 4u);
}

fn sixteen(at: u32) -> f32 {
    return eight(at) + eight(at + 8u);
}

fn thirty_two(at: u32) -> f32 {
    return sixteen(at) + sixteen(at + 16u);
}

fn sixty_four(at: u32) -> f32 {
    return thirty_two(at) + thirty_two(at + 32u);
}

fn joined(at: u32, parts: u32) -> f32 {
    switch (parts) {
        case 1u: {
            return partial[at];
        }
        case 2u: {
            return two(at);
        }
        case 4u: {
            return four(at);
        }
        case 8u: {
            return eight(at);
        }
        case 16u: {
            return sixteen(at);
        }
        case 32u: {
            return thirty_two(at);
        }
        case 64u: {
            return sixty_four(at);
        }
        default: {
            return sixty_four(at) + sixty_four(at + 64u);
        }
    }
}

{{TEAMWORK}}
