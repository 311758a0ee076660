//! A reply on its way to the terminal: text and calls to stdout, thoughts and the footer to stderr.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{CollectedCalls, Event, Generated, Session, StopReason, ToolCallDelta};

use crate::limits::Limits;
use crate::markdown::Markdown;
use crate::predictions::{RunPhase, RunTime};
use crate::printable::Printable;
use crate::statistics::{ReplyReport, Statistics};
use crate::ui::{self, PromptLine};
use crate::wrap::WordWrap;

/// Prints events. A failed write stops the reply; [`ReplyPrinter::finish`] returns it.
pub(crate) struct ReplyPrinter<'a> {
    out: &'a mut dyn Write,
    cancel: Arc<AtomicBool>,
    show_thoughts: bool,
    prompt: PromptLine,
    text: Printable,
    thought: Printable,
    thinking: bool,
    /// Whether a line is begun and not ended.
    in_line: bool,
    /// Whether text is printed as it comes.
    streams: bool,
    layout: Layout,
    thought_wrap: Option<WordWrap>,
    /// The call that comes.
    calls: CollectedCalls,
    /// Calls are printed as JSON, for programs.
    calls_as_json: bool,
    /// Whether a tool call was printed.
    has_calls: bool,
    /// Text after the tool calls, held back because a program reads the calls.
    behind_calls: String,
    failed: Option<std::io::Error>,
}

impl<'a> ReplyPrinter<'a> {
    /// A printer to `out`; `cancel` is raised if that fails.
    pub(crate) fn new(
        out: &'a mut dyn Write,
        cancel: &Arc<AtomicBool>,
        show_thoughts: bool,
    ) -> Self {
        Self {
            out,
            cancel: Arc::clone(cancel),
            show_thoughts,
            prompt: PromptLine::start(),
            text: Printable::default(),
            thought: Printable::default(),
            thinking: false,
            in_line: false,
            streams: true,
            layout: Layout::Raw,
            thought_wrap: None,
            calls: CollectedCalls::default(),
            calls_as_json: false,
            has_calls: false,
            behind_calls: String::new(),
            failed: None,
        }
    }

    /// For a reply that is printed as one object when it is there: nothing goes to `out` before.
    pub(crate) fn whole(self, whole: bool) -> Self {
        let show_thoughts = self.show_thoughts && !whole;
        Self { streams: !whole, show_thoughts, ..self }
    }

    /// Breaks lines between words (`wrap`) and renders Markdown (`markdown`), if the reply is shown on a terminal.
    pub(crate) fn laid_out(self, wrap: bool, markdown: bool) -> Self {
        let wraps = |columns: Option<usize>| columns.filter(|_| wrap).map(WordWrap::new);
        let columns = ui::stdout_columns();
        let layout = match columns.filter(|_| markdown && !ui::terminal_is_dumb()) {
            Some(columns) => {
                Layout::Markdown(Box::new(Markdown::new(columns, wrap, ui::stdout_has_styles())))
            }
            None => wraps(columns).map_or(Layout::Raw, Layout::Wrapped),
        };
        Self { layout, thought_wrap: wraps(ui::stderr_columns()), ..self }
    }

    /// Hides the progress of a long prompt if `quiet`.
    pub(crate) fn quiet(self, quiet: bool) -> Self {
        let prompt = if quiet { PromptLine::hidden() } else { self.prompt };
        Self { prompt, ..self }
    }

    /// With calls of tools as JSON, one on a line, as OpenAI's API has them, where a program reads them.
    pub(crate) fn calls_as_json(self, json: bool) -> Self {
        Self { calls_as_json: json, ..self }
    }

    /// Print what happened.
    pub(crate) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Prefill(p) => self.prompt.update(p.done, p.total),
            Event::Dropped(n) => {
                ui::note(format_args!("the context is full: the oldest {n} messages are forgotten"))
            }
            Event::Thought(text) => {
                self.prompt.clear();
                if self.show_thoughts {
                    self.thinking = true;
                    let text = self.thought.push(text);
                    let wrap = self.thought_wrap.as_mut();
                    ui::dim(&wrap.map_or_else(|| text.clone(), |wrap| wrap.push(&text)));
                }
            }
            Event::Text(text) => {
                self.prompt.clear();
                self.end_thought();
                let text = self.text.push(text);
                // a program reads the calls, one per line: text after them would break that format
                if self.calls_as_json && self.has_calls {
                    self.behind_calls.push_str(&text);
                    return;
                }
                let text = self.layout.push(text);
                self.print(&text);
            }
            Event::ToolCall(delta) => self.call(delta),
            Event::PromptScored(_) | Event::Chosen(_) | Event::Usage(_) | Event::End(_) => {}
        }
    }

    /// A call is printed when it is whole.
    fn call(&mut self, delta: ToolCallDelta<&str>) {
        let Some(call) = self.calls.add(&delta) else { return };
        let line = match self.calls_as_json {
            true => server::call_json(call).to_string(),
            false => format!("{} {}", call.name, call.arguments),
        };
        self.prompt.clear();
        self.end_thought();
        self.end_line();
        let line = Printable::default().push(&line);
        self.print(&(line + "\n"));
        self.has_calls = true;
    }

    /// End the line that was begun.
    fn end_line(&mut self) {
        let rest = self.layout.finish();
        self.print(&rest);
        if self.in_line {
            self.print("\n");
        }
    }

    fn end_thought(&mut self) {
        if std::mem::take(&mut self.thinking) {
            let rest = self.thought_wrap.as_mut().map(WordWrap::finish).unwrap_or_default();
            ui::dim(&(rest + "\n"));
        }
    }

    fn print(&mut self, text: &str) {
        if text.is_empty() || self.failed.is_some() || !self.streams {
            return;
        }
        self.in_line = !text.ends_with('\n');
        if let Err(error) = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            self.failed = Some(error);
            self.cancel.store(true, Ordering::SeqCst);
        }
    }

    /// End the line that was begun.
    ///
    /// # Errors
    /// The first write that failed.
    pub(crate) fn finish(mut self) -> std::io::Result<()> {
        self.prompt.clear();
        self.end_thought();
        self.end_line();
        let behind = self.behind_calls.trim();
        if !behind.is_empty() && self.streams {
            ui::note(format_args!("text after the calls, not printed: {behind}"));
        }
        self.failed.map_or(Ok(()), Err)
    }
}

