// How sixteen activations are scaled before they are rounded.
struct Scaling {
    largest: f32,
    inverse: f32,
}

fn scaling(x: Sixteen) -> Scaling {
    let most = max(max(abs(x[0]), abs(x[1])), max(abs(x[2]), abs(x[3])));
    let largest = max(max(most.x, most.y), max(most.z, most.w));
    let sum = dot(x[0] + x[1] + x[2] + x[3], vec4(1.0));
    // below that the inverse has no number
    let inverse = select(0.0, 1.0 / largest, largest > 1e-30);
    // what is no number stays none: `max` may pass over it, the sum does not, and drivers do not reason about bits
    let is_finite = (bitcast<u32>(sum) & 0x7f800000u) != 0x7f800000u;
    return Scaling(select(sum, largest, is_finite), inverse);
}

