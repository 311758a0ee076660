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
    /// Other names of it in requests.
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
    /// What its file says of it.
    pub details: Arc<ModelDetails>,
}

impl ModelAbout {
    /// All its names, that of replies first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.aliases.iter().map(|alias| &**alias))
    }
}

/// What the file of a model says of it, for programs that show or choose models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelDetails {
    /// Number of weights; 0: not known.
    pub parameters: u64,
    /// Type of the weights: `Q4_K_M`.
    pub quantization: String,
    /// Source of the chat template; empty if there is none.
    pub template: String,
    /// Name or text of the licence.
    pub license: String,
    /// Sampler settings that the file recommends, by their names, as text.
    pub settings: Vec<(String, String)>,
    /// Whether the template lets the model think before it answers.
    pub thinks: bool,
    /// Whether the vocabulary has marks for texts with a hole.
    pub fills_holes: bool,
    /// Metadata by its keys; null for lists, which are long.
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
