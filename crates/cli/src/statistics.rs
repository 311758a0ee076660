//! Statistics of a reply: one line below it, and all details for `/stats`, `-v` and `/set verbose`.

use std::time::Duration;

use engine::{DraftStats, Generated, Session, Stats, StopReason};
use planner::Prediction;

use crate::limits::{LimitShare, Limits};
use crate::{missed, storage, units};

/// Amount of statistics printed below a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Statistics {
    /// Nothing.
    Off,
    /// One line, if stderr is a terminal.
    #[default]
    Line,
    /// All details, even if stderr is not a terminal.
    Full,
}

impl Statistics {
    /// Returns the name used in a chat.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Statistics::Off => "off",
            Statistics::Line => "on",
            Statistics::Full => "full",
        }
    }
}

/// Minimum number of tokens for a rate: with fewer, the clock's resolution dominates.
const MIN_RATED: usize = 8;

/// Minimum time to the first token that the line mentions.
const SLOW_FIRST_TOKEN: Duration = Duration::from_secs(1);

/// The statistics of one reply, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReplyReport {
    /// Parts of the line, in display order; the first are the least important and are dropped first.
    line: Vec<String>,
    /// Index of the part about drafts, if there is one. It is never dropped: if the line is too long, it gets a line of its own.
    drafts: Option<usize>,
    /// Label and text of each detail line.
    details: Vec<(&'static str, String)>,
}

impl ReplyReport {
    /// Creates the report of a reply in a session, with its share of the limits if they are known.
    pub(crate) fn new(reply: &Generated, session: &Session, limits: Option<&Limits>) -> Self {
        let Generated { tokens, stats, stop, .. } = reply;
        let share = |limit: &dyn Fn(&Limits) -> Prediction, measured: Duration| {
            limits.and_then(|limits| limits.share_of(&limit(limits), measured.as_secs_f64()))
        };
        let prompt = |limits: &Limits| limits.prompt(stats.cached_tokens, stats.computed_tokens);
        let steps = |limits: &Limits| limits.passes(stats.prompt_tokens, &stats.passes());
        let time: Duration = stats.steps.iter().sum();
        // the limit is that of the model's passes, and a draft model's own are none of them
        let drafting = stats.drafts.drafting_time();
        let (prompt_share, share) =
            (share(&prompt, stats.prefill), share(&steps, time.saturating_sub(drafting)));
        let rate = rate(stats.steps.len(), stats.step_rate());
        let is_rated = rate.is_some();
        let reading = session.readings().ok();

        let mut report = ReplyReport { details: details_of_prompt(stats), ..Self::default() };
        let mut detail = |label, text| report.details.push((label, text));
        if let Some(share) = prompt_share {
            detail("", share.to_string());
        }
        if let Some(time) = stats.first_token {
            detail("first token", units::seconds(time));
        }
        let parts = [
            Some(units::counted(tokens.len(), "token")),
            Some(units::seconds(time)),
            rate.clone(),
            share.map(|share| share.to_string()),
        ];
        detail("reply", parts.into_iter().flatten().collect::<Vec<_>>().join(", "));
        if let Some((accepted, gain)) = drafts(stats) {
            let drafting = (!drafting.is_zero()).then(|| units::seconds(drafting));
            let drafting = drafting.map_or(String::new(), |time| format!(", drafting {time}"));
            detail("speculative", format!("{accepted}, {gain}{drafting}"));
        }
        if let Some(text) = storage::footer(&session.model().stats().spilled) {
            detail("cache", text);
        }
        if let Some(text) = reading.and_then(|reading| missed::footer(&reading)) {
            detail("attention", text);
        }
        let (len, capacity) = (session.len(), session.capacity());
        detail("context", format!("{len} of {capacity} tokens"));
        detail("ended", reason(stop).to_owned());
        for (label, tokens, rate) in [
            ("prompt eval rate:", stats.computed_tokens, stats.prefill_rate()),
            ("eval rate:", stats.steps.len(), stats.step_rate()),
        ] {
            if tokens >= MIN_RATED {
                detail(label, format!("{rate:.2} tokens/s"));
            }
        }

        let first = stats.first_token.filter(|time| *time >= SLOW_FIRST_TOKEN);
        let drafts = drafts(stats).filter(|_| is_rated);
        report.drafts = drafts.as_ref().map(|_| usize::from(first.is_some()));
        let parts = [
            first.map(|time| format!("first token {}", units::seconds(time))),
            drafts.map(|(accepted, _)| format!("speculative: {accepted}")),
            rate,
            share.filter(|_| is_rated).map(LimitShare::brief),
            Some(format!("context {len} of {capacity}")),
            notable(stop).map(str::to_owned),
        ];
        report.line = parts.into_iter().flatten().collect();
        report
    }

