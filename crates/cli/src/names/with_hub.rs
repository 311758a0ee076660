//! Models by name, with a hub and Hugging Face's cache.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context as _;
use gguf::Gguf;
use hub::{Hub, HubError, HubOptions, ModelName, PullStage, RemoteFile, RemoteModel};

use super::{HeaderOnly, Named};
use crate::commands::plan_of_file;
use crate::exit::{Failure, code};
use crate::interrupt::Interrupt;
use crate::{ui, units};

/// First bytes of a file that are asked for, which hold most headers; and the most.
const HEADER: u64 = 1 << 20;
const MOST_HEADER: u64 = 64 << 20;

/// The hub that the environment names.
///
/// # Errors
/// An environment that names none, or no folder.
pub(crate) fn hub() -> anyhow::Result<Hub> {
    let options = HubOptions::from_variables(&|name| std::env::var_os(name), std::env::home_dir())?;
    Ok(Hub::new(options))
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
pub(super) fn bring(name: &str) -> anyhow::Result<PathBuf> {
    ui::note(format_args!("{name} is not here yet"));
    pull(name, false, &Interrupt::default())
}

/// Bring a model here: what it takes and how fast it can be is told before. `anyway`: also if it does not fit.
///
/// # Errors
/// [`HubError`]; that it does not fit, and nobody wants it all the same.
pub(crate) fn pull(name: &str, anyway: bool, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    let parsed = parsed(name)?;
    let hub = hub()?;
    let model = hub.find(&parsed)?;
    let here = hub.find_cached(&parsed)?;
    if here.is_none_or(|file| file.commit != model.commit) {
        before(&hub, &model, anyway)?;
    }
    fetched(&hub, &model, interrupt)
}

fn parsed(name: &str) -> anyhow::Result<ModelName> {
    ModelName::parse(name)?.ok_or_else(|| {
        let problem = "expected org/repo, org/repo:TYPE or a short name such as qwen2.5:7b";
        HubError::Name { name: gguf::escape(name, 80), problem }.into()
    })
}

/// Say what a model is, what it takes and how fast it can be, from its header alone; ask where it does not fit.
fn before(hub: &Hub, model: &RemoteModel, anyway: bool) -> anyhow::Result<()> {
    let file = model.files.first().map_or("", |file| &file.path);
    let (size, parts) = (units::decimal_bytes(model.bytes() as f64), model.files.len());
    let parts = if parts > 1 { format!(" in {parts} parts") } else { String::new() };
    ui::note(format_args!("{}: {file}, {size}{parts}", model.name));
    let planned = headers(hub, model).and_then(|outline| plan_of_file(outline.path()));
    let plan = match planned {
        Ok(plan) => plan,
        // what cannot be planned may be had all the same: whoever runs it is told why not
        Err(error) => {
            ui::warn(&format!("its header tells no plan: {error:#}"));
            return Ok(());
        }
    };
    ui::note(&plan.summary);
    match plan.misfit {
        Some(misfit) if !anyway && !wanted_anyway(&misfit)? => {
            Err(Failure::NoRoom(format!("{misfit}; --yes brings it all the same")).into())
        }
        _ => Ok(()),
    }
}

fn wanted_anyway(misfit: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() || !ui::stderr_is_terminal() {
        return Ok(false);
    }
    ui::warn(misfit);
    let mut stderr = std::io::stderr();
    write!(stderr, "bring it here all the same? [y/N] ").and_then(|()| stderr.flush())?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

fn fetched(hub: &Hub, model: &RemoteModel, interrupt: &Interrupt) -> anyhow::Result<PathBuf> {
    let bar = ui::bytes_bar("pulling", 0);
    let (mut last, mut began) = (None, Instant::now());
    let mut at_first = 0;
    interrupt.begin();
    let pulled = hub.pull(model, &mut |progress| {
        let now = (progress.number, progress.stage);
        if last != Some(now) {
            (last, began, at_first) = (Some(now), Instant::now(), progress.done);
            bar.set_length(progress.total);
            match progress.stage {
                PullStage::Waits => ui::note("another process brings it here: waiting for it"),
                PullStage::Comes if progress.done > 0 => {
                    let part = 100 * progress.done / progress.total.max(1);
                    ui::note(format_args!("resuming at {part} %"));
                }
                PullStage::Comes | PullStage::Checked => {}
            }
        }
        bar.set_position(progress.done);
        bar.set_message(match progress.stage {
            PullStage::Waits => "waiting".to_owned(),
            PullStage::Checked => "checking".to_owned(),
            PullStage::Comes => {
                let rate = (progress.done - at_first.min(progress.done)) as f64
                    / began.elapsed().as_secs_f64().max(1e-3);
                let left = progress.total.saturating_sub(progress.done) as f64 / rate.max(1.0);
                let (i, n) = progress.number;
                let part = if n > 1 { format!("part {i}/{n}, ") } else { String::new() };
                let rate = units::decimal_bytes(rate);
                format!("{part}{rate}/s, {} left", units::short_seconds(left))
            }
        });
        !interrupt.flag().load(Ordering::Relaxed)
    });
    bar.finish_and_clear();
    interrupt.end();
    let path = pulled?;
    ui::note(format_args!("{}", crate::output::shown(&path)));
    Ok(path)
}

pub(super) fn outline(name: &str) -> anyhow::Result<HeaderOnly> {
    let hub = hub()?;
    let model = hub.find(&parsed(name)?)?;
    headers(&hub, &model)
}

/// The headers of all files of a model.
fn headers(hub: &Hub, model: &RemoteModel) -> anyhow::Result<HeaderOnly> {
    let folder = new_folder()?;
    let mut outline = HeaderOnly { path: folder.clone(), folder, name: model.name.to_string() };
    let mut paths = Vec::new();
    for file in &model.files {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        let path = outline.folder.join(name);
        header(hub, model, file, &path)?;
        paths.push(path);
    }
    outline.path = paths.first().context("the model has no files")?.clone();
    Ok(outline)
}

/// A folder that nobody else has.
fn new_folder() -> anyhow::Result<PathBuf> {
    let base = std::env::temp_dir();
    for i in 0..1000 {
        let folder = base.join(format!("rooflight-{}-{i}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| crate::output::shown(&folder)),
        }
    }
    anyhow::bail!("{}: no folder can be made there", crate::output::shown(&base))
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
