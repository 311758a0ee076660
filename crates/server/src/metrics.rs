//! Counters, gauges and histograms of a model's replies, as Prometheus reads them. Names are this project's prefix before
//! those that other servers have, so that their dashboards need a new prefix alone.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use engine::Completion;

/// What was counted since the model was loaded, and how many replies there are now.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Replies that are being made.
    pub(crate) running: AtomicUsize,
    /// A bit for each slot in which one is.
    pub(crate) slots: AtomicU64,
    /// Waiting for a place.
    pub(crate) waiting: AtomicUsize,
    /// Tokens that conversations hold.
    pub(crate) held: AtomicUsize,
    /// Tokens that they may hold.
    pub(crate) room: AtomicUsize,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    prompt_nanos: AtomicU64,
    /// In which replies were made, without the time they waited.
    made_nanos: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    first_token: Histogram<12>,
    between_tokens: Histogram<12>,
    whole: Histogram<12>,
}

/// Bounds in seconds.
const FIRST_TOKEN: [f64; 12] =
    [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];
const BETWEEN: [f64; 12] =
    [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
const WHOLE: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

impl Metrics {
    /// A reply has come to its end. `waited`: from the request to its beginning.
    pub(crate) fn ended(&self, reply: &Completion, waited: Duration) {
        let add = |counter: &AtomicU64, n: u64| counter.fetch_add(n, Ordering::Relaxed);
        let timings = &reply.timings;
        add(&self.ended, 1);
        add(&self.prompt_tokens, reply.usage.prompt_tokens as u64);
        add(&self.cached_tokens, reply.usage.cached_tokens as u64);
        add(&self.generation_tokens, reply.usage.completion_tokens as u64);
        add(&self.prompt_nanos, nanos(timings.prompt));
        add(&self.made_nanos, nanos(timings.prompt + timings.predicted));
        let first = waited + timings.prompt + timings.predicted.saturating_sub(timings.steps);
        self.first_token.observe(&FIRST_TOKEN, first, 1);
        let steps = timings.predicted_n.saturating_sub(1) as u64;
        if steps > 0 {
            self.between_tokens.observe(&BETWEEN, timings.steps / steps as u32, steps);
        }
        self.whole.observe(&WHOLE, waited + timings.prompt + timings.predicted, 1);
    }

    /// How long a reply takes to be made, of those so far.
    pub(crate) fn usual_time(&self) -> Duration {
        let made = self.made_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(made / self.ended.load(Ordering::Relaxed).max(1))
    }

    /// One will never do so.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The model is not there any more, and what was counted stays.
    pub(crate) fn unloaded(&self) {
        for gauge in [&self.running, &self.waiting, &self.held] {
            gauge.store(0, Ordering::Relaxed);
        }
        self.slots.store(0, Ordering::Relaxed);
    }

    /// All of them of several models as text: each says once what it is.
    pub(crate) fn render_all<'m>(models: impl Iterator<Item = (&'m str, &'m Metrics)>) -> String {
        const BEGINS: &str = "# HELP ";
        // what each is, and its values of all models
        let mut all: Vec<(String, String)> = Vec::new();
        for (name, metrics) in models {
            let text = metrics.render(name);
            for (i, block) in text.split(BEGINS).skip(1).enumerate() {
                let (help, rest) = block.split_once('\n').unwrap_or((block, ""));
                let (kind, values) = rest.split_once('\n').unwrap_or((rest, ""));
                match all.get_mut(i) {
                    Some((_, known)) => known.push_str(values),
                    None => all.push((format!("{BEGINS}{help}\n{kind}\n"), values.to_owned())),
                }
            }
        }
        all.into_iter().flat_map(|(head, values)| [head, values]).collect()
    }

    /// All of them as text.
    fn render(&self, model: &str) -> String {
        let label: String =
            model.chars().filter(|c| !matches!(c, '"' | '\\') && !c.is_control()).collect();
        let mut out = String::new();
        let mut one = |name: &str, kind: &str, help: &str, value: f64| {
            // a text takes whatever is written to it
            let _ = writeln!(
                out,
                "# HELP rooflight:{name} {help}\n# TYPE rooflight:{name} {kind}\nrooflight:{name}{{model_name=\"{label}\"}} {value}"
            );
        };
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let now = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed) as f64;
        one("prompt_tokens_total", "counter", "Tokens of prompts.", count(&self.prompt_tokens));
        one(
            "generation_tokens_total",
            "counter",
            "Tokens of replies.",
            count(&self.generation_tokens),
        );
        one(
            "prompt_seconds_total",
            "counter",
            "Time to compute prompts.",
            count(&self.prompt_nanos) * 1e-9,
        );
        one(
            "request_success_total",
            "counter",
            "Replies that came to their end.",
            count(&self.ended),
        );
        one("request_failure_total", "counter", "Replies that did not.", count(&self.failed));
        for name in ["requests_processing", "num_requests_running"] {
            one(name, "gauge", "Replies being made.", now(&self.running));
        }
        for name in ["requests_deferred", "num_requests_waiting"] {
            one(name, "gauge", "Requests waiting for a place.", now(&self.waiting));
        }
        let held = now(&self.held) / now(&self.room).max(1.0);
        one(
            "kv_cache_usage_perc",
            "gauge",
            "Part of the tokens that conversations may hold.",
            held,
        );
        one(
            "prefix_cache_queries",
            "counter",
            "Tokens of prompts that were looked for.",
            count(&self.prompt_tokens),
        );
        one("prefix_cache_hits", "counter", "Of these, found.", count(&self.cached_tokens));
        for (name, help, histogram, bounds) in [
            (
                "time_to_first_token_seconds",
                "From the request to the first token.",
                &self.first_token,
                &FIRST_TOKEN,
            ),
            (
                "inter_token_latency_seconds",
                "From a token to the next.",
                &self.between_tokens,
                &BETWEEN,
            ),
            ("e2e_request_latency_seconds", "From the request to its end.", &self.whole, &WHOLE),
        ] {
            histogram.render(&format!("rooflight:{name}"), help, &label, bounds, &mut out);
        }
        out
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How many times lay below each bound.
#[derive(Debug)]
struct Histogram<const N: usize> {
    /// Not beyond this bound, and beyond the one before.
    counts: [AtomicU64; N],
    all: AtomicU64,
    nanos: AtomicU64,
}

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Histogram { counts, all: AtomicU64::new(0), nanos: AtomicU64::new(0) }
    }
}

