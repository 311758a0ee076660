//! Recording of what models with several residual streams do with them.

use super::Recorder;
use crate::{Op, Result, Shape, ValueId};

impl Recorder {
    /// The groups of all `values`, one value's after another's.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if their rows or the lengths of their groups differ, or there are none.
    pub fn concat(&self, name: &str, values: &[ValueId]) -> Result<ValueId> {
        let shapes: Vec<Shape> = values.iter().map(|id| self.shape(*id)).collect();
        let alike = |s: &Shape| (s.rows, s.dim) == (shapes[0].rows, shapes[0].dim);
        if shapes.is_empty() || !shapes.iter().all(alike) {
            let expected = "values of as many rows, of groups as long".into();
            return Err(self.operand(name, expected, format!("{shapes:?}")));
        }
        let groups = shapes.iter().map(|shape| shape.groups).sum();
        self.push(name, Op::Concat, values, Shape { groups, ..shapes[0] })
    }

    /// The sum of each group of `x`: `[rows, groups]`.
    ///
    /// # Errors
    /// None; as other ops.
    pub fn sum_groups(&self, name: &str, x: ValueId) -> Result<ValueId> {
        let shape = self.shape(x);
        self.push(name, Op::SumGroups, &[x], Shape { groups: 1, dim: shape.groups, ..shape })
    }

    /// Sums of the groups of `x`, weighted by `weights`, which hold a number for each group of `x` and of the result.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if the numbers do not divide by the groups of `x`, or the rows differ.
    pub fn mix(&self, name: &str, weights: ValueId, x: ValueId) -> Result<ValueId> {
        let (by, shape) = (self.shape(weights), self.shape(x));
        if by.rows != shape.rows || !by.cols().is_multiple_of(shape.groups) {
            let expected = format!("weights of {} groups for each of the result", shape.groups);
            return Err(self.operand(name, expected, format!("{by:?}")));
        }
        let groups = by.cols() / shape.groups;
        self.push(name, Op::Mix, &[weights, x], Shape { groups, ..shape })
    }

    /// Each group of `x` made as long as that of `y`.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if the shapes differ.
    pub fn resize(&self, name: &str, x: ValueId, y: ValueId) -> Result<ValueId> {
        self.same_shape(name, x, y)?;
        self.push(name, Op::Resize, &[x, y], self.shape(x))
    }

    /// By how much the elements of a group exceed its mean and so many standard deviations; 0 for those that do not.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if groups have no deviation, or `deviations` is not finite.
    pub fn excess(&self, name: &str, x: ValueId, deviations: f32) -> Result<ValueId> {
        let shape = self.shape(x);
        if shape.dim < 2 || !deviations.is_finite() {
            let expected = "groups of 2 or more, a finite number of deviations".into();
            return Err(self.operand(name, expected, format!("{shape:?}, {deviations}")));
        }
        self.push(name, Op::Excess { deviations }, &[x], shape)
    }

    /// The root of the size of each number, at least of `least`, with its sign.
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if `least` is not finite or below 0.
    pub fn signed_root(&self, name: &str, x: ValueId, least: f32) -> Result<ValueId> {
        if !(least.is_finite() && least >= 0.0) {
            return Err(self.operand(name, "a finite number >= 0".into(), least.to_string()));
        }
        self.push(name, Op::SignedRoot { least }, &[x], self.shape(x))
    }

    /// `exp(x)` over the sum of its group's.
    ///
    /// # Errors
    /// None; as other ops.
    pub fn softmax(&self, name: &str, x: ValueId) -> Result<ValueId> {
        self.push(name, Op::Softmax, &[x], self.shape(x))
    }

    /// The first numbers of all groups of `x` as a group, then the second ones.
    ///
    /// # Errors
    /// None; as other ops.
    pub fn turn(&self, name: &str, x: ValueId) -> Result<ValueId> {
        let Shape { rows, groups, dim } = self.shape(x);
        self.push(name, Op::Turn, &[x], Shape { rows, groups: dim, dim: groups })
    }

    /// The matrices `x` with rows and columns that sum to nearly 1, turned: see [`Op::Sinkhorn`].
    ///
    /// # Errors
    /// [`Error::Operand`](crate::Error::Operand) if a row of `x` is no square matrix, there are no rounds, or `eps` is not
    /// a finite number from 0 on.
    pub fn sinkhorn(&self, name: &str, x: ValueId, rounds: u32, eps: f32) -> Result<ValueId> {
        let shape = self.shape(x);
        if shape.groups != shape.dim || rounds == 0 || !(eps.is_finite() && eps >= 0.0) {
            let expected = "a square matrix, rounds, eps finite and >= 0".into();
            return Err(self.operand(name, expected, format!("{shape:?}, {rounds}, {eps}")));
        }
        self.push(name, Op::Sinkhorn { rounds, eps }, &[x], shape)
    }
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;
    use crate::WeightSpec;

    #[test]
    fn shapes_follow_from_those_of_the_inputs() {
        let r = Recorder::new();
        let table = |cols| {
            let name = format!("w{cols}");
            let spec = WeightSpec { name, ty: GgmlType::F32, rows: 3, cols, start: 0 };
            r.embed(r.weight(spec)).unwrap()
        };
        let (x, y) = (r.view("x", table(12), 3).unwrap(), table(4));
        let groups = |id| (r.shape(id).groups, r.shape(id).dim);
        let all = r.concat("all", &[y, x, y]).unwrap();
        assert_eq!(groups(all), (5, 4));
        assert_eq!(groups(r.mix("mixed", table(6), x).unwrap()), (2, 4));
        assert_eq!(groups(r.resize("resized", y, y).unwrap()), (1, 4));
        let refused = |result: Result<ValueId>, needle: &str| {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(needle), "{message}");
        };
        refused(r.concat("none", &[]), "none: expected values");
        refused(r.concat("other", &[x, table(6)]), "groups as long");
        refused(r.mix("odd", y, x), "odd: expected weights of 3 groups");
        refused(r.resize("other", x, y), "other");
        refused(r.excess("nan", x, f32::NAN), "a finite number");
        refused(r.excess("one", table(1), 1.0), "groups of 2");
        let square = r.view("square", y, 2).unwrap();
        assert_eq!(groups(r.sinkhorn("balanced", square, 3, 1e-6).unwrap()), (2, 2));
        assert_eq!(groups(r.softmax("shares", x).unwrap()), (3, 4));
        assert_eq!(groups(r.turn("turned", x).unwrap()), (4, 3));
        refused(r.sinkhorn("long", x, 3, 1e-6), "a square matrix");
        refused(r.sinkhorn("no", square, 0, 1e-6), "rounds");
        refused(r.sinkhorn("below", square, 1, -1.0), "eps finite");
        refused(r.shift("nan", x, f32::NAN), "a finite number");
        refused(r.signed_root("nan", x, f32::NAN), "a finite number");
        refused(r.signed_root("below", x, -1.0), ">= 0");
    }
}
