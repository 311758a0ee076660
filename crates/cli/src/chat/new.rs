//! [`Chat::new`]: creates a chat without messages.

use std::sync::Arc;

use engine::{Conversation, ModelFormat, Toolbox};

use super::Chat;
use crate::interrupt::Interrupt;
use crate::sampling::Settings;
use crate::session::Opened;

/// A model that is ready to reply, and the settings of a new chat with it.
pub(crate) struct NewChat {
    /// Empty session of the model.
    pub(crate) opened: Opened,
    /// Tokenizer and chat template of the model.
    pub(crate) format: ModelFormat,
    /// Settings of replies.
    pub(crate) settings: Settings,
    /// State of Ctrl-C, shared with its handler.
    pub(crate) interrupt: Interrupt,
    /// Name of the model, and its name as given on the command line.
    pub(crate) model: (String, String),
    /// Description of the model's file, for `/show info`.
    pub(crate) info: String,
    /// Source of the chat template, for `/show template`.
    pub(crate) template: Option<String>,
}

impl Chat {
    /// Creates a chat without messages, which is not stored on disk.
    pub(crate) fn new(new: NewChat) -> Chat {
        let NewChat { opened, format, settings, interrupt, model, info, template } = new;
        let Opened { session, limits, trained, short_context, cache, drafters, executor, gpu } =
            opened;
        let mut conversation = Conversation::new(session, Arc::new(format));
        conversation.set_drafters(drafters);
        let tools = settings.tools.clone();
        conversation.set_tools(tools.map(|tools| tools as Arc<dyn Toolbox>));
        Chat {
            conversation,
            settings,
            interrupt,
            system: None,
            info,
            template,
            limits,
            trained,
            short_context,
            cache,
            executor,
            gpu,
            history: true,
            saved: None,
            read: String::new(),
            model,
            parameters: Vec::new(),
            recorder: None,
            report: None,
            draft: None,
            edits: false,
            nearly_full: false,
        }
    }
}
