//! A plan as a picture: first token by prompt length, steps by depth, memory by context.

use planner::Estimate;
use planner::plan::ModelVariant;
use plot::{Axis, Figure, Lines, Picture, Series, Unit, grouped, si};

use crate::curve;
use rooflight::plan::Plan;

/// Height of a plot, in pixels.
const HEIGHT: f64 = 230.0;

/// Three charts, one below the other.
pub(super) fn picture(r: &Plan<'_>) -> Picture {
    let machine = &r.machine;
    let scale = scale(r);
    let subtitle = format!(
        "{} weights, {} cache, on {} ({}): {}",
        r.weights,
        r.cache,
        r.target.name,
        r.target.source,
        si(machine.bandwidth * scale, &format!("{}/s", bytes(r)))
    );
    let title = format!("Plan: {}", r.subject.name);
    let figure =
        Figure::new(title).subtitle(subtitle).panel(prompts(r)).panel(steps(r)).panel(memory(r));
    let figure = match expected(r) {
        true => figure.note(
            "Limit: the least time that the machine's bandwidth and arithmetic allow, everything read once. Expected: in \
             chunks, with the rates that the kernels reach on it.",
        ),
        false => figure.note("Limits: the least time that bandwidth and arithmetic allow."),
    };
    figure.picture()
}

