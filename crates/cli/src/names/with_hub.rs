//! Models by name, with a hub and Hugging Face's cache.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use console::exit::code;
use gguf::Gguf;
use hub::{
    AskError, Hub, HubError, HubOptions, ModelName, PullProgress, PullStage, RemoteFile,
    RemoteModel,
};
use server::{PullFailure, PullState};

use super::Named;
use crate::interrupt::Interrupt;
use crate::{runtime, ui, units};
use rooflight::plan::FilePlan;
use rooflight::temporary::TemporaryFolder;

/// First bytes of a file that are asked for, which hold most headers; and the most.
const HEADER: u64 = 1 << 20;
const MOST_HEADER: u64 = 64 << 20;
/// Interval between checks for Ctrl-C during requests to a hub.
const CTRL_C_POLL: Duration = Duration::from_millis(50);

/// A model of which only headers are here, as files of the right length with nothing behind these.
pub(crate) struct HeaderOnly {
    /// What they lie in.
    _folder: TemporaryFolder,
    path: PathBuf,
    name: String,
}

impl HeaderOnly {
    /// Its first file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name it was asked for by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The hub that the environment names.
///
/// # Errors
/// An environment that names none, or no folder.
pub(crate) fn hub() -> anyhow::Result<Hub> {
    let options = HubOptions::from_variables(&|name| std::env::var_os(name), std::env::home_dir())?;
    Ok(Hub::new(options))
}

/// The hub that the environment names, for requests. Warns once if the token is sent to it unencrypted.
fn hub_to_ask() -> anyhow::Result<Hub> {
    static TOLD: std::sync::Once = std::sync::Once::new();
    let hub = hub()?;
    let HubOptions { endpoint, .. } = hub.options();
    if hub.options().sends_token_in_clear() {
        TOLD.call_once(|| {
            ui::warn(&format!(
                "the hub's token is sent unencrypted to {}: others on the network can read it; give an https:// address as \
                 HF_ENDPOINT, or no HF_TOKEN",
                gguf::escape(endpoint, 80)
            ));
        });
    }
    Ok(hub)
}

/// The repository and type that a short name stands for, such as `bartowski/DeepSeek-R1-Distill-Qwen-7B-GGUF` for
/// `deepseek-r1:7b`; `None` if the text is no short name.
pub(crate) fn spelled_out(text: &str) -> Option<String> {
    let name = ModelName::parse(text).ok().flatten().filter(|_| !text.contains('/'))?;
    Some(
        name.quant
            .as_ref()
            .map_or(name.repository.clone(), |quant| format!("{}:{quant}", name.repository)),
    )
}

/// What a text names, if it names a model.
pub(super) fn find(text: &str) -> anyhow::Result<Option<Named>> {
    let name = ModelName::parse(text)?;
    let Ok(hub) = hub() else { return Ok(None) };
    if let Some(name) = &name
        && let Some(file) = hub.find_cached(name)?
    {
        return Ok(Some(Named::Here(file.path)));
    }
    if let Some(file) = hub.find_by_short_name(text)? {
        return Ok(Some(Named::Here(file.path)));
    }
    Ok(name.map(|_| Named::Elsewhere(text.to_owned())))
}

/// Bring a model here that a command was asked to run.
pub(super) fn bring(name: &str, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    ui::note(format_args!("{name} is not here yet"));
    pull(name, false, interrupt)
}

/// Bring a model here: what it takes and how fast it can be is told before. `anyway`: also if it does not fit.
///
/// # Errors
/// [`HubError`]; that it does not fit, and nobody wants it all the same.
pub(crate) fn pull(name: &str, anyway: bool, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    let parsed = parsed(name)?;
    let hub = Arc::new(hub_to_ask()?);
    let model = stoppable(interrupt, {
        let (hub, parsed) = (Arc::clone(&hub), parsed.clone());
        move || Ok(hub.find(&parsed)?)
    })?;
    let here = hub.find_cached(&parsed)?;
    if here.is_none_or(|file| file.commit != model.commit) {
        before(&hub, &model, anyway, interrupt)?;
    }
    fetched(&hub, &model, interrupt)
}

/// Runs requests to the hub on a separate thread, so that Ctrl-C returns [`HubError::Cancelled`] without waiting for an answer.
fn stoppable<T: Send + 'static>(
    interrupt: &Interrupt,
    requests: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let (sender, answer) = mpsc::channel();
    std::thread::Builder::new()
        .name("hub".into())
        // sending fails if Ctrl-C has ended the wait for the answer
        .spawn(move || drop(sender.send(requests())))
        .context("starting a thread")?;
    interrupt.begin();
    let answer = loop {
        match answer.recv_timeout(CTRL_C_POLL) {
            Ok(answer) => break answer,
            Err(RecvTimeoutError::Timeout) if !interrupt.is_raised() => {}
            Err(RecvTimeoutError::Timeout) => break Err(HubError::Cancelled.into()),
            Err(RecvTimeoutError::Disconnected) => {
                break Err(anyhow::anyhow!("a request to the hub ended without an answer"));
            }
        }
    };
    interrupt.end();
    answer
}

