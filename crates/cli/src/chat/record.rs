//! Stores the conversation on disk: each write appends the new messages to its file.

use std::path::Path;

use chats::{ChatFile, ChatStore, Entry, Tree};
use engine::Message;

use crate::{ui, units};

/// Writes a conversation into a store, message by message.
#[derive(Debug)]
pub(crate) struct Recorder {
    store: ChatStore,
    /// File of the conversation, created with the first message.
    file: Option<ChatFile>,
    /// Model, as named on the command line.
    model: String,
    system: Option<String>,
    /// Identifier of the entry that the first message of `known` follows.
    base: Option<String>,
    /// Messages of the conversation that are in the file, with their identifiers.
    known: Vec<(String, Message)>,
    /// Identifier of the message that the file records as the end of the conversation.
    head: Option<String>,
    failed: bool,
}

/// A conversation from a store.
pub(crate) struct Stored {
    /// Messages, with the system message first if there is one.
    pub(crate) messages: Vec<Message>,
    /// Model that was used last.
    pub(crate) model: Option<String>,
    /// Time at which the last message was written.
    pub(crate) time: String,
    recorder: Recorder,
}

impl Recorder {
    /// Creates a recorder for a new conversation.
    pub(crate) fn new(store: ChatStore) -> Recorder {
        Recorder {
            store,
            file: None,
            model: String::new(),
            system: None,
            base: None,
            known: Vec::new(),
            head: None,
            failed: false,
        }
    }

    /// Sets the model to store with the following messages.
    pub(crate) fn set_model(&mut self, model: impl Into<String>) {
        self.model = model.into();
    }

    /// Returns the path of the file, once it exists.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(ChatFile::path)
    }

    /// Starts another conversation with the next message.
    pub(crate) fn restart(&mut self) {
        let (store, model) = (self.store.clone(), std::mem::take(&mut self.model));
        *self = Recorder { model, failed: self.failed, ..Recorder::new(store) };
    }

    /// Appends the messages that the file does not have yet. A store that cannot be written to is reported once.
    pub(crate) fn write(&mut self, messages: &[Message]) {
        if self.failed {
            return;
        }
        if let Err(error) = self.append(messages) {
            self.failed = true;
            let error = gguf::escape(error.to_string(), 200);
            ui::warn(&format!("this conversation is not stored: {error}"));
        }
    }

    fn append(&mut self, messages: &[Message]) -> chats::Result<()> {
        let (system, messages) = match messages.split_first() {
            Some((first, rest)) if first.role == "system" => (Some(&first.content), rest),
            _ => (None, messages),
        };
        if self.file.is_none() {
            if messages.is_empty() {
                return Ok(());
            }
            self.file = Some(self.store.begin()?);
        }
        if system != self.system.as_ref() {
            // messages after another system message form another branch
            self.known.clear();
            self.base = None;
            if let Some(text) = system {
                self.base = Some(self.line(&Message::new("system", text.clone()), None)?);
            }
            self.system = system.cloned();
        }
        let (dropped, same) = overlap(&self.known, messages);
        if let Some((id, _)) = dropped.checked_sub(1).and_then(|last| self.known.get(last)) {
            self.base = Some(id.clone());
        }
        self.known.drain(..dropped);
        self.known.truncate(same);
        let mut end = self.known.last().map(|(id, _)| id.clone()).or_else(|| self.base.clone());
        for message in &messages[same..] {
            let id = self.line(message, end.take())?;
            self.known.push((id.clone(), message.clone()));
            end = Some(id);
        }
        if end != self.head {
            if let Some(file) = &mut self.file {
                file.set_head(end.as_deref())?;
            }
            self.head = end;
        }
        Ok(())
    }

    fn line(&mut self, message: &Message, parent: Option<String>) -> chats::Result<String> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.store.begin()?),
        };
        let model = Some(self.model.clone()).filter(|model| !model.is_empty());
        let id = file.append(Entry { parent, model, ..entry_of(message) })?;
        self.head = Some(id.clone());
        Ok(id)
    }
}

/// Returns how many messages at the start of `known` were dropped, and how many of the following ones are unchanged.
fn overlap(known: &[(String, Message)], messages: &[Message]) -> (usize, usize) {
    let same = |first: usize| {
        let pairs = known[first..].iter().zip(messages);
        pairs.take_while(|((_, one), other)| one == *other).count()
    };
    let mut best = (0, same(0));
    for first in 1..known.len() {
        if best.1 >= known.len() - first {
            break;
        }
        let n = same(first);
        if n > best.1 {
            best = (first, n);
        }
    }
    best
}

/// Returns the conversation of a store that was written to last; `None` if the store is empty.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn last(store: ChatStore) -> chats::Result<Option<Stored>> {
    let Some(path) = store.last()? else { return Ok(None) };
    match store.open(&path) {
        Ok((file, tree)) => Ok(Some(Stored::new(store, Some(file), &tree))),
        Err(chats::Error::InUse { path }) => {
            ui::note("the last conversation is open in another terminal: this is a copy of it");
            let tree = store.read(&path)?;
            Ok(Some(Stored::new(store, None, &tree)))
        }
        Err(error) => Err(error),
    }
}

