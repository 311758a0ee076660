//! Activations in f64.

use crate::{Act, Gate};

/// `act(x)`.
pub(super) fn act(act: Act, x: f64) -> f64 {
    match act {
        Act::Silu => x * sigmoid(x),
        Act::Sigmoid => sigmoid(x),
        Act::Gelu => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
        Act::GeluErf => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        Act::Relu => x.max(0.0),
        Act::Relu2 => x.max(0.0).powi(2),
        Act::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Act::Tanh => x.tanh(),
        Act::Exp => x.exp(),
        Act::Identity => x,
        Act::Softcap(c) => f64::from(c) * (x / f64::from(c)).tanh(),
        Act::Clamp(c) => x.clamp(-f64::from(c), f64::from(c)),
        Act::Xielu { alpha_p, alpha_n, beta, eps } => {
            let [alpha_p, alpha_n, beta, eps] = [alpha_p, alpha_n, beta, eps].map(f64::from);
            let curved =
                if x > 0.0 { alpha_p * x * x } else { alpha_n * (x.min(eps).exp_m1() - x) };
            curved + beta * x
        }
    }
}

/// `gate(g, u)`.
pub(super) fn gate(gate: Gate, g: f64, u: f64) -> f64 {
    match gate {
        Gate::Act(act) => self::act(act, g) * u,
        Gate::Alone(act) => self::act(act, g),
        Gate::SwigluOai { alpha, limit } => {
            let limit = f64::from(limit);
            let (g, u) = (g.min(limit), u.clamp(-limit, limit));
            g * sigmoid(f64::from(alpha) * g) * (u + 1.0)
        }
        Gate::ClampedSwiglu { limit, after } => {
            let limit = f64::from(limit);
            let silu = |x: f64| x * sigmoid(x);
            let factor = if after { silu(g).min(limit) } else { silu(g.min(limit)) };
            factor * u.clamp(-limit, limit)
        }
        Gate::Situ { gate, up } => {
            let (gate, up) = (f64::from(gate), f64::from(up));
            gate * (g / gate).tanh() * sigmoid(g) * up * (u / up).tanh()
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The error function by `2 / sqrt(pi) e^(-x^2) sum_n 2^n x^(2n+1) / (2n+1)!!`, whose terms do not cancel.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 || x.is_nan() {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-17 {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, want: f64) {
        assert!((found - want).abs() <= 1e-7 * want.abs().max(1e-6), "{found} vs {want}");
    }

    #[test]
    fn unary_activations_at_known_points() {
        close(erf(0.5), 0.520_499_877_813_046_5);
        close(erf(2.0), 0.995_322_265_018_952_7);
        assert_eq!((erf(0.0), erf(-7.0)), (0.0, -1.0));
        close(act(Act::Silu, 1.0), 0.731_058_578_6);
        close(act(Act::Gelu, 1.0), 0.841_191_990_6);
        close(act(Act::GeluErf, 1.0), 0.841_344_746_1);
        close(act(Act::GeluErf, -2.0), -0.045_500_263_9);
        assert_eq!((act(Act::Relu, -3.0), act(Act::Relu2, 3.0)), (0.0, 9.0));
        close(act(Act::Softplus, 0.0), 2f64.ln());
        close(act(Act::Softplus, 800.0), 800.0);
        close(act(Act::Softcap(30.0), 1e9), 30.0);
        close(act(Act::Softcap(30.0), 3.0), 30.0 * 0.1f64.tanh());
        let xielu = Act::Xielu { alpha_p: 0.8, alpha_n: 0.9, beta: 0.5, eps: -1e-6 };
        close(act(xielu, 2.0), 0.8 * 4.0 + 1.0);
        close(act(xielu, -1.0), 0.9 * ((-1f64).exp_m1() + 1.0) - 0.5);
    }

    #[test]
    fn gates_bound_what_they_say() {
        let oai = Gate::SwigluOai { alpha: 1.702, limit: 7.0 };
        close(gate(oai, 1.0, 2.0), 3.0 / (1.0 + f64::from(-1.702f32).exp()));
        close(gate(oai, 50.0, -50.0), 7.0 / (1.0 + (7.0 * f64::from(-1.702f32)).exp()) * -6.0);
        let clamped = |after| Gate::ClampedSwiglu { limit: 2.0, after };
        close(gate(clamped(false), 9.0, 9.0), 4.0 / (1.0 + (-2f64).exp()));
        close(gate(clamped(true), 9.0, -9.0), -4.0);
        close(gate(clamped(true), 1.0, 1.0), 0.731_058_578_6);
        let situ = Gate::Situ { gate: 4.0, up: 25.0 };
        close(gate(situ, 2.0, 5.0), 4.0 * 0.5f64.tanh() * sigmoid(2.0) * 25.0 * 0.2f64.tanh());
    }
}