/// The unit of memory: with a prefix `GB`, or `GiB` in the article's units.
fn bytes(r: &Plan<'_>) -> &'static str {
    if r.article() { "iB" } else { "B" }
}

/// What bytes are multiplied by, so that a G on an axis is one in the units chosen.
fn scale(r: &Plan<'_>) -> f64 {
    1e9 / r.target.units.giga(1.0)
}

/// Are the rates of the kernels known?
fn expected(r: &Plan<'_>) -> bool {
    r.forecast.steps.iter().any(|point| point.expected.is_some())
}

/// The candidate that the plan is about.
fn chosen<'a>(r: &'a Plan<'_>) -> Option<&'a Estimate> {
    let same = |c: &&ModelVariant| c.weights == r.weights && c.cache == r.cache;
    r.candidates.iter().find(same).map(|c| &c.estimate)
}

fn prompts(r: &Plan<'_>) -> Lines {
    let turns = r.forecast.turns;
    let mut chart = Lines::new("Time to the first token")
        .size(760.0, HEIGHT)
        .x(Axis::log("prompt length", Unit::Plain("tokens")));
    let Some(estimate) = chosen(r) else { return chart };
    // Far enough to show where arithmetic begins to bind.
    let far = 2.0 * turns.first.unwrap_or(0.0);
    let last = r.context.max(far.min(65_536.0) as u64).max(64);
    let lengths = curve::factors(1, last);
    let all: Vec<_> = lengths.iter().map(|n| (*n as f64, estimate.prefill(*n))).collect();
    let least = all.iter().map(|(_, p)| p.limit()).fold(f64::INFINITY, f64::min);
    let mut most = all.iter().map(|(_, p)| p.memory.max(p.compute())).fold(0.0, f64::max);
    let line = |name: &str, of: &dyn Fn(&planner::Prediction) -> f64| {
        Series::new(name, all.iter().map(|(n, p)| (*n, of(p))))
    };
    chart = chart
        .series(line("", &|p| p.limit()).pale().thick())
        .series(line("read", &|p| p.memory).colour(0))
        .series(line("compute", &|p| p.compute()).colour(1));
    if expected(r) {
        let times =
            lengths.iter().filter_map(|n| Some((*n as f64, estimate.prefill_expected(*n)?)));
        let times: Vec<_> = times.collect();
        most = times.iter().map(|(_, time)| *time).fold(most, f64::max);
        chart = chart.series(Series::new("expected", times).colour(2));
    }
    let chunk = r.chunk.filter(|_| expected(r));
    let chunk = chunk.map(|n| format!("expected in chunks of {} tokens", grouped(n as f64, 0)));
    let first = turns.first;
    let binds = match first {
        Some(n) => format!("arithmetic binds from {} tokens on", grouped(n.floor(), 0)),
        None => "reading binds at every length".to_owned(),
    };
    let parts: Vec<String> = std::iter::once(binds).chain(chunk).collect();
    chart = chart.subtitle(parts.join("; "));
    for (turn, name) in [(first, "inflection"), (turns.second, "second, without tiles of queries")]
    {
        if let Some(n) = turn.filter(|n| (1.0..=last as f64).contains(n)) {
            chart = chart.mark_x(n, format!("{name}: {}", grouped(n.floor(), 0)));
        }
    }
    if let Some(wanted) = r.goals.as_ref().and_then(|(goals, _)| goals.first_token) {
        chart = chart.mark_y(wanted, format!("wanted: {}", si(wanted, "s")));
        most = most.max(wanted);
    }
    chart.y(Axis::log("time", Unit::Si("s")).range(least / 4.0, most * 1.5))
}

fn steps(r: &Plan<'_>) -> Lines {
    let mut chart = Lines::new("Time of a step, with each type of cache")
        .size(760.0, HEIGHT)
        .x(Axis::linear("depth", Unit::Plain("tokens")))
        .y(Axis::linear("time", Unit::Si("s")));
    let depths = curve::steps(r.context);
    for (i, candidate) in r.candidates.iter().enumerate() {
        let (estimate, cache) = (&candidate.estimate, &candidate.cache);
        let limits = curve::points(&depths, &|n| estimate.step(n).limit());
        let times = depths.iter().filter_map(|n| Some((*n as f64, estimate.step_expected(*n)?)));
        let times: Vec<_> = times.collect();
        if times.is_empty() {
            chart = chart.series(Series::new(cache, limits).colour(i));
        } else {
            chart = chart
                .series(Series::new(format!("{cache}, expected"), times).colour(i))
                .series(Series::new(format!("{cache}, limit"), limits).colour(i).dashed());
        }
    }
    if let Some(wanted) = r.goals.as_ref().and_then(|(goals, _)| goals.tokens_per_second) {
        chart = chart.mark_y(1.0 / wanted, format!("wanted: {} tokens a second", si(wanted, "")));
    }
    chart
}

fn memory(r: &Plan<'_>) -> Lines {
    let scale = scale(r);
    let made_for = r.subject.config.context_length as u64;
    let contexts = curve::steps(r.context.max(made_for));
    let weights = r.forecast.resident_bytes * scale;
    let mut chart = Lines::new("Memory for weights and cache")
        .size(760.0, HEIGHT)
        .x(Axis::linear("context", Unit::Plain("tokens")))
        .y(Axis::linear("memory", Unit::Si(bytes(r))));
    for (i, candidate) in r.candidates.iter().enumerate() {
        let points = curve::points(&contexts, &|n| candidate.estimate.memory(n) * scale);
        chart = chart.series(Series::new(&candidate.cache, points).colour(i));
    }
    let flat = contexts.iter().map(|n| (*n as f64, weights));
    chart = chart.series(Series::new("weights", flat).pale().area());
    let most =
        r.candidates.iter().flat_map(|c| contexts.last().map(|n| c.estimate.memory(*n) * scale));
    let most = most.fold(weights, f64::max);
    if let Some(room) = r.target.room().map(|room| room * scale) {
        // A line far above all others would press them flat.
        chart = match room <= 3.0 * most {
            true => mark_longest(chart, r, room),
            false => chart.note(format!("There is room for them in {}.", size(r))),
        };
    }
    chart
}

/// The memory that is planned for, as the text says it; what a run takes beside weights and cache is left out of the room.
fn size(r: &Plan<'_>) -> String {
    r.target.memory.map_or_else(String::new, |memory| si(memory * scale(r), bytes(r)))
}

/// A line at the room there is, and a dot where a cache fills it.
fn mark_longest(chart: Lines, r: &Plan<'_>, room: f64) -> Lines {
    let chart = chart.mark_y(room, format!("room in {}", size(r)));
    let most = r.context.max(r.subject.config.context_length as u64);
    let longest = r.caches.iter().filter_map(|cache| cache.longest_context);
    longest
        .filter(|n| *n > 0 && *n < most)
        .fold(chart, |chart, n| chart.mark_point(n as f64, room, grouped(n as f64, 0)))
}
