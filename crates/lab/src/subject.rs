//! A model file to be measured.

use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use console::output::shown;
use console::units;
use gguf::Gguf;
use models::GgufWeights;
use program::{Executor, Model, Program};

/// An open file and the program it holds.
pub(super) struct Subject {
    /// The file's name.
    pub(super) file: String,
    pub(super) gguf: Gguf,
    pub(super) program: Arc<Program>,
    /// Weights that memory holds, in elements.
    pub(super) parameters: u64,
}

/// No file at this path.
#[derive(Debug)]
pub(super) struct NoModel(PathBuf);

impl Display for NoModel {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "no model at {}", shown(&self.0))
    }
}

impl std::error::Error for NoModel {}

impl Subject {
    /// Open a GGUF file, all its shards.
    ///
    /// # Errors
    /// [`NoModel`], or what is wrong with the file.
    pub(super) fn open(path: &Path) -> anyhow::Result<Subject> {
        if !path.is_file() {
            return Err(NoModel(path.to_owned()).into());
        }
        let gguf = Gguf::open(path).with_context(|| format!("opening {}", shown(path)))?;
        let program = models::load(&gguf).context("reading the model")?.program;
        let weights = program.weights.iter().map(|spec| spec.rows as u64 * spec.cols as u64);
        let parameters = weights.sum();
        let file = path.file_name().map_or_else(String::new, |name| shown(Path::new(name)));
        Ok(Subject { file, gguf, program, parameters })
    }

    /// Give it to an executor.
    ///
    /// # Errors
    /// Those of [`Executor::load`].
    pub(super) fn load(&self, executor: &dyn Executor) -> anyhow::Result<Box<dyn Model>> {
        let program = Arc::clone(&self.program);
        let loaded = executor.load(program, &GgufWeights(&self.gguf), &mut |_| ());
        loaded.with_context(|| format!("loading {}", self.file))
    }

    /// `demo.gguf, 4.60 M parameters`.
    pub(super) fn title(&self) -> String {
        format!("{}, {} parameters", self.file, units::count(self.parameters))
    }
}
