//! Axes: what they say, where their ticks are, and where a value lies on them.

use crate::font;
use crate::number::{grouped, prefix, si};

/// What the values of an axis count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nothing that needs a name.
    Number,
    /// Things that are counted, such as tokens: `16,384`.
    Plain(&'static str),
    /// A unit that takes SI prefixes, such as `s`, `B` or `B/s`: values are in the unit itself.
    Si(&'static str),
    /// Fractions, shown as percent: 0.5 is `50 %`.
    Percent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Linear,
    Log10,
    Log2,
}

/// A horizontal or vertical axis. Its range is that of the data unless [`range`](Axis::range) is given; a linear axis
/// includes zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    label: String,
    unit: Unit,
    scale: Scale,
    range: Option<[f64; 2]>,
}

impl Axis {
    fn new(label: impl Into<String>, unit: Unit, scale: Scale) -> Axis {
        Axis { label: label.into(), unit, scale, range: None }
    }

    /// Equal steps.
    pub fn linear(label: impl Into<String>, unit: Unit) -> Axis {
        Axis::new(label, unit, Scale::Linear)
    }

    /// Equal factors, ticks at 1, 2, 5, 10. Values that are not positive are left out.
    pub fn log(label: impl Into<String>, unit: Unit) -> Axis {
        Axis::new(label, unit, Scale::Log10)
    }

    /// Equal factors, ticks at powers of two.
    pub fn log2(label: impl Into<String>, unit: Unit) -> Axis {
        Axis::new(label, unit, Scale::Log2)
    }

    /// From `low` to `high`, whatever the data. Ignored if that is no range.
    #[must_use]
    pub fn range(self, low: f64, high: f64) -> Axis {
        let valid = low < high && [low, high].iter().all(|v| self.scale.takes(*v));
        Axis { range: valid.then_some([low, high]), ..self }
    }

    /// `value` as text, with its unit where that is short.
    pub(crate) fn value(&self, value: f64) -> String {
        match self.unit {
            Unit::Si(unit) => si(value, unit),
            Unit::Percent => format!("{} %", si(100.0 * value, "")),
            Unit::Number | Unit::Plain(_) if value.abs() >= 100.0 => grouped(value, 0),
            Unit::Number | Unit::Plain(_) if value.abs() >= 1.0 => si(value, ""),
            Unit::Number | Unit::Plain(_) => {
                let text = grouped(value, 3);
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
        }
    }

    /// In words, for descriptions.
    pub(crate) fn words(&self) -> String {
        match self.unit {
            Unit::Plain(unit) if self.label.is_empty() => unit.to_owned(),
            Unit::Plain(unit) => format!("{} ({unit})", self.label),
            _ => self.label.clone(),
        }
    }
}

impl Scale {
    /// Can the scale show `v`? Far from where arithmetic overflows.
    fn takes(self, v: f64) -> bool {
        match self {
            Scale::Linear => v.abs() <= 1e200,
            Scale::Log10 | Scale::Log2 => (1e-200..=1e200).contains(&v),
        }
    }

    fn forward(self, v: f64) -> f64 {
        match self {
            Scale::Linear => v,
            Scale::Log10 | Scale::Log2 => v.ln(),
        }
    }
}

/// A value with a grid line and a text, which may be empty.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// An axis with its range and ticks settled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    pub(crate) ticks: Vec<Tick>,
    /// Label and unit, as they stand beside the axis.
    pub(crate) label: String,
}

