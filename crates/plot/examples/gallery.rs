//! One chart of each kind, as SVG, to be looked at: `cargo run -p rooflight-plot --example gallery FOLDER`.

use std::path::Path;

use plot::{Axis, Bars, Figure, Lines, Picture, Series, Unit, Waterfall};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("no folder given")?;
    for (name, picture) in [
        ("lines", latency().picture()),
        ("many", many().picture()),
        ("bars", bars().picture()),
        ("stacked", stacked().picture()),
        ("waterfall", waterfall().picture()),
        ("figure", figure().picture()),
    ] {
        write(Path::new(&folder), name, &picture)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, picture: &Picture) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::write(folder.join(format!("{name}.svg")), picture.svg())?;
    Ok(())
}

/// Points of `f` from 1 to `most`.
fn curve(most: f64, f: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    (0..=200).map(|i| 1.0 + (most - 1.0) * f64::from(i) / 200.0).map(|n| (n, f(n))).collect()
}

fn latency() -> Lines {
    let read = |n: f64| 0.0131 + 0.5 * n * (n + 1.0) * 4.84e-7;
    let compute = |n: f64| 1.33e-4 * n + 0.5 * n * (n + 1.0) * 5.8e-9 + 1e-5;
    Lines::new("Time to first token")
        .subtitle("Qwen1.5 7B, weights and cache in 16 bits, RTX 4090")
        .x(Axis::linear("prompt length", Unit::Plain("tokens")))
        .y(Axis::linear("latency", Unit::Si("s")))
        .series(Series::new("limit", curve(620.0, |n| read(n).max(compute(n)))).pale().thick())
        .series(Series::new("read", curve(620.0, read)))
        .series(Series::new("compute", curve(620.0, compute)).dashed())
        .band(0.0, 113.0, "weights bind")
        .band(481.0, 1000.0, "cache binds")
        .mark_x(113.0, "inflection 113")
        .mark_x(481.0, "inflection 481")
        .mark_point(300.0, 0.0469, "measured, 46.9 ms")
        .note("Without query tiles: a tiled kernel reads the cache once per tile, and the second inflection moves out.")
}

fn many() -> Lines {
    let mut chart = Lines::new("Steps")
        .subtitle("Nine models, one logarithmic axis")
        .x(Axis::log2("depth", Unit::Plain("tokens")))
        .y(Axis::log("time", Unit::Si("s")));
    for i in 1..=9 {
        let b = 1e-3 * f64::from(i * i);
        let points = (8..=16).map(|e| f64::from(1 << e)).map(|n| (n, b + n * 1e-7 * f64::from(i)));
        chart = chart.series(Series::new(format!("model {i}"), points).dots());
    }
    chart.mark_y(0.05, "20 tokens a second")
}

fn bars() -> Bars {
    Bars::grouped("Longest context")
        .subtitle("Tokens of cache beside the weights in 24 GiB")
        .values(Axis::log("context", Unit::Plain("tokens")))
        .series(["16-bit weights", "8-bit", "4-bit"])
        .missing("does not fit")
        .row("0.5B", [252_705.0, 257_424.0, 259_784.0])
        .row("7B", [22_072.0, 35_612.0, 42_382.0])
        .row("14B", [f64::NAN, 15_114.0, 23_285.0])
        .row("32B without GQA", [f64::NAN, f64::NAN, 6531.0])
        .mark(32_768.0, "trained context")
}

fn stacked() -> Bars {
    let weights = 4.4e9;
    let mut chart = Bars::stacked("Memory")
        .subtitle("7B, Q4_K_M, cache in f16")
        .values(Axis::linear("memory", Unit::Si("B")))
        .series(["weights", "cache"])
        .mark(16e9, "this machine");
    for n in [2048, 8192, 32_768] {
        chart = chart.row(plot::grouped(f64::from(n), 0), [weights, f64::from(n) * 524_288.0]);
    }
    chart
}

fn waterfall() -> Waterfall {
    Waterfall::new("A step of 7B, Q4_K_M")
        .subtitle("From the limit to what was measured, at depth 4,096")
        .values(Axis::linear("time", Unit::Si("s")))
        .total("limit", 0.0612)
        .step("weights below bandwidth", 0.0071)
        .step("attention", 0.0042)
        .step("output head", 0.0008)
        .step("barriers", 0.0006)
        .step("overlap", -0.0011)
        .step("unaccounted", 0.0015)
        .total("measured", 0.0743)
        .note(
            "Weights are read at 90 % of bandwidth: huge pages are off (see `rooflight machine`).",
        )
}

fn figure() -> Figure {
    let mut figure = Figure::new("Plan: 7B on this machine")
        .subtitle("Q4_K_M, cache in f16, 8 threads")
        .columns(2, 1100.0)
        .note("Limits, not promises.");
    for title in ["Time to first token", "Another"] {
        let chart = latency().subtitle(title);
        figure = figure.panel(chart);
    }
    figure.panel(stacked()).panel(waterfall())
}
