//! [`LineFormat`]: human-readable lines of a server's log. A request is one short line with aligned first columns:
//!
//! ```text
//! 11:10:21Z 200  3.42s POST /v1/chat/completions demo in 36 out 12 122 tok/s
//! ```

use std::fmt::{self, Debug};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

const RED: &str = "\x1b[31m";
const YELLOW: &str = "\x1b[33m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

/// Format of log lines.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineFormat {
    /// For a terminal: with colours and without the date.
    pub(crate) terminal: bool,
}

/// Message and fields of an event, as text.
#[derive(Default)]
struct Told {
    message: String,
    fields: Vec<(&'static str, String)>,
    /// Names of the fields that are strings, whose values may contain spaces.
    texts: Vec<&'static str>,
}

impl Visit for Told {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.texts.push(field.name());
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.message = value,
            name => self.fields.push((name, value)),
        }
    }
}

impl Told {
    fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok()
    }
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut told = Told::default();
        event.record(&mut told);
        let mut now = String::new();
        SystemTime.format_time(&mut Writer::new(&mut now))?;
        let line = self.line(&now, *event.metadata().level(), &told);
        writeln!(writer, "{line}")
    }
}

impl LineFormat {
    /// Returns a line without its line break. `now` is an RFC 3339 timestamp.
    fn line(self, now: &str, level: Level, told: &Told) -> String {
        let (date, time) = now.split_once('T').unwrap_or(("", now));
        let time = time.split(['.', 'Z']).next().unwrap_or(time);
        let time = if self.terminal { format!("{time}Z") } else { format!("{date}T{time}Z") };
        let mut line = self.colored(DIM, &time);
        match &*told.message {
            "request" => self.request(told, &mut line),
            message => {
                line.push(' ');
                match level {
                    Level::INFO => line.push_str("INFO "),
                    Level::ERROR => line.push_str(&self.colored(RED, "ERROR ")),
                    Level::WARN => line.push_str(&self.colored(YELLOW, "WARN ")),
                    Level::DEBUG => line.push_str("DEBUG "),
                    Level::TRACE => line.push_str("TRACE "),
                }
                push_printable(&mut line, message);
                for (name, value) in &told.fields {
                    line.push_str(&format!(" {name}="));
                    match told.texts.contains(name) {
                        true => line.push_str(&format!("{value:?}")),
                        false => push_printable(&mut line, value),
                    }
                }
            }
        }
        line
    }

    /// Appends the outcome of a request.
    fn request(self, told: &Told, line: &mut String) {
        let get = |name: &str| told.get(name);
        let status = get("status").unwrap_or("---");
        let color = match status.as_bytes().first() {
            Some(b'5') => RED,
            Some(b'4' | b'-') => YELLOW,
            _ => "",
        };
        line.push(' ');
        match color {
            "" => line.push_str(status),
            color => line.push_str(&self.colored(color, status)),
        }
        let total = told.number("total_ms").map(seconds).unwrap_or_default();
        let mut rest: Vec<String> = Vec::new();
        let mut add = |text: String| rest.push(text);
        let method = get("method").unwrap_or_default();
        add(format!("{total:>6} {method} {}", get("path").unwrap_or_default()));
        get("model").into_iter().for_each(|model| add(model.to_owned()));
        if let Some(prompt) = get("prompt_tokens") {
            let cached = get("cached_tokens").map(|n| format!(" ({n} cached)"));
            add(format!("in {prompt}{}", cached.unwrap_or_default()));
        }
        get("tokens").into_iter().for_each(|tokens| add(format!("out {tokens}")));
        told.number("tokens_per_second")
            .into_iter()
            .for_each(|rate| add(format!("{rate:.prec$} tok/s", prec = usize::from(rate < 10.0))));
        told.number("load_ms").into_iter().for_each(|ms| add(format!("load {}", seconds(ms))));
        get("error").into_iter().for_each(|error| add(error.to_owned()));
        let ended = get("ended").filter(|ended| *ended != "ok");
        ended.into_iter().for_each(|ended| add(ended.to_owned()));
        get("key").into_iter().for_each(|key| add(format!("key {key}")));
        let from = get("from").filter(|from| *from != "127.0.0.1" && *from != "::1");
        from.into_iter().for_each(|from| add(format!("from {from}")));
        // a client can name a failed request by its id
        let failed = status.starts_with(['4', '5', '-']) || ended.is_some();
        get("id").filter(|_| failed).into_iter().for_each(|id| add(id.to_owned()));
        for text in rest {
            line.push(' ');
            push_printable(line, &text);
        }
    }

