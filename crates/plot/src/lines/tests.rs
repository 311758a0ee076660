use proptest::prelude::*;

use super::*;
use crate::scene::{Item, Rect};

fn latency() -> Lines {
    let read = |n: f64| 0.0131 + 1.2e-7 * n * n;
    let compute = |n: f64| 1.57e-4 * n;
    let points =
        |f: fn(f64) -> f64| (1..=601).step_by(20).map(move |n| (f64::from(n), f(f64::from(n))));
    Lines::new("Time to first token")
        .subtitle("7B")
        .x(Axis::linear("prompt length", Unit::Plain("tokens")))
        .y(Axis::linear("latency", Unit::Si("s")))
        .series(Series::new("read", points(read)))
        .series(Series::new("compute", points(compute)))
        .mark_x(84.0, "inflection 84")
        .mark_x(600.0, "inflection 600")
        .mark_y(0.09, "goal")
        .mark_point(84.0, 0.0131, "here")
        .band(84.0, 300.0, "arithmetic")
}

fn texts(picture: &Picture) -> Vec<(String, Rect)> {
    let text = |item: &Item| match item {
        Item::Text(text) => Some((text.text.clone(), text.bounds())),
        _ => None,
    };
    picture.items.iter().filter_map(text).collect()
}

/// No text hides another or leaves the picture.
fn overlaps(picture: &Picture) -> Vec<String> {
    let texts = texts(picture);
    let page = Rect { x: 0.0, y: 0.0, w: picture.width, h: picture.height };
    let mut found = Vec::new();
    for (i, (a, at)) in texts.iter().enumerate() {
        if at.x < page.x || at.right() > page.right() || at.bottom() > page.bottom() {
            found.push(format!("{a} leaves the page"));
        }
        for (b, other) in &texts[..i] {
            if at.meets(other) {
                found.push(format!("{a} over {b}"));
            }
        }
    }
    found
}

#[test]
fn everything_is_named_and_nothing_overlaps() {
    let picture = latency().picture();
    assert_eq!(overlaps(&picture), Vec::<String>::new());
    let names: Vec<String> = texts(&picture).into_iter().map(|t| t.0).collect();
    for want in [
        "Time to first token",
        "7B",
        "latency (ms)",
        "prompt length (tokens)",
        "read",
        "compute",
        "inflection 84",
        "inflection 600",
        "goal",
        "here",
        "arithmetic",
        "0",
        "20",
        "100",
    ] {
        assert!(names.iter().any(|name| name == want), "{want} in {names:?}");
    }
    let svg = latency().svg();
    assert!(svg.contains("compute: 157 \u{b5}s at 1, 94.4 ms at 601."), "{svg}");
}

#[test]
fn values_that_are_none_leave_gaps() {
    let chart =
        |points: Vec<(f64, f64)>| Lines::new("t").series(Series::new("s", points)).picture();
    let lines = |picture: &Picture| {
        let series = |i: &&Item| matches!(i, Item::Line { stroke, .. } if stroke.width == 2.0);
        picture.items.iter().filter(series).count()
    };
    let nan = f64::NAN;
    assert_eq!(lines(&chart(vec![(0.0, 1.0), (1.0, 2.0), (2.0, nan), (3.0, 4.0), (4.0, 5.0)])), 2);
    let empty = chart(vec![(nan, 1.0), (1.0, f64::INFINITY)]);
    assert_eq!(lines(&empty), 0);
    assert!(texts(&empty).iter().any(|t| t.0 == "no data"));
    // A point alone is a dot.
    assert!(chart(vec![(1.0, 1.0)]).items.iter().any(|i| matches!(i, Item::Dot { .. })));
    let log = Lines::new("t").y(Axis::log("", Unit::Si("s")));
    let log = log.series(Series::new("s", [(0.0, 0.0), (1.0, 1.0), (2.0, 10.0)])).picture();
    assert_eq!(lines(&log), 1);
}

#[test]
fn many_names_become_a_legend() {
    let mut chart = Lines::new("t").size(400.0, 100.0);
    for i in 0..12 {
        chart = chart.series(Series::new(format!("series {i}"), [(0.0, 0.0), (1.0, f64::from(i))]));
    }
    assert_eq!(overlaps(&chart.picture()), Vec::<String>::new());
    let svg = chart.svg();
    assert!((0..12).all(|i| svg.contains(&format!(">series {i}<"))));
    // The seventh has the first colour again, in dashes.
    assert!(svg.contains("stroke-dasharray"));
}

#[test]
fn lines_outside_a_range_are_cut() {
    let chart = Lines::new("t").y(Axis::linear("", Unit::Number).range(0.0, 1.0));
    let picture = chart.series(Series::new("s", [(0.0, -5.0), (1.0, 5.0)])).picture();
    let points = picture.items.iter().find_map(|item| match item {
        Item::Line { points, stroke } if stroke.width == 2.0 => Some(points.clone()),
        _ => None,
    });
    let points = points.unwrap();
    assert!((points[0][1] - points[1][1] - 300.0).abs() < 1e-6, "{points:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Anything may be plotted: no panic, no number that is none, no text over another.
    #[test]
    fn anything_is_drawn(
        series in prop::collection::vec(
            (".{0,20}", prop::collection::vec((any::<f64>(), any::<f64>()), 0..8)), 0..9),
        marks in prop::collection::vec((any::<f64>(), ".{0,30}"), 0..4),
        (log_x, log_y) in any::<(bool, bool)>(),
        (width, height) in (150.0..1200.0f64, 50.0..600.0f64),
        title in ".{0,200}",
    ) {
        let axis = |log: bool| match log {
            true => Axis::log("axis", Unit::Si("s")),
            false => Axis::linear("axis", Unit::Si("s")),
        };
        let mut chart = Lines::new(title).x(axis(log_x)).y(axis(log_y)).size(width, height);
        for (name, points) in series {
            chart = chart.series(Series::new(name, points).area());
        }
        for (at, label) in marks {
            chart = chart.mark_x(at, &label).mark_y(at, &label).band(at, at * 2.0, label);
        }
        let picture = chart.picture();
        let svg = picture.svg();
        prop_assert!(!svg.contains("NaN") && !svg.contains("inf\""));
        let controls = svg.chars().any(|c| c.is_control() && c != '\n');
        prop_assert!(!controls);
        let named: Vec<String> = overlaps(&picture).into_iter().filter(|o| !o.ends_with("page")).collect();
        prop_assert_eq!(named, Vec::<String>::new());
    }
}
