//! [`Runtime`]: the settings, stored measurements and receiver of notices that all models share.

use std::fmt;
use std::sync::{Arc, Once};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::notices::{Ignored, Level, Notice, Notices, Task, TaskProgress, Topic};
use crate::{Settings, shown};

/// Settings, stored measurements and a receiver of notices, shared by all models of a process. Clones share the same data.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    settings: Settings,
    notices: Box<dyn Notices>,
    /// Runs once: warns that measurements cannot be stored.
    unsaved: Once,
}

impl Runtime {
    /// Creates a runtime.
    pub fn new(settings: Settings, notices: impl Notices + 'static) -> Runtime {
        Runtime(Arc::new(Inner { settings, notices: Box::new(notices), unsaved: Once::new() }))
    }

    /// Creates a runtime that reports nothing.
    pub fn silent(settings: Settings) -> Runtime {
        Runtime::new(settings, Ignored)
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Reports a remark.
    pub(crate) fn note(&self, topic: Topic, text: &str) {
        self.0.notices.notice(&Notice { level: Level::Note, topic, text });
    }

    /// Reports a warning.
    pub(crate) fn warn(&self, topic: Topic, text: &str) {
        self.0.notices.notice(&Notice { level: Level::Warning, topic, text });
    }

    /// Reports the beginning of a task.
    pub(crate) fn begin(&self, task: Task) -> Box<dyn TaskProgress> {
        self.0.notices.begin(task)
    }

    /// Reads a JSON file in the cache folder. Returns `None` if the file does not exist or is malformed.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.settings().cache_folder.as_ref()?.join(name);
        serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
    }

    /// Writes a JSON file in the cache folder and replaces an older one. Only the first failure is reported, as a warning.
    pub fn write(&self, name: &str, content: &impl Serialize) {
        if let Err(problem) = self.replace(name, content) {
            self.0.unsaved.call_once(|| self.warn(Topic::Machine, &problem));
        }
    }

    fn replace(&self, name: &str, content: &impl Serialize) -> Result<(), String> {
        let what = "what was measured is not saved and will be measured again";
        let folder = self.settings().cache_folder.as_ref();
        let folder =
            folder.ok_or_else(|| format!("{what}: neither XDG_CACHE_HOME nor HOME is a folder"))?;
        let file = folder.join(name);
        // renaming is atomic: concurrent readers see the old file or the new one
        let new = file.with_extension(format!("{}.new", std::process::id()));
        let written = std::fs::create_dir_all(folder)
            .and_then(|()| Ok(serde_json::to_string_pretty(content)?))
            .and_then(|text| std::fs::write(&new, text))
            .and_then(|()| std::fs::rename(&new, &file));
        written.map_err(|why| {
            // the file may not exist
            let _ = std::fs::remove_file(&new);
            format!("{what}: could not write {}: {why}", shown(&file))
        })
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("settings", self.settings()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;

    use super::*;

    struct Texts(Arc<Mutex<Vec<String>>>);

    impl Notices for Texts {
        fn notice(&self, notice: &Notice<'_>) {
            assert_eq!(notice.level, Level::Warning);
            self.0.lock().unwrap().push(notice.text.to_owned());
        }
    }

    #[test]
    fn files_are_read_as_they_were_written_and_one_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let texts = Arc::default();
        let with = |cache_folder: Option<PathBuf>| {
            Runtime::new(
                Settings { cache_folder, ..Settings::default() },
                Texts(Arc::clone(&texts)),
            )
        };
        let runtime = with(Some(folder.path().join("below")));
        assert_eq!(runtime.read::<Vec<u32>>("a.json"), None);
        runtime.write("a.json", &[1, 2]);
        runtime.write("a.json", &[3]);
        assert_eq!(runtime.read::<Vec<u32>>("a.json"), Some(vec![3]));
        assert_eq!(folder.path().join("below").read_dir().unwrap().count(), 1);
        assert!(texts.lock().unwrap().is_empty());
        let nowhere = with(None);
        nowhere.write("a.json", &[1]);
        nowhere.write("a.json", &[1]);
        assert_eq!(texts.lock().unwrap().len(), 1, "told once");
    }
}
