fn count(list: u32) -> u32 {
    return min(c.stretch, c.cols - list * c.stretch);
}

fn token(row: u32, list: u32, i: u32) -> vec2<u32> {
    let id = list * c.stretch + i;
    return vec2(key(numbers[row * c.stride + c.offset + id]), id);
}
