//! What a server says of what it does: a line for each request and each change, on stderr or in a file, written by a thread of
//! its own. Nobody who serves waits for it, and nothing that was said or answered is in it unless `--log-prompts` asks for that.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::log_lines::LineFormat;
use crate::output::shown;
use crate::ui;

/// How a server tells what it does.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// What is logged: off, error, warn, info, debug, trace [default: what RUST_LOG says, else info, with -v debug]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    log_level: Option<LevelFilter>,
    /// Log to this file, behind what is in it, not to stderr
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Log JSON objects, one a line
    #[arg(long)]
    log_jsonl: bool,
    /// Log what is said and answered, too
    #[arg(long)]
    log_prompts: bool,
}

fn level(text: &str) -> Result<LevelFilter, String> {
    let known = ["off", "error", "warn", "info", "debug", "trace"];
    let read = text.to_ascii_lowercase();
    let level = known.contains(&&*read).then(|| read.parse().ok()).flatten();
    level.ok_or_else(|| format!("expected one of {}", known.join(", ")))
}

/// What all crates of the house log as.
const OURS: &str = "rooflight";
/// Lines that may wait to be written; what comes beyond is counted.
const WAITING: usize = 4096;
/// How long the end of a program waits for its last lines.
const LAST: Duration = Duration::from_secs(1);

impl LogArgs {
    /// Log from now on, until what this gives is dropped. A panic is logged without its words, which may be a user's.
    ///
    /// # Errors
    /// A file that cannot be written to.
    pub(crate) fn start(&self, verbose: bool) -> anyhow::Result<Log> {
        let sink: Box<dyn Write + Send> = match &self.log_file {
            // this stream drops colours if the terminal does not want them
            None => Box::new(anstream::stderr()),
            Some(path) => Box::new(appended(path)?),
        };
        if self.log_prompts {
            ui::warn("--log-prompts: what is said and answered is written to the log");
        }
        let variable = std::env::var("RUST_LOG").unwrap_or_default();
        let targets = self.targets(verbose, &variable).unwrap_or_else(|problem| {
            ui::warn(&format!("RUST_LOG: {problem}"));
            Targets::new().with_target(OURS, LevelFilter::INFO)
        });
        let said = if self.log_prompts { LevelFilter::INFO } else { LevelFilter::OFF };
        let targets = targets.with_target(server::SAID, said);
        let log = Log::start(sink, self.log_jsonl)?;
        let lines = log.clone();
        let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_target(false);
        let layer = layer.with_writer(move || LineWriter(lines.clone()));
        let terminal = self.log_file.is_none() && ui::stderr_is_terminal();
        let layer = match self.log_jsonl {
            true => layer.json().flatten_event(true).with_current_span(false).boxed(),
            false => layer.event_format(LineFormat { terminal }).boxed(),
        };
        let subscriber = tracing_subscriber::registry().with(layer.with_filter(targets));
        tracing::subscriber::set_global_default(subscriber).context("starting the log")?;
        let whole = self.log_prompts;
        std::panic::set_hook(Box::new(move |panic| {
            let at = panic.location().map(tracing::field::display);
            let literal = panic.payload().downcast_ref::<&'static str>().copied();
            let made = panic.payload().downcast_ref::<String>().map(|text| &**text);
            // what was made may quote what was said
            let told = literal.or(made.filter(|_| whole));
            tracing::error!(at, text = told.unwrap_or("withheld: see --log-prompts"), "panic");
        }));
        Ok(log)
    }

    /// What is logged, given what the environment says.
    ///
    /// # Errors
    /// What cannot be read there, in words.
    fn targets(&self, verbose: bool, variable: &str) -> Result<Targets, String> {
        match (self.log_level, variable) {
            (Some(level), _) => Ok(Targets::new().with_target(OURS, level)),
            (None, "") => {
                let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
                Ok(Targets::new().with_target(OURS, level))
            }
            (None, text) => text.parse().map_err(|error| format!("{error}")),
        }
    }
}

/// A file that only its owner reads, to write behind what is in it.
fn appended(path: &Path) -> anyhow::Result<std::fs::File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).with_context(|| format!("opening {}", shown(path)))
}

