// Products of f32: nothing is rounded before.
alias Codes = Sixteen;

struct Acts {
    x: Sixteen,
    sum: f32, // where weights have mins
}

fn acts16(x: Sixteen) -> Acts {
    var sum = 0.0;
    if (HAS_MIN) {
        sum = dot(x[0] + x[1] + x[2] + x[3], vec4(1.0));
    }
    return Acts(x, sum);
}

fn product16(w: Codes, a: Acts) -> f32 {
    return dot(w[0], a.x[0]) + dot(w[1], a.x[1]) + dot(w[2], a.x[2]) + dot(w[3], a.x[3]);
}

// Four codes in the bytes of a word become numbers.
fn number4(packed: u32) -> vec4<f32> {
    return {{VALUES}};
}

// Half a chunk of a row.
fn weights16(row: u32, chunk: u32, half: u32) -> Sixteen {
    let codes = codes16(row * c.chunks + chunk, half);
    let s = scale16(row, chunk, half);
    return Sixteen(codes[0] * s.x - s.y, codes[1] * s.x - s.y, codes[2] * s.x - s.y, codes[3] * s.x - s.y);
}