    fn colored(self, color: &str, text: &str) -> String {
        if self.terminal { format!("{color}{text}{RESET}") } else { text.to_owned() }
    }
}

/// Formats a time given in milliseconds: `412ms`, `3.42s`, `123s`.
fn seconds(ms: f64) -> String {
    let s = ms / 1e3;
    match ms {
        _ if ms < 999.5 => format!("{ms:.0}ms"),
        _ if s < 99.995 => format!("{s:.2}s"),
        _ => format!("{s:.0}s"),
    }
}

/// Appends a text with control characters and direction overrides escaped, so that it stays on one line and cannot affect
/// the terminal.
fn push_printable(line: &mut String, text: &str) {
    line.push_str(&gguf::escape(text, usize::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-27T11:10:21.123456Z";

    fn told(message: &str, fields: &[(&'static str, &str)]) -> Told {
        let fields = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Told { message: message.to_owned(), fields, texts: vec!["model", "path", "error"] }
    }

    #[test]
    fn a_request_is_one_short_line() {
        let reply = [
            ("id", "req_1a2b3c4d00000001"),
            ("method", "POST"),
            ("path", "/v1/chat/completions"),
            ("status", "200"),
            ("model", "demo"),
            ("from", "127.0.0.1"),
            ("prompt_tokens", "36"),
            ("tokens", "12"),
            ("total_ms", "3417.2"),
            ("tokens_per_second", "121.8"),
            ("ended", "ok"),
        ];
        let plain = LineFormat { terminal: false };
        let line = |format: LineFormat, fields: &[(&'static str, &str)]| {
            format.line(NOW, Level::INFO, &told("request", fields))
        };
        assert_eq!(
            line(plain, &reply),
            "2026-11-27T11:10:21Z 200  3.42s POST /v1/chat/completions demo in 36 out 12 122 tok/s"
        );
        let shown = line(LineFormat { terminal: true }, &reply);
        let visible = shown.replace(DIM, "").replace(RESET, "");
        assert!(visible.len() <= 80 && visible.starts_with("11:10:21Z 200"), "{visible}");
        let failed = [
            ("id", "req_1a2b3c4d00000002"),
            ("method", "GET"),
            ("path", "/nope"),
            ("status", "404"),
            ("error", "not_found_error"),
            ("key", "1"),
            ("from", "10.0.0.7"),
            ("total_ms", "0.4"),
            ("ended", "ok"),
        ];
        assert_eq!(
            line(plain, &failed),
            "2026-11-27T11:10:21Z 404    0ms GET /nope not_found_error key 1 from 10.0.0.7 req_1a2b3c4d00000002"
        );
        let left = [
            ("method", "POST"),
            ("path", "/x"),
            ("total_ms", "120000"),
            ("load_ms", "3400"),
            ("ended", "client disconnected before the reply"),
        ];
        assert_eq!(
            line(plain, &left),
            "2026-11-27T11:10:21Z ---   120s POST /x load 3.40s client disconnected before the reply"
        );
    }

    /// R2: any logged text stays on one line and cannot affect the terminal.
    #[test]
    fn whatever_is_logged_is_one_line() {
        let plain = LineFormat { terminal: false };
        let hostile = "a\n\u{1b}]0;x\u{7}\"\u{202e}";
        for message in ["request", hostile] {
            let fields = [("path", hostile), ("model", hostile), ("error", hostile)];
            let line = plain.line(NOW, Level::WARN, &told(message, &fields));
            assert!(!line.contains(char::is_control), "{line:?}");
            assert!(!line.contains('\u{202e}'), "{line:?}");
        }
        let line =
            plain.line(NOW, Level::WARN, &told("loaded", &[("model", "a b"), ("seconds", "0.5")]));
        assert_eq!(line, "2026-11-27T11:10:21Z WARN loaded model=\"a b\" seconds=0.5");
    }
}