impl<const N: usize> Histogram<N> {
    /// So many times of this length.
    fn observe(&self, bounds: &[f64; N], time: Duration, times: u64) {
        if let Some(at) = bounds.iter().position(|bound| time.as_secs_f64() <= *bound) {
            self.counts[at].fetch_add(times, Ordering::Relaxed);
        }
        self.all.fetch_add(times, Ordering::Relaxed);
        self.nanos.fetch_add(nanos(time).saturating_mul(times), Ordering::Relaxed);
    }

    fn render(&self, name: &str, help: &str, label: &str, bounds: &[f64; N], out: &mut String) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut below = 0;
        for (bound, count) in bounds.iter().zip(&self.counts) {
            below += count.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{model_name=\"{label}\",le=\"{bound}\"}} {below}");
        }
        let all = self.all.load(Ordering::Relaxed).max(below);
        let sum = self.nanos.load(Ordering::Relaxed) as f64 * 1e-9;
        let _ = writeln!(out, "{name}_bucket{{model_name=\"{label}\",le=\"+Inf\"}} {all}");
        let _ = writeln!(out, "{name}_sum{{model_name=\"{label}\"}} {sum}");
        let _ = writeln!(out, "{name}_count{{model_name=\"{label}\"}} {all}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_several_models_say_once_what_they_are() {
        let (a, b) = (Metrics::default(), Metrics::default());
        a.failed();
        let text = Metrics::render_all([("a", &a), ("b", &b)].into_iter());
        let lines: Vec<&str> = text.lines().collect();
        let heads =
            lines.iter().filter(|line| line.starts_with("# HELP rooflight:request_failure"));
        assert_eq!(heads.count(), 1);
        let at =
            lines.iter().position(|line| line.starts_with("rooflight:request_failure")).unwrap();
        assert_eq!(lines[at], "rooflight:request_failure_total{model_name=\"a\"} 1");
        assert_eq!(lines[at + 1], "rooflight:request_failure_total{model_name=\"b\"} 0");
        let of = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(of(&text), 2 * of(&a.render("a")));
    }

    #[test]
    fn histograms_add_up() {
        let histogram = Histogram::<12>::default();
        for (ms, times) in [(1, 3), (40, 2), (100_000, 1)] {
            histogram.observe(&FIRST_TOKEN, Duration::from_millis(ms), times);
        }
        let mut out = String::new();
        histogram.render("x", "help", "m", &FIRST_TOKEN, &mut out);
        let value = |key: &str| {
            let line = out.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.rsplit(' ').next()).unwrap().to_owned()
        };
        assert_eq!(value("x_bucket{model_name=\"m\",le=\"0.001\"}"), "3");
        assert_eq!(value("x_bucket{model_name=\"m\",le=\"0.02\"}"), "3");
        assert_eq!(value("x_bucket{model_name=\"m\",le=\"60\"}"), "5");
        assert_eq!(value("x_bucket{model_name=\"m\",le=\"+Inf\"}"), "6");
        assert_eq!(value("x_count"), "6");
        assert!((value("x_sum").parse::<f64>().unwrap() - 100.083).abs() < 1e-9);
    }
}
