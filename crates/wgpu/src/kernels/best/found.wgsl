fn count(list: u32) -> u32 {
    return c.stretches * step[N_BEST];
}

fn token(row: u32, list: u32, i: u32) -> vec2<u32> {
    let at = 2u * (row * c.stretches * step[N_BEST] + i);
    return vec2(numbers[at], numbers[at + 1u]);
}
