//! Options that say what is kept of conversations over restarts, and where.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use executors::{SessionFolder, SessionFolders};
use planner::formula::Units;
use program::{KeptPlace, Model};

use crate::exit::Failure;
use crate::output::shown;
use crate::{amounts, ui, units};

/// What a server keeps of conversations on disk.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct KeepArgs {
    /// Folder to keep conversations over restarts
    ///
    /// The next message computes only what is new
    #[arg(long, value_name = "DIR")]
    cache_disk: Option<PathBuf>,
    /// Most that they take there: 50G, 500MB; what was used longest ago goes first [default: 10G]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "cache_disk")]
    cache_disk_size: Option<u64>,
    /// A folder where slots are saved by name, as llama.cpp's server does (POST /slots/N?action=save), without a bound: any
    /// client can fill the disk
    #[arg(long, value_name = "DIR")]
    slot_save_path: Option<PathBuf>,
}

/// Bytes of conversations on disk, unless another bound is given.
const MOST: u64 = 10_000_000_000;

fn size(text: &str) -> Result<u64, String> {
    let bytes =
        amounts::memory(text).map_err(|_| "expected a size with its unit, such as 50G or 500MB")?;
    Ok(bytes.value(Units::Decimal) as u64)
}

/// Open a folder of conversations, of which none goes for room.
///
/// # Errors
/// Another process has it, or what the system says.
pub(crate) fn untouched(folder: &Path) -> anyhow::Result<SessionFolder> {
    SessionFolder::saved(folder).with_context(|| of(folder))
}

fn of(folder: &Path) -> String {
    format!("--cache-disk {}", shown(folder))
}

impl KeepArgs {
    /// Most bytes of conversations on disk.
    fn most(&self) -> u64 {
        self.cache_disk_size.unwrap_or(MOST)
    }

    /// Open the folders that were given; conversations for which there is no room any more go, and that is told.
    ///
    /// # Errors
    /// Another process has one, or what the system says; [`Failure::Usage`] for one folder for both.
    pub(crate) fn open(&self) -> anyhow::Result<SessionFolders> {
        let open = |folder: &PathBuf| {
            let opened = SessionFolder::conversations(folder, self.most());
            let opened = opened.with_context(|| of(folder))?;
            if let n @ 1.. = opened.let_go_at_open() {
                let most = units::bytes(self.most());
                ui::note(format_args!(
                    "{}: {n} of the conversations were let go of, those used longest ago: more than {most} were there",
                    of(folder)
                ));
            }
            Ok::<_, anyhow::Error>(opened)
        };
        let conversations = self.cache_disk.as_ref().map(open).transpose()?;
        let saved = self.slot_save_path.as_ref().map(|folder| {
            if let Some(other) = &self.cache_disk
                && folder.canonicalize().ok() == other.canonicalize().ok()
            {
                let problem = "--slot-save-path: what is saved stays, and --cache-disk lets go: give two folders";
                return Err(Failure::Usage(problem.into()).into());
            }
            SessionFolder::saved(folder)
                .with_context(|| format!("--slot-save-path {}", shown(folder)))
        });
        Ok(SessionFolders { conversations, saved: saved.transpose()? })
    }

    /// Refuse what the executor of a model does not do.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub(crate) fn check(&self, model: &dyn Model, executor: &str) -> Result<(), Failure> {
        let refused = |option| {
            Err(Failure::Usage(format!(
                "{option}: {executor} keeps no caches on disk: --executor cpu does"
            )))
        };
        match () {
            () if self.cache_disk.is_some() && model.kept(KeptPlace::Conversations).is_none() => {
                refused("--cache-disk")
            }
            () if self.slot_save_path.is_some() && model.kept(KeptPlace::Saved).is_none() => {
                refused("--slot-save-path")
            }
            () => Ok(()),
        }
    }

    /// What is told of it beside what is served.
    pub(crate) fn told(&self) -> String {
        let kept = self.cache_disk.as_ref().map(|folder| {
            let most = units::bytes(self.most());
            format!(", conversations kept in {}, at most {most}", shown(folder))
        });
        let saved = self.slot_save_path.as_ref();
        let saved = saved.map(|folder| format!(", slots saved in {}", shown(folder)));
        kept.into_iter().chain(saved).collect()
    }

    /// What to say where the model is one that has no conversations.
    pub(crate) fn idle(&self) -> Option<&'static str> {
        let given = self.cache_disk.is_some() || self.slot_save_path.is_some();
        given.then_some("--cache-disk and --slot-save-path have no effect: the model reads texts and has no conversations")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_for_one_thing_and_one_server() {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let args = |slots: &str| KeepArgs {
            cache_disk: Some(dir.path().join("a")),
            cache_disk_size: None,
            slot_save_path: Some(dir.path().join(slots)),
        };
        let told = |opened: anyhow::Result<SessionFolders>| match opened {
            Ok(_) => String::new(),
            Err(error) => format!("{error:#}"),
        };
        assert!(told(args("a").open()).contains("give two folders"));
        let first = args("b").open().expect("both can be had");
        let second = told(args("c").open());
        let holder = format!("held by process {}", std::process::id());
        assert!(second.contains("--cache-disk") && second.contains(&holder), "{second}");
        drop(first);
        assert_eq!(told(args("c").open()), "");
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(size("50G"), Ok(50_000_000_000));
        assert!(size("50").is_err_and(|why| why.contains("50G")));
    }
}