/// Lines on their way to be written.
#[derive(Clone)]
pub(crate) struct Log {
    sender: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

enum Entry {
    Line(Vec<u8>),
    /// All before this is written when this is dropped.
    End(Sender<()>),
}

impl Log {
    fn start(sink: Box<dyn Write + Send>, json: bool) -> anyhow::Result<Log> {
        let (sender, entries) = sync_channel(WAITING);
        let lost = Arc::<AtomicU64>::default();
        let count = Arc::clone(&lost);
        let thread = std::thread::Builder::new().name("rooflight-log".into());
        thread.spawn(move || write(&entries, sink, &count, json)).context("starting the log")?;
        Ok(Log { sender, lost })
    }

    fn push(&self, line: Vec<u8>) {
        if self.sender.try_send(Entry::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Wait until what was logged is written, but not long.
    pub(crate) fn flush(&self) {
        let (until, (done, written)) = (Instant::now() + LAST, channel());
        loop {
            match self.sender.try_send(Entry::End(done.clone())) {
                Ok(()) => {
                    // the log's thread has the only other one: once it drops that, nothing is waited for
                    drop(done);
                    let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
                    return;
                }
                // what is written makes room
                Err(TrySendError::Full(_)) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return,
            }
        }
    }
}

/// Write what comes. What cannot be written is lost: there is nowhere to say so.
fn write(entries: &Receiver<Entry>, mut sink: Box<dyn Write + Send>, lost: &AtomicU64, json: bool) {
    for entry in entries {
        let lines = lost.swap(0, Ordering::Relaxed);
        if lines > 0 {
            let _ = match json {
                true => writeln!(
                    sink,
                    r#"{{"level":"WARN","message":"lines were lost","lines":{lines}}}"#
                ),
                false => writeln!(sink, " WARN {lines} lines of the log were lost"),
            };
        }
        match entry {
            Entry::Line(line) => {
                let _ = sink.write_all(&line);
            }
            Entry::End(done) => {
                let _ = sink.flush();
                drop(done);
            }
        }
    }
}

/// One line: it comes in one piece.
struct LineWriter(Log);

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_option_comes_before_the_variable() {
        let args =
            |log_level| LogArgs { log_level, log_file: None, log_jsonl: false, log_prompts: false };
        let logs = |level, verbose, variable: &str| {
            let targets = args(level).targets(verbose, variable).unwrap();
            let all = ["ERROR", "INFO", "DEBUG", "TRACE"].map(|level| level.parse().unwrap());
            all.iter().filter(|level| targets.would_enable("rooflight_server::x", level)).count()
        };
        assert_eq!(logs(None, false, ""), 2);
        assert_eq!(logs(None, true, ""), 3);
        assert_eq!(logs(None, true, "rooflight=error"), 1);
        assert_eq!(logs(None, true, "hyper=trace"), 0);
        assert_eq!(logs(None, false, "trace"), 4);
        assert_eq!(logs(Some(LevelFilter::OFF), true, "trace"), 0);
        assert!(args(None).targets(false, "a=b=c").is_err());
        assert!(level("Warn").is_ok() && level("loud").is_err() && level("3").is_err());
    }

    /// A sink that takes nothing until it may.
    struct Gate(Arc<Mutex<Vec<u8>>>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A program that ends waits for its last lines, and not for the longest it might take to write them.
    #[test]
    fn a_flush_ends_when_all_is_written() {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let log = Log::start(Box::new(Gate(Arc::clone(&written))), false).unwrap();
        log.push(b"last\n".to_vec());
        let start = Instant::now();
        log.flush();
        assert!(start.elapsed() < LAST, "it waited for {:?}", start.elapsed());
        assert_eq!(*written.lock().unwrap(), b"last\n");
    }

    /// Whoever logs goes on where nothing is written, and what was lost is counted.
    #[test]
    fn nobody_waits_for_the_log() {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let log = Log::start(Box::new(Gate(Arc::clone(&written))), false).unwrap();
        let stuck = written.lock().unwrap();
        for i in 0..3 * WAITING {
            log.push(format!("{i}\n").into_bytes());
        }
        drop(stuck);
        // there is room again when some are written
        while log.sender.try_send(Entry::Line(b"last\n".to_vec())).is_err() {
            std::thread::yield_now();
        }
        log.flush();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let lost: Vec<&&str> = lines.iter().filter(|line| line.contains("lost")).collect();
        let count = |line: &str| line.split(' ').nth(2).unwrap().parse::<usize>().unwrap();
        let lost: usize = lost.iter().map(|line| count(line)).sum();
        let kept = lines.iter().filter(|line| line.parse::<usize>().is_ok()).count();
        assert_eq!((lost + kept, lines.last()), (3 * WAITING, Some(&"last")));
        assert!(lost >= WAITING, "{lost}");
    }
}