impl Ruler {
    /// Of `axis` for `values`, with about `n_ticks` ticks. With `nice`, the range ends at round numbers.
    pub(crate) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        n_ticks: usize,
        nice: bool,
    ) -> Ruler {
        let n_ticks = n_ticks.clamp(2, 20);
        let [mut low, mut high] = axis.range.unwrap_or_else(|| extent(axis.scale, values));
        let values = match axis.scale {
            Scale::Linear => {
                let step = linear_step(low, high, n_ticks);
                if nice && axis.range.is_none() {
                    (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
                }
                linear_ticks(low, high, step)
            }
            Scale::Log10 => {
                if nice && axis.range.is_none() {
                    // A high end far beyond the data would be empty; a low one gives bars a length.
                    let above = round_above(high);
                    low = round_below(low);
                    high = if above <= 1.3 * high { above } else { high * 1.1 };
                }
                log_ticks(low, high, n_ticks)
            }
            Scale::Log2 => power_ticks(low, high, n_ticks),
        };
        let (ticks, label) = name(axis, &values, low, high);
        Ruler { scale: axis.scale, low, high, ticks, label }
    }

    /// The same for an axis of `width` pixels, whose labels must stand apart.
    pub(crate) fn across(
        axis: &Axis,
        values: &(impl Iterator<Item = f64> + Clone),
        width: f64,
        size: f64,
        nice: bool,
    ) -> Ruler {
        let gap = 1.5 * size;
        let most = (width / 55.0) as usize;
        let mut ruler = Ruler::new(axis, values.clone(), most, nice);
        for n in (2..most.clamp(2, 20)).rev() {
            let widths = ruler.ticks.iter().map(|t| font::width(&t.label, size, false) + gap);
            if widths.sum::<f64>() <= width {
                break;
            }
            ruler = Ruler::new(axis, values.clone(), n, nice);
        }
        let mut free = f64::NEG_INFINITY;
        let (low, high) = (ruler.scale.forward(ruler.low), ruler.scale.forward(ruler.high));
        for tick in &mut ruler.ticks {
            let x = (ruler.scale.forward(tick.value) - low) / (high - low) * width;
            let half = font::width(&tick.label, size, false) / 2.0;
            if x - half < free {
                tick.label.clear();
            } else {
                free = x + half + gap / 3.0;
            }
        }
        ruler
    }

    /// Where `value` lies: 0 at the low end, 1 at the high one, beyond for values out of range. `None` if it cannot lie
    /// on this axis.
    pub(crate) fn at(&self, value: f64) -> Option<f64> {
        let [low, high, place] = [self.low, self.high, value].map(|v| self.scale.forward(v));
        let at = (place - low) / (high - low);
        // a range that was rounded ends beyond what values may be, and its ticks with it
        let lies_here = self.scale.takes(value) || (-1e-6..=1.0 + 1e-6).contains(&at);
        lies_here.then_some(at)
    }

    /// The value that bars grow from: 0, or the low end of a logarithmic axis.
    pub(crate) fn base(&self) -> f64 {
        match self.scale {
            Scale::Linear => 0.0_f64.clamp(self.low, self.high),
            Scale::Log10 | Scale::Log2 => self.low,
        }
    }
}

/// Least and greatest of what the scale takes, with room between them.
fn extent(scale: Scale, values: impl Iterator<Item = f64>) -> [f64; 2] {
    let start = match scale {
        Scale::Linear => [0.0, 0.0],
        Scale::Log10 | Scale::Log2 => [f64::INFINITY, f64::NEG_INFINITY],
    };
    let [low, high] =
        values.filter(|v| scale.takes(*v)).fold(start, |[low, high], v| [low.min(v), high.max(v)]);
    match scale {
        Scale::Linear if high - low <= 1e-200 => [low, low + 1.0],
        Scale::Linear => [low, high],
        _ if low > high => [1.0, 10.0],
        _ if high / low <= 1.0 + 1e-9 => [low / 2.0, high * 2.0],
        _ => [low, high],
    }
}

/// 1, 2 or 5 times a power of ten, so that about `n` steps cover the range.
fn linear_step(low: f64, high: f64, n: usize) -> f64 {
    let rough = ((high - low) / n as f64).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= rough * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

fn linear_ticks(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step - 1e-6).ceil();
    let count = (high / step + 1e-6).floor() - first;
    // An exact product of small integers, not a sum that drifts; `+ 0.0` is for a zero without sign.
    (0..=count.clamp(0.0, 50.0) as u32).map(|i| (first + f64::from(i)) * step + 0.0).collect()
}

/// Powers of two, every one or every k-th.
fn power_ticks(low: f64, high: f64, n: usize) -> Vec<f64> {
    let (first, last) = ((low.log2() - 1e-9).ceil() as i32, (high.log2() + 1e-9).floor() as i32);
    let every = (last - first).max(0) / n as i32 + 1;
    // From the top: the largest sizes are what people look for.
    let mut ticks: Vec<f64> =
        (first..=last).rev().step_by(every as usize).map(|e| 2f64.powi(e)).collect();
    ticks.reverse();
    if ticks.len() < 2 { log_ticks(low, high, n) } else { ticks }
}

