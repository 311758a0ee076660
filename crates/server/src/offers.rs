//! Models that can be had: what is known of each before it is loaded, and what loads it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::ServedModel;
use crate::pulls::PullModel;

/// What is known of a model, loaded or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAbout {
    /// Its name in requests and replies.
    pub name: String,
    /// Alternative names of the model in requests.
    pub aliases: Vec<String>,
    /// When its file was made, in seconds since 1970.
    pub created: u64,
    /// Its architecture.
    pub family: String,
    /// Bytes of its file.
    pub bytes: u64,
    /// Tokens that a conversation may have.
    pub context: usize,
    /// What it is for.
    pub does: ModelUse,
    /// Metadata from its file.
    pub details: Arc<ModelDetails>,
}

impl ModelAbout {
    /// Returns all names of the model, first the one that replies use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.aliases.iter().map(|alias| &**alias))
    }
}

/// Metadata from the file of a model, for programs that show or choose models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelDetails {
    /// Number of weights; 0 if unknown.
    pub parameters: u64,
    /// Type of the weights, such as `Q4_K_M`.
    pub quantization: String,
    /// Source of the chat template; empty if there is none.
    pub template: String,
    /// Name or text of the licence.
    pub license: String,
    /// Sampler settings that the file recommends: names and values, as text.
    pub settings: Vec<(String, String)>,
    /// Whether the template supports thinking before the answer.
    pub thinks: bool,
    /// Whether the vocabulary has the special tokens for infilling.
    pub fills_holes: bool,
    /// Metadata by key; lists, which are long, are null.
    pub metadata: Map<String, Value>,
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelUse {
    /// It writes replies.
    Writes,
    /// It makes vectors of texts.
    Embeds,
    /// It says how well texts answer a question.
    Ranks,
}

/// Loads a model.
pub type LoadModel = dyn Fn() -> std::result::Result<ServedModel, LoadFailure> + Send + Sync;

/// A model that can be had.
pub struct OfferedModel {
    /// What is known of it.
    pub about: ModelAbout,
    /// Loads it.
    pub load: Box<LoadModel>,
}

/// What is served for as long as a server runs.
pub struct Offers {
    /// Models, of which the first is meant where nobody says.
    pub models: Vec<OfferedModel>,
    /// How long one stays that nobody asks for; `None`: until another one needs its memory.
    pub keep: Option<Duration>,
    /// Brings more of them here; `None`: nobody may ask for that.
    pub pull: Option<Box<PullModel>>,
}

/// Why a model is not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadFailure {
    /// Memory has no room for it: it may have if other models go.
    #[error("{problem}")]
    NoMemory {
        /// What it needs, and what there is.
        problem: String,
        /// Bytes that are missing.
        missing: u64,
    },
    /// Something else, that will be the same again.
    #[error("{0}")]
    Failed(String),
}
