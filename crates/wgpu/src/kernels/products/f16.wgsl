// Products of f16. Of sixteen activations the largest becomes 1, so that no sum of sixteen leaves the range of f16, whose
// numbers are exact up to 2048: the codes are.
alias Codes = array<vec4<f16>, 4>;

struct Acts {
    x: Codes,
    scale: f32,
    sum: f32, // of what they are rounded to, where weights have mins: errors of both have to cancel
}

fn acts16(x: Sixteen) -> Acts {
    let s = scaling(x);
    let y = Codes(
        vec4<f16>(x[0] * s.inverse),
        vec4<f16>(x[1] * s.inverse),
        vec4<f16>(x[2] * s.inverse),
        vec4<f16>(x[3] * s.inverse),
    );
    var sum = 0.0;
    if (HAS_MIN) {
        sum = s.largest * dot(vec4<f32>(y[0] + y[1] + y[2] + y[3]), vec4(1.0));
    }
    return Acts(y, s.largest, sum);
}

fn product16(w: Codes, a: Acts) -> f32 {
    let sums = w[0] * a.x[0] + w[1] * a.x[1] + w[2] * a.x[2] + w[3] * a.x[3];
    return dot(vec4<f32>(sums), vec4(1.0)) * a.scale;
}

// Four codes in the bytes of a word become numbers.
fn number4(packed: u32) -> vec4<f16> {
    return {{VALUES}};
}