/// Layout of a reply on stdout.
enum Layout {
    /// Unchanged text of the model.
    Raw,
    /// Lines broken between words.
    Wrapped(WordWrap),
    /// Rendered Markdown.
    Markdown(Box<Markdown>),
}

impl Layout {
    /// Adds text of the reply; returns what can be shown now.
    fn push(&mut self, text: String) -> String {
        match self {
            Layout::Raw => text,
            Layout::Wrapped(wrap) => wrap.push(&text),
            Layout::Markdown(markdown) => markdown.push(&text),
        }
    }

    /// Returns the text that was held back.
    fn finish(&mut self) -> String {
        match self {
            Layout::Raw => String::new(),
            Layout::Wrapped(wrap) => wrap.finish(),
            Layout::Markdown(markdown) => markdown.finish(),
        }
    }
}

/// Keep how far off expected times were, for the error bars of plans.
fn remember(reply: &Generated, limits: &Limits) {
    let stats = &reply.stats;
    let (cached, computed) = (stats.cached_tokens, stats.computed_tokens);
    let prompt = limits.expected(cached, computed, 0).map(|expected| RunTime {
        phase: RunPhase::Prompts,
        expected,
        measured: stats.prefill.as_secs_f64(),
    });
    // the first step is part of the first token; what is expected is a plain step
    let plain = stats.drafts.passes == 0;
    let expected = limits.expected(stats.prompt_tokens, 0, stats.steps.len());
    let steps = expected.filter(|_| plain).map(|expected| RunTime {
        phase: RunPhase::Steps,
        expected,
        measured: stats.steps.iter().sum::<Duration>().as_secs_f64(),
    });
    let runs: Vec<_> = prompt.into_iter().chain(steps).collect();
    limits.remember(&runs);
}

/// Prints the statistics of a finished reply, and stores the error of the expected times.
pub(crate) fn tell_end(
    reply: &Generated,
    session: &Session,
    limits: Option<&Limits>,
    statistics: Statistics,
) -> ReplyReport {
    let report = ReplyReport::new(reply, session, limits);
    match statistics {
        Statistics::Full => ui::note(report.details().trim_end()),
        Statistics::Line if ui::is_interactive() => {
            // a terminal wraps a line that fills its last column
            let columns = ui::stderr_columns().map_or(usize::MAX, |columns| columns - 1);
            let line = report.line(columns);
            if !line.is_empty() {
                ui::note(line);
            }
        }
        Statistics::Line | Statistics::Off => {}
    }
    if let Some(limits) = limits {
        remember(reply, limits);
    }
    report
}

/// Say that a reply outside of conversations ends because the context does.
pub(crate) fn tell_cut(reply: &Generated, session: &Session) {
    if reply.stop == StopReason::ContextFull {
        ui::warn(&format!(
            "the context of {} tokens is full: the reply ends here; -c gives it more",
            session.capacity()
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn print(events: &[Event<'_>]) -> String {
        let mut out = Vec::new();
        let mut printer = ReplyPrinter::new(&mut out, &Arc::default(), false);
        events.iter().for_each(|event| printer.event(*event));
        printer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_the_reply_is_printed_and_it_ends_its_line() {
        assert_eq!(
            print(&[Event::Thought("hm"), Event::Text("a\x1b[3"), Event::Text("1mb")]),
            "ab\n"
        );
        assert_eq!(print(&[Event::Text("a\n")]), "a\n");
        assert_eq!(print(&[]), "");
    }

    #[test]
    fn a_call_stands_on_a_line_of_its_own_when_it_is_whole() {
        let call = |name, text| {
            [
                ToolCallDelta::Begins { index: 0, id: "call00000", name },
                ToolCallDelta::Arguments { index: 0, text: "{\"a\": " },
                ToolCallDelta::Arguments { index: 0, text },
                ToolCallDelta::Ends { index: 0 },
            ]
            .map(Event::ToolCall)
        };
        let mut events = vec![Event::Text("So:")];
        events.extend(call("f", "1}"));
        events.extend(&call("g", "2}")[..3]);
        events.push(Event::ToolCall(ToolCallDelta::Fails { index: 1 }));
        events.push(Event::Text("no"));
        assert_eq!(print(&events), "So:\nf {\"a\": 1}\nno\n");
        let mut out = Vec::new();
        let mut printer = ReplyPrinter::new(&mut out, &Arc::default(), false).calls_as_json(true);
        call("f", "\"\u{9b}31m\"}").iter().for_each(|event| printer.event(*event));
        printer.finish().unwrap();
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["function"]["name"], "f");
        assert!(!String::from_utf8(out).unwrap().contains('\u{9b}'));
    }

    #[test]
    fn a_closed_pipe_stops_the_reply() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let cancel = Arc::new(AtomicBool::new(false));
        let mut closed = Closed;
        let mut printer = ReplyPrinter::new(&mut closed, &cancel, false);
        printer.event(Event::Text("a"));
        assert!(cancel.load(Ordering::SeqCst));
        assert_eq!(printer.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
