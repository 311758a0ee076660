// What a step is to the states of a sequence and to the rows since them: see `batch.rs`, which writes these words.
const ROWS_IN_RING = 32u;

// Places are in numbers of the cache's buffer.
struct States {
    base: u32, // of the state that the step starts from; NONE: zeros
    fold: u32, // of the one that it makes; NONE: it makes none
    ring: u32, // of the rows since the first
    stored: u32, // of the rows that it leaves
    begins: u32, // positions that the first state has taken in
    folds: u32, // those that the second one has
    stored_from: u32, // position of the first row that it leaves
    start: u32, // position of its own first row
    end: u32, // the one after its last
    first_row: u32, // of its values
}

fn place_of(word: u32) -> u32 {
    let place = step[word];
    // blocks begin at multiples of 16 bytes
    return select(4u * place, NONE, place == NONE);
}

fn states_of(sequence: u32, cache: u32) -> States {
    let at = step[step[TABLES] + 2u * (sequence * step[N_CACHES] + cache)];
    let record = step[SEQUENCES] + 3u * sequence;
    var s: States;
    s.base = place_of(at);
    s.fold = place_of(at + 1u);
    s.ring = place_of(at + 2u);
    s.stored = place_of(at + 3u);
    s.begins = step[at + 4u];
    s.folds = step[at + 5u];
    s.stored_from = step[at + 6u];
    s.first_row = step[record];
    s.start = step[record + 2u];
    s.end = s.start + step[record + 1u];
    return s;
}

// Where the row of a position begins in a ring of rows of so many numbers.
fn ring_row(position: u32, numbers: u32) -> u32 {
    return position % ROWS_IN_RING * numbers;
}