/// 1, 2 and 5 times powers of ten, or powers alone, or every k-th of them; equal steps within a short range.
fn log_ticks(low: f64, high: f64, n: usize) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let inside = |v: &f64| *v >= low * (1.0 - 1e-9) && *v <= high * (1.0 + 1e-9);
    let of = |factors: &[f64], every: usize| -> Vec<f64> {
        let powers = (first..=last).step_by(every).map(|e| 10f64.powi(e));
        powers.flat_map(|p| factors.iter().map(move |f| f * p)).filter(inside).collect()
    };
    let fine = of(&[1.0, 2.0, 5.0], 1);
    if fine.len() < 3 {
        let step = linear_step(low, high, n);
        return linear_ticks(low, high, step).into_iter().filter(|v| *v > 0.0).collect();
    }
    if fine.len() <= n + 1 {
        return fine;
    }
    let powers = of(&[1.0], 1);
    if powers.len() <= n + 1 && powers.len() >= 2 {
        return powers;
    }
    of(&[1.0], (last - first) as usize / n + 1)
}

/// The next of 1, 2, 5, 10 ... at or below.
fn round_below(v: f64) -> f64 {
    let power = 10f64.powf(v.log10().floor());
    let below = [5.0, 2.0, 1.0].into_iter().find(|f| f * power <= v * (1.0 + 1e-9));
    below.map_or(power / 2.0, |f| f * power)
}

/// The next of 1, 2, 5, 10 ... at or above.
fn round_above(v: f64) -> f64 {
    let power = 10f64.powf(v.log10().floor());
    let above = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= v * (1.0 - 1e-9));
    above.unwrap_or(10.0) * power
}

/// Texts of ticks and of the axis.
fn name(axis: &Axis, values: &[f64], low: f64, high: f64) -> (Vec<Tick>, String) {
    let (factor, unit) = match (axis.unit, axis.scale) {
        (Unit::Number, _) => (1.0, String::new()),
        (Unit::Plain(unit), _) => (1.0, unit.to_owned()),
        (Unit::Percent, _) => (0.01, "%".to_owned()),
        (Unit::Si(unit), Scale::Linear) => {
            let (factor, prefix) = prefix(low.abs().max(high.abs()), unit);
            (factor, format!("{prefix}{unit}"))
        }
        // Each tick says its own prefix.
        (Unit::Si(_), _) => (1.0, String::new()),
    };
    let step =
        values.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min) / factor;
    let label = |value: f64| match (axis.unit, axis.scale) {
        (Unit::Si(unit), Scale::Log10 | Scale::Log2) => si(value, unit),
        (_, Scale::Linear) => grouped(value / factor, decimals(step)),
        _ => grouped(value / factor, decimals(value / factor)),
    };
    let ticks = values.iter().map(|value| Tick { value: *value, label: label(*value) }).collect();
    let label = match (axis.label.is_empty(), unit.is_empty()) {
        (_, true) => axis.label.clone(),
        (true, false) => unit,
        (false, false) => format!("{} ({unit})", axis.label),
    };
    (ticks, label)
}

