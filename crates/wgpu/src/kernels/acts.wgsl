// Activations: `program::Act` and `program::Gate` say what each is.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}

fn stable_tanh(x: f32) -> f32 {
    let a = abs(x);
    let e = exp(-2.0 * a);
    let q = x * x;
    // 1 - e cancels near 0
    let near = a * (1.0 - q * (1.0 / 3.0 - q * (2.0 / 15.0 - q * (17.0 / 315.0))));
    let t = select((1.0 - e) / (1.0 + e), near, a < 0.15);
    return select(t, -t, x < 0.0);
}

// Abramowitz and Stegun, 7.1.26: off by 1.5e-7 at most.
fn erf(x: f32) -> f32 {
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let y = 1.0 - p * exp(-a * a);
    return select(y, -y, x < 0.0);
}

fn gelu(x: f32) -> f32 {
    return 0.5 * x * (1.0 + stable_tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}

fn gelu_erf(x: f32) -> f32 {
    return 0.5 * x * (1.0 + erf(x * 0.70710678));
}

fn relu(x: f32) -> f32 {
    return max(x, 0.0);
}

fn relu2(x: f32) -> f32 {
    return max(x, 0.0) * max(x, 0.0);
}

fn softplus(x: f32) -> f32 {
    return max(x, 0.0) + log(1.0 + exp(-abs(x)));
}

fn softcap(x: f32, cap: f32) -> f32 {
    return cap * stable_tanh(x / cap);
}

fn xielu(x: f32, alpha_p: f32, alpha_n: f32, beta: f32, eps: f32) -> f32 {
    let below = alpha_n * (exp(min(x, eps)) - 1.0 - x);
    return select(below, alpha_p * x * x, x > 0.0) + beta * x;
}

fn swiglu_oai(g: f32, u: f32, alpha: f32, limit: f32) -> f32 {
    let a = min(g, limit);
    return a * sigmoid(alpha * a) * (clamp(u, -limit, limit) + 1.0);
}

fn clamped_swiglu_before(g: f32, u: f32, limit: f32) -> f32 {
    return silu(min(g, limit)) * clamp(u, -limit, limit);
}

fn clamped_swiglu_after(g: f32, u: f32, limit: f32) -> f32 {
    return min(silu(g), limit) * clamp(u, -limit, limit);
}

fn situ(g: f32, u: f32, gate: f32, up: f32) -> f32 {
    return gate * stable_tanh(g / gate) * sigmoid(g) * up * stable_tanh(u / up);
}
