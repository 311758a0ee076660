// Products of signed bytes, four at a time, as many processors and cards have them: of sixteen activations the largest
// becomes 127.
alias Codes = vec4<u32>;

struct Acts {
    x: Codes,
    scale: f32,
    sum: f32, // of what they are rounded to, where weights have mins: errors of both have to cancel
}

// The sum of bytes, of which four are multiplied each time.
fn dot16(w: Codes, x: Codes) -> f32 {
    return f32(dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w));
}

fn acts16(x: Sixteen) -> Acts {
    let s = scaling(x);
    let by = 127.0 * s.inverse;
    let y = Codes(rounded4(x[0] * by), rounded4(x[1] * by), rounded4(x[2] * by), rounded4(x[3] * by));
    let scale = s.largest / 127.0;
    var sum = 0.0;
    if (HAS_MIN) {
        sum = scale * dot16(Codes(0x01010101u), y);
    }
    return Acts(y, scale, sum);
}

// Beside such a number a small one leaves its nearest integer in the lowest bits.
const BESIDE = 12582912.0;

fn rounded4(x: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(x + vec4(BESIDE));
    let both = vec2(insertBits(bits.x, bits.y, 8u, 8u), insertBits(bits.z, bits.w, 8u, 8u));
    return insertBits(both.x, both.y, 16u, 16u);
}

fn product16(w: Codes, a: Acts) -> f32 {
    return dot16(w, a.x) * a.scale;
}

// Four codes in the bytes of a word become signed bytes.
fn number4(packed: u32) -> u32 {
    return {{VALUES}};
}