/// Decimals that show a step of this size.
fn decimals(step: f64) -> usize {
    if !step.is_finite() || step <= 0.0 {
        return 0;
    }
    (-(step.log10() + 1e-9).floor()).clamp(0.0, 12.0) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(axis: &Axis, values: &[f64], n: usize) -> String {
        let ruler = Ruler::new(axis, values.iter().copied(), n, true);
        ruler.ticks.iter().map(|t| t.label.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round_numbers() {
        let time = Axis::linear("latency", Unit::Si("s"));
        assert_eq!(labels(&time, &[0.0131, 0.0789], 5), "0 20 40 60 80");
        assert_eq!(Ruler::new(&time, [0.0789].into_iter(), 5, true).label, "latency (ms)");
        assert_eq!(labels(&time, &[0.00025], 5), "0 50 100 150 200 250");
        let tokens = Axis::linear("depth", Unit::Plain("tokens"));
        assert_eq!(labels(&tokens, &[16384.0], 4), "0 5,000 10,000 15,000 20,000");
        assert_eq!(labels(&Axis::linear("", Unit::Percent), &[0.1, 1.0], 5), "0 20 40 60 80 100");
        assert_eq!(
            labels(&Axis::linear("", Unit::Number), &[-1.0, 1.0], 4),
            "\u{2212}1.0 \u{2212}0.5 0.0 0.5 1.0"
        );
    }

    #[test]
    fn logarithmic_ticks() {
        let time = Axis::log("latency", Unit::Si("s"));
        assert_eq!(labels(&time, &[0.0012, 3.0], 5), "1 ms 10 ms 100 ms 1 s");
        assert_eq!(labels(&time, &[0.0012, 0.03], 6), "1 ms 2 ms 5 ms 10 ms 20 ms");
        assert_eq!(labels(&time, &[0.030, 0.041], 5), "20 ms 30 ms 40 ms 50 ms");
        assert_eq!(labels(&time, &[-1.0, 0.0], 5), "1 s 2 s 5 s 10 s");
        let tokens = Axis::log2("depth", Unit::Plain("tokens"));
        assert_eq!(labels(&tokens, &[512.0, 4096.0], 5), "512 1,024 2,048 4,096");
        assert_eq!(labels(&tokens, &[1.0, 65536.0], 5), "1 16 256 4,096 65,536");
        let wide = Axis::log("", Unit::Number);
        assert!(Ruler::new(&wide, [1e-150, 1e150].into_iter(), 6, true).ticks.len() <= 9);
    }

    /// Their ranges are rounded beyond what a scale takes.
    #[test]
    fn the_least_and_the_greatest_values_have_ticks() {
        for (make, value) in [
            (Axis::log as fn(&'static str, Unit) -> Axis, 1.92e-200),
            (Axis::log, 1e-200),
            (Axis::log, 9e199),
            (Axis::log2, 1.1e-200),
            (Axis::log2, 9e199),
            (Axis::linear, 9.9e199),
            (Axis::linear, -9.9e199),
        ] {
            for (n, nice) in (2..12).flat_map(|n| [(n, true), (n, false)]) {
                let ruler = Ruler::new(&make("", Unit::Number), [value].into_iter(), n, nice);
                assert!(ruler.ticks.iter().all(|tick| ruler.at(tick.value).is_some()), "{ruler:?}");
            }
        }
    }

    #[test]
    fn a_range_is_kept_and_a_wrong_one_is_not() {
        let axis = Axis::linear("", Unit::Number).range(3.0, 4.0);
        let ruler = Ruler::new(&axis, [100.0].into_iter(), 5, true);
        assert_eq!((ruler.at(3.0), ruler.at(4.0)), (Some(0.0), Some(1.0)));
        for axis in [
            Axis::linear("", Unit::Number).range(4.0, 3.0),
            Axis::linear("", Unit::Number).range(f64::NAN, 3.0),
            Axis::log("", Unit::Number).range(0.0, 3.0),
        ] {
            assert_eq!(axis.range, None);
        }
    }

    fn any_axis() -> impl Strategy<Value = Axis> {
        let unit = prop_oneof![
            Just(Unit::Number),
            Just(Unit::Plain("tokens")),
            Just(Unit::Si("s")),
            Just(Unit::Percent)
        ];
        (unit, 0..3).prop_map(|(unit, scale)| match scale {
            0 => Axis::linear("x", unit),
            1 => Axis::log("x", unit),
            _ => Axis::log2("x", unit),
        })
    }

    proptest! {
        /// Whatever the values, ticks are few, ascending and inside, and values lie inside the range.
        #[test]
        fn any_values_have_ticks(axis in any_axis(), values in prop::collection::vec(any::<f64>(), 0..6), n in 2..12usize, nice in any::<bool>()) {
            let ruler = Ruler::new(&axis, values.iter().copied(), n, nice);
            prop_assert!(ruler.low < ruler.high && ruler.low.is_finite() && ruler.high.is_finite());
            prop_assert!(ruler.ticks.len() <= 51, "{}", ruler.ticks.len());
            prop_assert!(ruler.ticks.windows(2).all(|p| p[0].value < p[1].value), "{:?}", ruler.ticks);
            for tick in &ruler.ticks {
                let at = ruler.at(tick.value).unwrap();
                prop_assert!((-1e-3..=1.001).contains(&at), "{at}");
            }
            for at in values.iter().filter_map(|v| ruler.at(*v)) {
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&at), "{at}");
            }
        }

        #[test]
        fn labels_across_stand_apart(axis in any_axis(), values in prop::collection::vec(1e-6..1e9f64, 1..6), width in 40.0..900.0f64) {
            let ruler = Ruler::across(&axis, &values.iter().copied(), width, 12.0, true);
            let mut free = f64::NEG_INFINITY;
            for tick in ruler.ticks.iter().filter(|t| !t.label.is_empty()) {
                let half = font::width(&tick.label, 12.0, false) / 2.0;
                let x = ruler.at(tick.value).unwrap() * width;
                prop_assert!(x - half >= free);
                free = x + half;
            }
        }
    }
}
