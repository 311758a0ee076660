fn count(list: u32) -> u32 {
    return min(c.stretch, c.cols - list * c.stretch);
}

// Whether a token may be one of the likeliest of a row.
fn is_allowed(row: u32, id: u32) -> bool {
    let masks = step[ALLOWED];
    if (masks == NONE || step[masks + 2u * row] == NONE) {
        return true;
    }
    let word = id / 32u;
    return word < step[masks + 2u * row + 1u] && ((step[step[masks + 2u * row] + word] >> (id % 32u)) & 1u) == 1u;
}

fn token(row: u32, list: u32, i: u32) -> vec2<u32> {
    let id = list * c.stretch + i;
    let its = key(numbers[row * c.stride + c.offset + id]);
    // what is no number is found whatever is allowed
    if (its != NOT_FINITE && !is_allowed(row, id)) {
        return NOBODY;
    }
    return vec2(its, id);
}
