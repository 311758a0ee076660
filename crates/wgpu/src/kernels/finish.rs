//! What products and elements are finished with: activations and gates, by numbers that `kernels/finish.wgsl` knows.

use program::{Act, Gate};

/// What becomes of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Finish {
    /// Itself.
    Plain,
    /// An activation of it.
    Act(Act),
    /// An activation of it and of its neighbour.
    Gate(Gate),
}

impl Finish {
    /// How constants say it: the activation, the gate, and their numbers. See `kernels/finish.wgsl`.
    pub(crate) fn words(self) -> [u32; 6] {
        let (act, gate, numbers) = match self {
            Finish::Plain => (0, 0, [0.0; 4]),
            Finish::Act(act) | Finish::Gate(Gate::Act(act) | Gate::Alone(act)) => {
                let (number, numbers) = act_number(act);
                (number, u32::from(matches!(self, Finish::Gate(Gate::Act(_)))), numbers)
            }
            Finish::Gate(Gate::SwigluOai { alpha, limit }) => (0, 2, [alpha, limit, 0.0, 0.0]),
            Finish::Gate(Gate::ClampedSwiglu { limit, after }) => {
                (0, 3 + u32::from(after), [limit, 0.0, 0.0, 0.0])
            }
            Finish::Gate(Gate::Situ { gate, up }) => (0, 5, [gate, up, 0.0, 0.0]),
        };
        let [a, b, c, d] = numbers.map(f32::to_bits);
        [act, gate, a, b, c, d]
    }
}

fn act_number(act: Act) -> (u32, [f32; 4]) {
    let none = [0.0; 4];
    match act {
        Act::Silu => (1, none),
        Act::Sigmoid => (2, none),
        Act::Gelu => (3, none),
        Act::GeluErf => (4, none),
        Act::Relu => (5, none),
        Act::Relu2 => (6, none),
        Act::Softplus => (7, none),
        Act::Tanh => (8, none),
        Act::Softcap(cap) => (9, [cap, 0.0, 0.0, 0.0]),
        Act::Clamp(most) => (10, [most, 0.0, 0.0, 0.0]),
        Act::Xielu { alpha_p, alpha_n, beta, eps } => (11, [alpha_p, alpha_n, beta, eps]),
        Act::Exp => (12, none),
        Act::Identity => (0, none),
    }
}
