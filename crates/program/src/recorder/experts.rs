//! Recording of mixtures of experts.

use super::Recorder;
use crate::{ExpertBiases, Gate, GroupScore, Op, Result, Router, Shape, ValueId, WeightId};

/// The weights of all experts of a layer, expert by expert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertWeights {
    /// `[n_experts * width, hidden]`.
    pub gate: WeightId,
    /// `[n_experts * width, hidden]`; the same as `gate` if there is no gate ([`Gate::Alone`]), or for one weight of both, `[n_experts * 2 * width, hidden]`: of each
    /// expert gate's rows, then up's.
    pub up: WeightId,
    /// `[n_experts * hidden, width]`.
    pub down: WeightId,
    /// `None` for none.
    pub biases: Option<ExpertBiases>,
    /// Experts in each.
    pub n_experts: usize,
    /// Routes weigh the products with gate and up instead of what an expert yields.
    pub weighs_inputs: bool,
}

impl Recorder {
    /// Choose experts by their scores `[rows, n_experts]`: `[rows, 2 * n_used]`, ids and weights.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if there are fewer experts than are used, if groups or chunks do not
    /// divide them, if the bias has another length, or if the scale is not a positive number.
    pub fn route(&self, name: &str, scores: ValueId, router: Router) -> Result<ValueId> {
        let shape = self.shape(scores);
        let n_experts = shape.cols();
        let refuse = |expected: String, found: String| Err(self.operand(name, expected, found));
        let n_used = router.n_used;
        if !(1..=n_experts).contains(&n_used) {
            return refuse(format!("1..={n_experts} experts"), n_used.to_string());
        }
        if let Some(groups) = router.groups {
            let least = if groups.score == GroupScore::TopTwoSum { 2 } else { 1 };
            let fits = (1..=groups.n_groups).contains(&groups.n_used)
                && n_experts.is_multiple_of(groups.n_groups)
                && n_experts / groups.n_groups >= least
                && n_used <= n_experts / groups.n_groups * groups.n_used;
            if !fits {
                let expected = format!("groups of {n_experts} experts that hold {n_used}");
                return refuse(expected, format!("{groups:?}"));
            }
        }
        for (what, id) in [("a bias", router.bias), ("factors", router.factors)] {
            let found = id.map_or(n_experts, |id| self.spec(id).cols);
            if found != n_experts {
                return refuse(format!("{what} of {n_experts}"), found.to_string());
            }
        }
        let fits = router.per_chunk > 0
            && n_experts.is_multiple_of(router.per_chunk)
            && n_used <= n_experts / router.per_chunk;
        if !fits {
            let expected = format!("chunks that divide {n_experts} experts, {n_used} or more");
            return refuse(expected, format!("chunks of {}", router.per_chunk));
        }
        if !(router.scale.is_finite() && router.scale > 0.0) {
            return refuse("a scale finite and > 0".into(), router.scale.to_string());
        }
        let shape = Shape { rows: shape.rows, groups: 1, dim: 2 * n_used };
        self.push(name, Op::Route(router), &[scores], shape)
    }

    /// The weighted sum of the experts that `routes` names for each row of `x`.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if the shapes of weights and rows do not fit, or `routes` are not
    /// those of [`route`](Self::route) among as many experts.
    pub fn experts(
        &self,
        name: &str,
        weights: ExpertWeights,
        act: impl Into<Gate>,
        x: ValueId,
        routes: ValueId,
    ) -> Result<ValueId> {
        let ExpertWeights { gate, up, down, biases, n_experts, weighs_inputs } = weights;
        let act = act.into();
        let alone = matches!(act, Gate::Alone(_));
        let shape = self.shape(x);
        let hidden = shape.cols();
        let routed = self.routed(routes).filter(|routed| routed.0 == n_experts);
        let Some((_, n_used)) = routed.filter(|_| self.shape(routes).rows == shape.rows) else {
            let expected = format!("routes of each row among {n_experts} experts");
            let found = match self.routed(routes) {
                Some((n_experts, _)) => format!("routes among {n_experts}"),
                None => "another value".into(),
            };
            return Err(self.operand(name, expected, found));
        };
        let of = |id| (self.spec(id).rows, self.spec(id).cols);
        let width = of(down).1;
        let both = if gate == up && !alone { 2 } else { 1 };
        let fits = (!alone || gate == up && biases.is_none())
            && of(gate) == (n_experts * both * width, hidden)
            && of(up) == of(gate)
            && of(down).0 == n_experts * hidden;
        if !fits {
            let expected = format!("{n_experts} experts of {hidden} inputs and outputs");
            let found = format!("gate {:?}, up {:?}, down {:?}", of(gate), of(up), of(down));
            return Err(self.operand(name, expected, found));
        }
        if let Some(biases) = biases {
            let found = biases.all().map(of);
            let [inner, outer] = [width, hidden].map(|len| (n_experts, len));
            if found != [inner, inner, outer] {
                let expected = format!("biases of {n_experts} experts");
                return Err(self.operand(name, expected, format!("{found:?}")));
            }
        }
        if !act.is_sound() {
            return Err(self.operand(name, "sound parameters".into(), format!("{act:?}")));
        }
        let op = Op::Experts { gate, up, down, biases, act, weighs_inputs, n_experts, n_used };
        self.push(name, op, &[x, routes], Shape { groups: 1, dim: hidden, ..shape })
    }

