// What a product or an element is finished with, by the numbers of `kernels.rs`.
fn activation(kind: u32, x: f32, p: vec4<f32>) -> f32 {
    switch (kind) {
        case 1u: { return silu(x); }
        case 2u: { return sigmoid(x); }
        case 3u: { return gelu(x); }
        case 4u: { return gelu_erf(x); }
        case 5u: { return relu(x); }
        case 6u: { return relu2(x); }
        case 7u: { return softplus(x); }
        case 8u: { return stable_tanh(x); }
        case 9u: { return softcap(x, p.x); }
        case 10u: { return clamp(x, -p.x, p.x); }
        case 11u: { return xielu(x, p.x, p.y, p.z, p.w); }
        case 12u: { return exp(min(x, 88.0)); }
        default: { return x; }
    }
}

// The same of a number `x` and of the one beside it, which counts where there is a gate.
fn finished(x: f32, u: f32) -> f32 {
    let p = vec4(c.act_a, c.act_b, c.act_c, c.act_d);
    switch (c.gate_kind) {
        case 2u: { return swiglu_oai(x, u, p.x, p.y); }
        case 3u: { return clamped_swiglu_before(x, u, p.x); }
        case 4u: { return clamped_swiglu_after(x, u, p.x); }
        case 5u: { return situ(x, u, p.x, p.y); }
        default: {}
    }
    let y = activation(c.act_kind, x, p);
    return select(y, y * u, c.gate_kind == 1u);
}
