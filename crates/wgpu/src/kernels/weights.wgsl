// A matrix of packed weights, 16 at a time: see `pack.rs` for the planes. What differs between types is substituted.
@group(0) @binding(2) var<storage, read> low: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> high: array<u32>;
@group(0) @binding(4) var<storage, read> scales: array<u32>;

alias Sixteen = array<vec4<f32>, 4>;

const HAS_MIN = {{HAS_MIN}};

// Values of four codes of four bits in a table of 16 signed bytes.
fn tabled(packed: u32, table: vec4<u32>) -> vec4<i32> {
    let codes = unpack4xU8(packed);
    let low_half = select(table.xxxx, table.yyyy, (codes & vec4(4u)) != vec4(0u));
    let high_half = select(table.zzzz, table.wwww, (codes & vec4(4u)) != vec4(0u));
    let words = select(low_half, high_half, (codes & vec4(8u)) != vec4(0u));
    let up = vec4(24u) - 8u * (codes & vec4(3u));
    return bitcast<vec4<i32>>(words << up) >> vec4(24u);
}

{{PRODUCTS}}
// The numbers of half a chunk of the plane, 16 weights, without their scale. Whoever goes through both halves does so in a
// loop that a compiler can unroll: then what they share is read once.
fn codes16(chunk: u32, half: u32) -> Codes {
{{CODES}}
}

fn half_of(words: u32, index: u32) -> f32 {
    let both = unpack2x16float(words);
    return select(both.x, both.y, (index & 1u) == 1u);
}

fn signed_byte(word: u32, index: u32) -> f32 {
    return f32(bitcast<i32>(word << (24u - 8u * (index & 3u))) >> 24u);
}

fn unsigned_byte(word: u32, index: u32) -> f32 {
    return f32((word >> (8u * (index & 3u))) & 0xffu);
}

// What the numbers of half a chunk of a row are multiplied with, and what is subtracted then.
fn scale16(row: u32, chunk: u32, half: u32) -> vec2<f32> {
{{SCALE}}
}

// Their product with sixteen activations.
fn scaled16(w: Codes, scale: vec2<f32>, a: Acts) -> f32 {
    var sum = scale.x * product16(w, a);
    if (HAS_MIN) {
        sum -= scale.y * a.sum;
    }
    return sum;
}
