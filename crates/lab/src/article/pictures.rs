//! The article's pictures: prefill by prompt length, steps by depth, tokens of cache.

use planner::article::{ArticleModel, FAMILY, WEIGHT_BITS, memory};
use planner::formula::{Head, Roofline, Units};
use plot::{Axis, Bars, Figure, Lines, Panel, Series, Unit, grouped};

use console::curve;

/// A picture, the name of its file and its title.
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) figure: Figure,
}

/// Longest context in the picture of steps, in tokens.
const MOST_DEPTH: u64 = 65_536;

/// Width of a picture of two columns.
const WIDE: f64 = 1000.0;

/// All of them.
pub(super) fn all(units: Units) -> Vec<Named> {
    let prefill = [
        ("prefill-w16kv16", "Prefill, weights in 16 bits"),
        ("prefill-w8kv16", "Prefill, weights in 8 bits"),
        ("prefill-w4kv16", "Prefill, weights in 4 bits"),
    ];
    let gqa = [
        ("prefill-w16kv16-gqa", "Prefill with and without GQA, weights in 16 bits"),
        ("prefill-w8kv16-gqa", "Prefill with and without GQA, weights in 8 bits"),
        ("prefill-w4kv16-gqa", "Prefill with and without GQA, weights in 4 bits"),
    ];
    let mut all = Vec::new();
    for (names, first_chapters) in [(prefill, true), (gqa, false)] {
        for ((name, title), bits) in names.into_iter().zip(WEIGHT_BITS) {
            let models = FAMILY.iter().filter(|m| m.is_in_first_chapters() == first_chapters);
            let mut figure = Figure::new(title).subtitle(machine(units)).columns(2, WIDE).note(
                "All of it is theory, with a cache in 16 bits: the limit is the longer of reading and computing. Attention that reads the cache again for every query: beyond the second inflection reading the cache \
                 binds. With tiles of queries it does so much later.",
            );
            for model in models {
                figure = figure.panel(prefill_panel(model, &model.roofline(units, bits)));
            }
            all.push(Named { name, title, figure });
        }
    }
    all.push(steps(units));
    all.push(contexts(units));
    all
}

fn machine(units: Units) -> String {
    let counted = match units {
        Units::Article => "counted in powers of two",
        Units::Decimal => "counted in powers of ten",
    };
    format!("Qwen1.5 on an RTX 4090: 1008 GB/s, 82.58 TFLOP/s, 24 GB, {counted}")
}

fn prefill_panel(model: &ArticleModel, roof: &Roofline) -> Lines {
    let turns = roof.inflections(Head::LastToken);
    let last = turns.map_or(1000.0, |i| (4.0 * i.second).clamp(1000.0, 50_000.0)) as u64;
    let lengths = curve::factors(1, last);
    let points = |seconds: &dyn Fn(u64) -> f64| curve::points(&lengths, seconds);
    let least = roof.prefill_read(1);
    let most = roof.time_to_first_token(last, Head::LastToken);
    let mut chart = Lines::new(model.name)
        .size(WIDE, 220.0)
        .x(Axis::log("prompt length", Unit::Plain("tokens")))
        .y(Axis::log("time to first token", Unit::Si("s")).range(least / 4.0, most * 1.3))
        .series(
            Series::new("limit", points(&|n| roof.time_to_first_token(n, Head::LastToken)))
                .pale()
                .thick(),
        )
        .series(Series::new("read", points(&|n| roof.prefill_read(n))).colour(0))
        .series(
            Series::new("compute", points(&|n| roof.prefill_compute(n, Head::LastToken))).colour(1),
        );
    for turn in turns.iter().flat_map(|i| [i.first, i.second]).filter(|n| n.is_finite()) {
        chart = chart.mark_x(turn, grouped(turn.floor(), 0));
    }
    let number = |n: f64| grouped(n.floor(), 0);
    chart.subtitle(match turns {
        Some(i) => {
            format!(
                "reading binds up to {} tokens and beyond {}",
                number(i.first),
                number(i.second)
            )
        }
        None => "reading binds at every length".to_owned(),
    })
}

fn steps(units: Units) -> Named {
    let title = "Least time of a step by depth";
    let mut figure = Figure::new(title).subtitle(machine(units)).note(
        "All of it is the limit, by reading a cache in 16 bits. A line ends where weights and cache fill the memory. Models that do not fit are left out.",
    );
    let whole = memory(units) / units.giga(1008.0);
    for bits in WEIGHT_BITS {
        let mut chart = Lines::new(format!("Weights in {bits} bits"))
            .size(WIDE, 260.0)
            .x(Axis::linear("depth", Unit::Plain("tokens")))
            .y(Axis::linear("least time of a step", Unit::Si("s")))
            .mark_y(whole, format!("all memory is read: {}", plot::si(whole, "s")));
        for model in FAMILY.iter().filter(|m| !m.name.contains("without")) {
            let Some(longest) = model.longest_context(units, bits, 16) else { continue };
            let roof = model.roofline(units, bits);
            let depths = curve::steps(longest.min(MOST_DEPTH));
            let points = curve::points(&depths, &|n| roof.step_milliseconds(n + 1) / 1000.0);
            chart = chart.series(Series::new(model.name, points));
        }
        figure = figure.panel(chart);
    }
    Named { name: "steps", title, figure: figure.columns(1, 760.0) }
}

fn contexts(units: Units) -> Named {
    let title = "Tokens of cache in 24 GB";
    let types = [(16, 16), (8, 16), (6, 16), (4, 16), (4, 8)];
    let mut chart = Bars::grouped("")
        .values(Axis::log("context", Unit::Plain("tokens")))
        .series(types.map(|(w, kv)| format!("w{w}kv{kv}")))
        .missing("does not fit");
    for model in &FAMILY {
        let longest = types.map(|(w, kv)| model.longest_context(units, w, kv));
        // Models that fit in no way would be five empty lines.
        if longest.iter().any(Option::is_some) {
            chart = chart.row(model.name, longest.map(|n| n.map_or(f64::NAN, |n| n as f64)));
        }
    }
    let none = FAMILY.iter().filter(|m| m.longest_context(units, 4, 8).is_none());
    let names: Vec<&str> = none.map(|m| m.name).collect();
    let fits = format!("Theory. In no way fit into 24 GB: {}.", names.join(", "));
    let figure = Figure::new(title).subtitle(machine(units)).note(fits);
    Named { name: "contexts", title, figure: figure.panel(Panel::from(chart)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflections_are_marked() {
        let all = all(Units::Article);
        assert_eq!(all.len(), 8);
        let svg = |name: &str| all.iter().find(|p| p.name == name).expect(name).figure.svg();
        let prefill = svg("prefill-w16kv16");
        for want in [">7B<", ">113<", ">481<", ">reading binds at every length<", ">read<"] {
            assert!(prefill.contains(want), "{want}");
        }
        assert!(svg("prefill-w16kv16-gqa").contains(">5,898<"));
        assert!(svg("contexts").contains(">22,072<"));
        assert!(all.iter().all(|p| !p.figure.svg().contains("no data")));
    }
}