    /// Among how many experts a router chose this value, and how many.
    fn routed(&self, id: ValueId) -> Option<(usize, usize)> {
        let program = &self.state.borrow().program;
        let node = program.nodes.iter().rfind(|node| node.output == id)?;
        let Op::Route(router) = &node.op else { return None };
        Some((program.value(node.inputs[0]).shape.cols() / router.per_chunk, router.n_used))
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::{Act, Gating, Groups, Program, Rows, WeightSpec};

    fn weight(r: &Recorder, name: &str, rows: usize, cols: usize) -> WeightId {
        r.weight(WeightSpec { name: name.into(), ty: GgmlType::F32, rows, cols, start: 0 })
    }

    fn router(n_used: usize) -> Router {
        let gating = Gating::Softmax;
        Router {
            n_used,
            gating,
            bias: None,
            groups: None,
            normalize: true,
            scale: 1.0,
            factors: None,
            per_chunk: 1,
        }
    }

    /// 8 experts of width 3 on rows of 5.
    fn record(
        change: impl FnOnce(&Recorder, &mut Router),
        rows: [usize; 3],
        n_experts: usize,
    ) -> Result<Program> {
        let r = Recorder::new();
        let x = r.embed(weight(&r, "token_embd.weight", 9, 5))?;
        let scores = r.linear("scores", x, weight(&r, "gate_inp", 8, 5))?;
        let mut router = router(2);
        change(&r, &mut router);
        let routes = r.route("routes", scores, router)?;
        assert_eq!(r.shape(routes).rows, Rows::Tokens);
        let [gate, up, down] = rows;
        let weights = ExpertWeights {
            gate: weight(&r, "gate", gate, 5),
            up: weight(&r, "up", up, 5),
            down: weight(&r, "down", down, 3),
            biases: None,
            n_experts,
            weighs_inputs: false,
        };
        let y = r.experts("experts", weights, Act::Silu, x, routes)?;
        assert_eq!(r.shape(y), r.shape(x));
        Ok(r.finish(&[]))
    }

    const GOOD: [usize; 3] = [24, 24, 40];

    #[test]
    fn a_token_reads_the_experts_it_uses() {
        let program = record(|_, _| (), GOOD, 8).unwrap();
        let (embed, scores, expert) = (5, 8 * 5, 3 * 3 * 5);
        assert_eq!(program.weight_bytes_per_token(), 4 * (embed + scores + 2 * expert));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |program: Result<Program>, want: &str| {
            assert_eq!(program.unwrap_err().to_string(), want);
        };
        let n_used = |n| move |_: &Recorder, router: &mut Router| router.n_used = n;
        refused(record(n_used(0), GOOD, 8), "routes: expected 1..=8 experts, found 0");
        refused(record(n_used(9), GOOD, 8), "routes: expected 1..=8 experts, found 9");
        let scale = |_: &Recorder, router: &mut Router| router.scale = f32::NAN;
        refused(record(scale, GOOD, 8), "routes: expected a scale finite and > 0, found NaN");
        let bias = |r: &Recorder, router: &mut Router| router.bias = Some(weight(r, "b", 1, 7));
        refused(record(bias, GOOD, 8), "routes: expected a bias of 8, found 7");
        for (rows, n_experts) in [([24, 23, 40], 8), ([24, 24, 39], 8), (GOOD, 7), (GOOD, 1)] {
            let message = record(|_, _| (), rows, n_experts).unwrap_err().to_string();
            assert!(message.starts_with("experts: expected "), "{message}");
        }
    }

    #[test]
    fn groups_divide_the_experts_and_hold_enough_of_them() {
        let grouped = |n_groups, n_used, score| {
            let change = move |_: &Recorder, router: &mut Router| {
                router.groups = Some(Groups { n_groups, n_used, score });
            };
            record(change, GOOD, 8).is_ok()
        };
        use GroupScore::{Max, TopTwoSum};
        assert!(grouped(4, 1, TopTwoSum) && grouped(8, 2, Max) && grouped(1, 1, Max));
        assert!(!grouped(8, 1, Max), "one group of one expert holds no two");
        assert!(!grouped(8, 2, TopTwoSum), "groups of one have no best two");
        assert!(!grouped(3, 1, Max) && !grouped(4, 5, Max) && !grouped(4, 0, Max));
        assert!(!grouped(0, 0, Max));
    }
}