/// Bring a model here that a program asks a server for. Nobody is asked anything: what does not fit is refused, also into
/// the `held` bytes that the server can free.
///
/// # Errors
/// [`PullFailure`].
pub(crate) fn pull_for(
    name: &str,
    held: u64,
    tell: &mut dyn FnMut(PullState<'_>) -> bool,
) -> Result<PathBuf, PullFailure> {
    brought(name, held, tell).map_err(|error| {
        let problem = format!("{error:#}");
        match error.downcast_ref() {
            Some(HubError::Name { .. }) => PullFailure::Name(problem),
            Some(HubError::NotFound { .. } | HubError::NoFile { .. }) => {
                PullFailure::NotFound(problem)
            }
            Some(HubError::Offline { .. } | HubError::NoFolder) => PullFailure::Refused(problem),
            _ => PullFailure::Failed(problem),
        }
    })
}

fn brought(
    name: &str,
    held: u64,
    tell: &mut dyn FnMut(PullState<'_>) -> bool,
) -> anyhow::Result<PathBuf> {
    let parsed = parsed(name)?;
    let hub = hub_to_ask()?;
    let model = hub.find(&parsed)?;
    // who has left meanwhile wants no more of it
    let mut is_wanted = || {
        let stage = server::PullStep::Looked;
        match tell(PullState { stage, digest: "", done: 0, total: 0 }) {
            true => Ok(()),
            false => Err(HubError::Cancelled),
        }
    };
    is_wanted()?;
    let here = hub.find_cached(&parsed)?;
    if here.is_none_or(|file| file.commit != model.commit) {
        let planned =
            headers(&hub, &model).and_then(|outline| FilePlan::of(runtime(), outline.path(), held));
        is_wanted()?;
        // what cannot be planned may be had all the same
        if let Some(misfit) = planned.ok().and_then(|plan| plan.misfit) {
            let problem = format!("{misfit}; `rooflight pull --yes` brings it all the same");
            return Err(rooflight::Error::NoRoom(problem).into());
        }
    }
    let pulled = hub.pull(&model, &mut |progress| {
        let file = model.files.get(progress.number.0 - 1);
        let stage = match progress.stage {
            PullStage::Waits => server::PullStep::Waits,
            PullStage::Retries => server::PullStep::Retries(progress.trouble.unwrap_or_default()),
            PullStage::Found | PullStage::Checked => server::PullStep::Checked,
            PullStage::Here | PullStage::Comes => server::PullStep::Comes,
        };
        let digest = file.map_or("", |file| &file.digest);
        tell(PullState { stage, digest, done: progress.done, total: progress.total })
    });
    Ok(pulled?)
}

fn parsed(name: &str) -> anyhow::Result<ModelName> {
    ModelName::parse(name)?.ok_or_else(|| {
        let problem = "expected org/repo, org/repo:TYPE or a short name such as qwen2.5:7b";
        HubError::Name { name: gguf::escape(name, 80), problem }.into()
    })
}

/// Say what a model is, what it takes and how fast it can be, from its header alone; ask where it does not fit.
fn before(
    hub: &Arc<Hub>,
    model: &RemoteModel,
    anyway: bool,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let file = model.files.first().map_or("", |file| &file.path);
    let (size, parts) = (units::decimal_bytes(model.bytes() as f64), model.files.len());
    let parts = if parts > 1 { format!(" in {parts} parts") } else { String::new() };
    ui::note(format_args!("{}: {file}, {size}{parts}", model.name));
    let outline = stoppable(interrupt, {
        let (hub, model) = (Arc::clone(hub), model.clone());
        move || headers(&hub, &model)
    });
    let planned = outline.and_then(|outline| FilePlan::of(runtime(), outline.path(), 0));
    let plan = match planned {
        Ok(plan) => plan,
        Err(error) if matches!(error.downcast_ref(), Some(HubError::Cancelled)) => {
            return Err(error);
        }
        // what cannot be planned may be had all the same: whoever runs it is told why not
        Err(error) => {
            ui::warn(&format!("its header tells no plan: {error:#}"));
            return Ok(());
        }
    };
    ui::note(&plan.summary);
    match plan.misfit {
        Some(misfit) if !anyway && !wanted_anyway(&misfit)? => {
            Err(rooflight::Error::NoRoom(format!("{misfit}; --yes brings it all the same")).into())
        }
        _ => Ok(()),
    }
}

fn wanted_anyway(misfit: &str) -> anyhow::Result<bool> {
    if !can_ask() {
        return Ok(false);
    }
    ui::warn(misfit);
    Ok(ask("bring it here all the same? [y/N] ")?)
}

/// Returns the number of models in the cache and the name of the latest; `None` if the cache cannot be read.
pub(crate) fn models_here() -> Option<(usize, String)> {
    let files = hub().ok()?.cached().ok()?.files;
    let latest = files.iter().max_by_key(|file| file.modified);
    Some((files.len(), latest.map(|file| file.name().to_string()).unwrap_or_default()))
}

/// Whether the user can be asked: stdin and stderr are terminals.
pub(crate) fn can_ask() -> bool {
    std::io::stdin().is_terminal() && ui::stderr_is_terminal()
}

/// Asks a question at the terminal and returns whether the answer is yes.
///
/// # Errors
/// A terminal that cannot be read or written.
pub(crate) fn ask(question: &str) -> std::io::Result<bool> {
    let mut stderr = std::io::stderr();
    write!(stderr, "{question}").and_then(|()| stderr.flush())?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn fetched(hub: &Hub, model: &RemoteModel, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    let bar = ui::bytes_bar("pulling", 0);
    let mut told = Told::default();
    interrupt.begin();
    let pulled = hub.pull(model, &mut |progress| {
        told.note(&progress);
        bar.set_length(progress.total);
        bar.set_position(progress.done);
        bar.set_message(told.message(&progress));
        !interrupt.flag().load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    interrupt.end();
    let path = pulled?;
    ui::note(format_args!("{}", crate::output::shown(&path)));
    Ok(path)
}

/// What was told of a download.
#[derive(Default)]
struct Told {
    /// Which file it is at, and what is done with it.
    last: Option<((usize, usize), PullStage)>,
    /// The file that comes, since when, and what of it was here before.
    comes: Option<(usize, Instant, u64)>,
    /// The last trouble.
    trouble: String,
}

impl Told {
    /// Say what has changed.
    fn note(&mut self, progress: &PullProgress<'_>) {
        let (i, n) = progress.number;
        let part = if n > 1 { format!("part {i} of {n}: ") } else { String::new() };
        let bytes = |n: u64| units::decimal_bytes(n as f64);
        let is_new = self.last.replace((progress.number, progress.stage))
            != Some((progress.number, progress.stage));
        match progress.stage {
            PullStage::Here if is_new => {
                ui::note(format_args!("{part}{} are here already", bytes(progress.total)));
            }
            PullStage::Waits if is_new => {
                ui::note(format_args!("{part}another process brings it here: waiting for it"));
            }
            PullStage::Comes if self.comes.is_none_or(|(of, ..)| of != i) => {
                self.comes = Some((i, Instant::now(), progress.done));
                if progress.done > 0 {
                    let percent = 100 * progress.done / progress.total.max(1);
                    ui::note(format_args!(
                        "{part}{} of {} ({percent} %) are here already: going on there",
                        bytes(progress.done),
                        bytes(progress.total)
                    ));
                }
            }
            PullStage::Comes => self.trouble.clear(),
            PullStage::Retries => {
                let trouble = progress.trouble.unwrap_or_default();
                if self.trouble != trouble {
                    trouble.clone_into(&mut self.trouble);
                    ui::note(format_args!("{part}trying again: {trouble}"));
                }
            }
            PullStage::Here | PullStage::Waits | PullStage::Found | PullStage::Checked => {}
        }
    }

    /// What stands beside the bar.
    fn message(&self, progress: &PullProgress<'_>) -> String {
        match progress.stage {
            PullStage::Here => String::new(),
            PullStage::Waits => "waiting".to_owned(),
            PullStage::Found => "checking what is here".to_owned(),
            PullStage::Checked => "checking".to_owned(),
            PullStage::Retries => "trying again".to_owned(),
            PullStage::Comes => {
                let (_, began, at_first) = self.comes.unwrap_or((0, Instant::now(), 0));
                let rate = progress.done.saturating_sub(at_first) as f64
                    / began.elapsed().as_secs_f64().max(1e-3);
                let left = progress.total.saturating_sub(progress.done) as f64 / rate.max(1.0);
                let (i, n) = progress.number;
                let part = if n > 1 { format!("part {i}/{n}, ") } else { String::new() };
                let rate = units::decimal_bytes(rate);
                format!("{part}{rate}/s, {} left", units::short_seconds(left))
            }
        }
    }
}

pub(super) fn outline(name: &str) -> anyhow::Result<HeaderOnly> {
    let hub = hub_to_ask()?;
    let model = hub.find(&parsed(name)?)?;
    headers(&hub, &model)
}

/// The headers of all files of a model.
fn headers(hub: &Hub, model: &RemoteModel) -> anyhow::Result<HeaderOnly> {
    let folder = TemporaryFolder::new(&std::env::temp_dir())?;
    let mut paths = Vec::new();
    for file in &model.files {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        let path = folder.path().join(name);
        header(hub, model, file, &path)?;
        paths.push(path);
    }
    let path = paths.first().context("the model has no files")?.clone();
    Ok(HeaderOnly { _folder: folder, path, name: model.name.to_string() })
}

/// Make a file of a model with its header alone: as many bytes of it as that takes.
fn header(hub: &Hub, model: &RemoteModel, file: &RemoteFile, path: &Path) -> anyhow::Result<()> {
    let mut length = HEADER;
    loop {
        let bytes = hub.beginning(model, file, length)?;
        let whole = bytes.len() as u64 == file.bytes;
        let made = File::create(path).and_then(|mut made| {
            made.write_all(&bytes)?;
            // nothing is written there, and nothing taken on most file systems
            made.set_len(file.bytes)
        });
        made.with_context(|| crate::output::shown(path))?;
        match Gguf::header_bytes(path) {
            Ok(header) if header <= bytes.len() as u64 => return Ok(()),
            Err(error) if whole || length >= MOST_HEADER => return Err(error.into()),
            Ok(_) if whole || length >= MOST_HEADER => {
                anyhow::bail!("{}: its header has more than {length} bytes", file.path)
            }
            // what lies beyond is not the file's
            _ => length *= 4,
        }
    }
}

/// What to do about a hub's failure, where one can do something.
pub(crate) fn hint_of(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = cause.downcast_ref::<AskError>() {
        return match error {
            AskError::NotRunning { .. } => {
                let other = std::env::var_os("OLLAMA_HOST").filter(|host| !host.is_empty());
                let other = other.map_or("", |_| "; OLLAMA_HOST is not read");
                Some(format!(
                    "start one with rooflight serve MODEL, or say where one listens: --port N, --url http://HOST:PORT or \
                     unix:FILE{other}"
                ))
            }
            AskError::Unauthorized { .. } => {
                Some("its key is read from ROOFLIGHT_API_KEY, or --api-key-file FILE".into())
            }
            _ => None,
        };
    }
    match cause.downcast_ref()? {
        HubError::Transport { problem, .. } if problem.contains("401") => {
            Some("the hub wants a token: HF_TOKEN".into())
        }
        HubError::Transport { problem, .. } if problem.contains("lookup address") => Some(
            "names cannot be looked up: is this machine online? A file that is here needs no network: give its path"
                .into(),
        ),
        HubError::Protocol { url, expected, .. } if expected.starts_with("http://") => {
            Some(format!("{} is no address: see HF_ENDPOINT", gguf::escape(url, 80)))
        }
        _ => None,
    }
}

/// The exit code of a hub's failure.
pub(crate) fn code_of(cause: &(dyn std::error::Error + 'static)) -> Option<u8> {
    Some(match cause.downcast_ref()? {
        HubError::Name { .. } | HubError::NoFolder => code::USAGE,
        HubError::Offline { .. }
        | HubError::NotFound { .. }
        | HubError::NoFile { .. }
        | HubError::Ambiguous { .. } => code::NOT_FOUND,
        HubError::Cancelled => code::INTERRUPTED,
        _ => code::FAILURE,
    })
}