impl Stored {
    fn new(store: ChatStore, file: Option<ChatFile>, tree: &Tree) -> Stored {
        let path = tree.path();
        if tree.left_out() > 0 {
            let lines = units::counted(tree.left_out(), "line");
            ui::warn(&format!("{lines} of the stored conversation cannot be read"));
        }
        let mut recorder = Recorder::new(store);
        let mut messages: Vec<Message> = path.iter().map(|entry| message_of(entry)).collect();
        let ids = path.iter().map(|entry| entry.id.clone());
        let mut known: Vec<_> = ids.zip(messages.iter().cloned()).collect();
        // this program writes a system message only at the start; any others are left out
        messages.retain({
            let mut first = true;
            move |message| std::mem::take(&mut first) || message.role != "system"
        });
        if file.is_some() {
            recorder.head = path.last().map(|entry| entry.id.clone());
            if known.first().is_some_and(|(_, message)| message.role == "system") {
                let (id, message) = known.remove(0);
                (recorder.base, recorder.system) = (Some(id), Some(message.content));
            }
            known.retain(|(_, message)| message.role != "system");
            recorder.known = known;
        }
        recorder.file = file;
        let last = path.last();
        Stored {
            messages,
            model: path.iter().rev().find_map(|entry| entry.model.clone()),
            time: last.map(|entry| entry.time.clone()).unwrap_or_default(),
            recorder,
        }
    }

    /// Returns the recorder that continues this conversation.
    pub(crate) fn into_recorder(self) -> Recorder {
        self.recorder
    }
}

fn entry_of(message: &Message) -> Entry {
    let Message { role, content, tool_calls, tool_call_id, name, thoughts, written } =
        message.clone();
    let tool_calls = tool_calls.iter().map(server::call_json).collect();
    Entry { role, content, tool_calls, tool_call_id, name, thoughts, written, ..Entry::default() }
}

fn message_of(entry: &Entry) -> Message {
    let Entry { role, content, tool_calls, tool_call_id, name, thoughts, written, .. } =
        entry.clone();
    let tool_calls = tool_calls.iter().filter_map(server::call_of_json).collect();
    Message { role, content, tool_calls, tool_call_id, name, thoughts, written }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<Message> {
        let of = |word: &str| {
            let role = match &word[..1] {
                "s" => "system",
                "u" => "user",
                _ => "assistant",
            };
            Message::new(role, word)
        };
        text.split_whitespace().map(of).collect()
    }

    fn path(store: &ChatStore) -> String {
        let Some(path) = store.last().unwrap() else { return "none".into() };
        let tree = store.read(&path).unwrap();
        assert_eq!(tree.left_out(), 0);
        tree.path().iter().map(|entry| &*entry.content).collect::<Vec<_>>().join(" ")
    }

    /// After each step, the file holds the present conversation, and no message is written twice.
    #[test]
    fn the_file_follows_the_conversation() {
        let folder = tempfile::tempdir().unwrap();
        let store = ChatStore::new(folder.path().join("chats"));
        let mut recorder = Recorder::new(store.clone());
        recorder.set_model("m");
        for (now, stored, entries) in [
            ("", "none", 0),
            ("s1", "none", 0),
            ("s1 u1", "s1 u1", 2),
            ("s1", "s1", 2),
            ("s1 u2 a2", "s1 u2 a2", 4),
            // another reply, another message, a message taken back
            ("s1 u2 a3", "s1 u2 a3", 5),
            ("s1 u2 a3 u3 a4", "s1 u2 a3 u3 a4", 7),
            ("s1 u2 a3", "s1 u2 a3", 7),
            ("s1 u2 a3 u4", "s1 u2 a3 u4", 8),
            // the conversation drops its oldest messages; the file keeps them
            ("s1 u4 a5", "s1 u2 a3 u4 a5", 9),
            ("s1 u4 a6", "s1 u2 a3 u4 a6", 10),
            ("s2 u4 a6", "s2 u4 a6", 13),
            ("u4 a6", "u4 a6", 15),
        ] {
            recorder.write(&messages(now));
            assert_eq!(path(&store), stored, "{now}");
            if let Some(path) = recorder.path() {
                let tree = store.read(path).unwrap();
                assert_eq!(tree.entries().len(), entries, "{now}");
                assert!(tree.entries().iter().all(|entry| entry.model.as_deref() == Some("m")));
            }
        }
    }

    #[test]
    fn a_stored_conversation_goes_on_in_its_file_or_in_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let store = ChatStore::new(folder.path());
        assert!(last(store.clone()).unwrap().is_none());
        let mut recorder = Recorder::new(store.clone());
        recorder.write(&messages("s1 u1 a1"));
        // the file is in use: the copy creates its own file with its first message
        let copy = last(store.clone()).unwrap().unwrap();
        assert_eq!(copy.messages, messages("s1 u1 a1"));
        let mut copy = copy.into_recorder();
        assert_eq!(copy.path(), None);
        copy.write(&messages("s1 u1 a1 u2"));
        assert_ne!(copy.path(), recorder.path());
        drop(copy);
        drop(recorder);
        let stored = last(store.clone()).unwrap().unwrap();
        assert_eq!(stored.messages, messages("s1 u1 a1 u2"));
        let mut recorder = stored.into_recorder();
        recorder.write(&messages("s1 u1 a1 u2 a2"));
        let tree = store.read(recorder.path().unwrap()).unwrap();
        assert_eq!(tree.entries().len(), 5);
        let first = recorder.path().unwrap().to_owned();
        recorder.restart();
        recorder.write(&messages("u9"));
        assert_ne!(recorder.path().unwrap(), first);
    }

    #[test]
    fn calls_and_their_results_come_back() {
        let call = engine::ToolCall { id: "c1".into(), name: "f".into(), arguments: "{}".into() };
        let result = Message::result(&call, "42");
        let thoughts = Some("hm".to_owned());
        let asked = Message { tool_calls: vec![call], thoughts, ..Message::new("assistant", "") };
        for message in [asked, result, Message::new("user", "x")] {
            assert_eq!(message_of(&entry_of(&message)), message);
        }
    }
}
