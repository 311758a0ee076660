//! [`ServedModel`]: a loaded model, and how replies are made with it where a request does not say.

use std::sync::Arc;
use std::time::Duration;

use engine::{ModelFormat, SamplerOptions};
use grammar::FormChecker;
use program::{CacheOptions, Model};

use crate::offers::{ModelAbout, ModelDetails, ModelUse};
use crate::reader::TextReading;
use crate::record::RequestRecord;
use crate::wire::{ReplyLimits, ReplySource};

/// A model that is served.
pub struct ServedModel {
    /// Its name in requests and replies.
    pub name: String,
    /// When its file was made, in seconds since 1970.
    pub created: u64,
    /// Its architecture.
    pub family: String,
    /// Bytes of its file.
    pub bytes: u64,
    /// Metadata from its file.
    pub details: Arc<ModelDetails>,
    /// Bytes of memory that it takes beside its caches.
    pub memory: u64,
    /// What computes.
    pub model: Arc<dyn Model>,
    /// Whether tokens may be guessed ahead: the executor gives the same bits for any cut of a text.
    pub drafts: bool,
    /// Most bytes for the texts of a key in which guesses are found.
    pub draft_memory: u64,
    /// Between texts and tokens.
    pub format: Arc<ModelFormat>,
    /// The cache of a conversation.
    pub cache: CacheOptions,
    /// Most tokens of a prompt per pass.
    pub chunk: usize,
    /// How tokens are chosen unless a request says so.
    pub sampler: SamplerOptions,
    /// Replies side by side; at least 1.
    pub parallel: usize,
    /// Conversations that may go on, those of replies among them: more than run side by side where what rests goes to disk
    /// when others want the room.
    pub slots: usize,
    /// Requests that may wait for one of these to end.
    pub waiting: usize,
    /// How long a reply keeps its slot while others wait and its client does not read it, or has more slots than its share.
    pub slot_patience: Duration,
    /// What it says of texts as a whole, if that is what it does; else it writes replies.
    pub reads: Option<TextReading>,
    /// What bounds it on this machine, where that is known.
    pub limits: Option<Arc<dyn ReplyLimits>>,
    /// What compiles doubtful forms in a process of their own first, if anything does.
    pub form_checker: Option<Arc<FormChecker>>,
}

impl ServedModel {
    /// How many conversations may go on: never fewer than run.
    pub(crate) fn n_slots(&self) -> usize {
        self.slots.max(self.parallel).max(1)
    }

    /// What is known of it also where it is not loaded.
    pub(crate) fn about(&self) -> ModelAbout {
        ModelAbout {
            name: self.name.clone(),
            aliases: Vec::new(),
            created: self.created,
            family: self.family.clone(),
            bytes: self.bytes,
            context: self.cache.capacity,
            does: match &self.reads {
                None => ModelUse::Writes,
                Some(reads) if reads.ranks => ModelUse::Ranks,
                Some(_) => ModelUse::Embeds,
            },
            details: Arc::clone(&self.details),
        }
    }

    /// Returns the facts about the model and the request that writers of replies need.
    pub(crate) fn source(&self, record: &RequestRecord) -> ReplySource {
        ReplySource {
            load: record.load_time(),
            model: self.name.clone(),
            format: Arc::clone(&self.format),
            limits: self.limits.clone(),
            capacity: self.cache.capacity,
        }
    }
}