    /// Returns one line, right-aligned in `columns` columns. Parts that do not fit are dropped from the left, but for the part about
    /// drafts: with what stands before it, it then gets a line above.
    pub(crate) fn line(&self, columns: usize) -> String {
        let fitting = |parts: &[String]| {
            let mut lines = (0..parts.len()).map(|first| (first, parts[first..].join(", ")));
            lines.find(|(_, line)| line.chars().count() <= columns)
        };
        let aligned = |line: String| match columns == usize::MAX || line.is_empty() {
            true => line,
            false => format!("{line:>columns$}"),
        };
        let whole = fitting(&self.line);
        let lines = match (self.drafts, whole) {
            (Some(drafts), whole) if whole.as_ref().is_none_or(|(first, _)| *first > drafts) => {
                let (above, below) = self.line.split_at(drafts + 1);
                [fitting(above), fitting(below)]
            }
            (_, whole) => [whole, None],
        };
        let lines = lines.into_iter().flatten().map(|(_, line)| aligned(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns all details, one per line.
    pub(crate) fn details(&self) -> String {
        let line = |(label, text): &(&str, String)| format!("{label:<18} {text}\n");
        self.details.iter().map(line).collect()
    }
}

/// Returns the details of the prompt: `46 new + 2577 cached tokens, 0.22 s, 209 tok/s`.
fn details_of_prompt(stats: &Stats) -> Vec<(&'static str, String)> {
    let Stats { cached_tokens, computed_tokens, prompt_tokens, .. } = *stats;
    let tokens = match cached_tokens {
        0 => units::counted(computed_tokens, "token"),
        n => format!("{computed_tokens} new + {n} cached tokens"),
    };
    // an interrupted prompt was computed only in part
    let part = match cached_tokens + computed_tokens < prompt_tokens {
        true => format!(" of {prompt_tokens}"),
        false => String::new(),
    };
    let rate = rate(computed_tokens, stats.prefill_rate());
    let rate = rate.map_or(String::new(), |rate| format!(", {rate}"));
    vec![("prompt", format!("{tokens}{part}, {}{rate}", units::seconds(stats.prefill)))]
}

/// Formats a rate: `122 tok/s`; `None` for too few tokens.
fn rate(tokens: usize, rate: f64) -> Option<String> {
    let digits = match rate {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    (tokens >= MIN_RATED && rate > 0.0).then(|| format!("{rate:.digits$} tok/s"))
}

/// Returns the texts for accepted drafts and for the gain: `1 of 6 accepted` and `0.91x plain steps`.
fn drafts(stats: &Stats) -> Option<(String, String)> {
    let DraftStats { drafted, kept, gained, .. } = stats.drafts;
    let taken = stats.steps.iter().sum::<Duration>().as_secs_f64();
    (drafted > 0).then(|| {
        let gain = (taken + gained) / taken;
        (format!("{kept} of {drafted} accepted"), format!("{gain:.2}x plain steps"))
    })
}

/// Returns why a reply ended, if the user may not expect it.
fn notable(stop: &StopReason) -> Option<&'static str> {
    match stop {
        StopReason::MaxTokens | StopReason::Time | StopReason::ContextFull => Some(reason(stop)),
        StopReason::Cancelled => Some("interrupted"),
        _ => None,
    }
}

fn reason(stop: &StopReason) -> &'static str {
    match stop {
        StopReason::EndOfGeneration(_) => "end of reply",
        StopReason::StopString(_) => "stop text",
        StopReason::MaxTokens => "stopped at -n",
        StopReason::Outdented => "end of indentation",
        StopReason::Time => "stopped by its time limit",
        StopReason::ContextFull => "context full",
        StopReason::Cancelled => "interrupted",
        _ => "ended",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(parts: &[&str]) -> ReplyReport {
        let line: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        let drafts = line.iter().position(|part| part.starts_with("speculative"));
        ReplyReport { line, drafts, details: Vec::new() }
    }

    #[test]
    fn a_narrow_line_keeps_its_end_and_is_never_too_long() {
        let report =
            report(&["first token 3.20 s", "122 tok/s", "79 % of limit", "context 54 of 8192"]);
        assert!(report.line(usize::MAX).starts_with("first token 3.20 s, 122 tok/s"));
        assert_eq!(report.line(60).trim_start(), "122 tok/s, 79 % of limit, context 54 of 8192");
        assert_eq!(report.line(40).trim_start(), "79 % of limit, context 54 of 8192");
        assert_eq!(report.line(17), "");
        for columns in 0..100 {
            let line = report.line(columns);
            assert!(line.is_empty() || line.chars().count() == columns, "{columns}: {line:?}");
        }
    }

    /// At 80 columns, too, with the longest parts there are.
    #[test]
    fn drafts_get_a_line_of_their_own_where_one_is_too_short() {
        let report = report(&[
            "first token 3.20 s",
            "speculative: 112 of 230 accepted",
            "45.6 tok/s",
            "79 % of limit",
            "context 1254 of 8192",
            "stopped at -n",
        ]);
        assert_eq!(report.line(usize::MAX).lines().count(), 1);
        let wide = report.line(100);
        assert!(
            wide.trim_start().starts_with("speculative") && wide.lines().count() == 1,
            "{wide}"
        );
        let told = report.line(79);
        let lines: Vec<&str> = told.lines().map(str::trim_start).collect();
        assert_eq!(
            lines,
            [
                "first token 3.20 s, speculative: 112 of 230 accepted",
                "45.6 tok/s, 79 % of limit, context 1254 of 8192, stopped at -n",
            ]
        );
        assert!(told.lines().all(|line| line.chars().count() == 79), "{told}");
        assert_eq!(
            report.line(40).lines().next().unwrap().trim_start(),
            "speculative: 112 of 230 accepted"
        );
    }

    #[test]
    fn few_tokens_have_no_rate() {
        assert_eq!((rate(7, 69.74), rate(8, 0.0)), (None, None));
        let shown = [121.8, 69.74, 4.567].map(|x| rate(8, x).unwrap());
        assert_eq!(shown, ["122 tok/s", "69.7 tok/s", "4.57 tok/s"]);
    }

    #[test]
    fn a_usual_end_is_no_news() {
        assert_eq!(notable(&StopReason::EndOfGeneration(1)), None);
        assert_eq!(notable(&StopReason::StopString("x".into())), None);
        assert_eq!(notable(&StopReason::MaxTokens), Some("stopped at -n"));
        assert_eq!(notable(&StopReason::ContextFull), Some("context full"));
    }

    #[test]
    fn cached_tokens_and_prompts_in_part_are_told() {
        let prefill = Duration::from_millis(220);
        let stats = |prompt_tokens, cached_tokens, computed_tokens| {
            let stats = Stats {
                prompt_tokens,
                cached_tokens,
                computed_tokens,
                prefill,
                ..Stats::default()
            };
            details_of_prompt(&stats).remove(0).1
        };
        assert_eq!(stats(2623, 2577, 46), "46 new + 2577 cached tokens, 0.22 s, 209 tok/s");
        assert_eq!(stats(36, 0, 36), "36 tokens, 0.22 s, 164 tok/s");
        assert_eq!(stats(100, 0, 1), "1 token of 100, 0.22 s");
    }
}
