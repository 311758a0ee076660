//! [`Tree`]: the messages of a file, and the message that the conversation continues after.

use std::collections::HashMap;

use crate::entry::{Entry, Line};

/// Largest file that is read, in bytes.
pub const MAX_BYTES: u64 = 256 << 20;

/// Contents of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    entries: Vec<Entry>,
    /// Index of the previous message of each message, which is always smaller than the message's own.
    parents: Vec<Option<usize>>,
    ids: HashMap<String, usize>,
    head: Option<usize>,
    left_out: usize,
}

impl Tree {
    /// Reads any bytes. Skips a message whose parent is not on an earlier line, or whose `id` is already used.
    pub fn read(bytes: &[u8]) -> Tree {
        let mut tree = Tree::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let taken = match Line::parse(line) {
                Some(Line::Entry(entry)) => tree.add(*entry),
                Some(Line::Head(None)) => {
                    tree.head = None;
                    true
                }
                Some(Line::Head(Some(id))) => {
                    let found = tree.ids.get(&id).copied();
                    tree.head = found.or(tree.head);
                    found.is_some()
                }
                None => false,
            };
            tree.left_out += usize::from(!taken);
        }
        tree
    }

    fn add(&mut self, entry: Entry) -> bool {
        let parent = match &entry.parent {
            None => None,
            Some(id) => match self.ids.get(id) {
                Some(at) => Some(*at),
                None => return false,
            },
        };
        if self.ids.contains_key(&entry.id) {
            return false;
        }
        self.head = Some(self.entries.len());
        self.ids.insert(entry.id.clone(), self.entries.len());
        self.entries.push(entry);
        self.parents.push(parent);
        true
    }

    /// Returns all messages in the order in which they were written.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the conversation: from its first message to the message that it continues after.
    pub fn path(&self) -> Vec<&Entry> {
        let mut path: Vec<&Entry> = Vec::new();
        let mut next = self.head;
        while let Some(at) = next {
            path.push(&self.entries[at]);
            next = self.parents[at];
        }
        path.reverse();
        path
    }

    /// Number of lines that were skipped: damaged ones, and an incomplete last line of a process that was killed.
    pub fn left_out(&self) -> usize {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contents(tree: &Tree) -> Vec<&str> {
        tree.path().into_iter().map(|entry| entry.content.as_str()).collect()
    }

    fn line(id: &str, parent: &str, content: &str) -> String {
        let parent = if parent.is_empty() { "null".into() } else { format!("\"{parent}\"") };
        format!(
            "{{\"id\":\"{id}\",\"parent\":{parent},\"role\":\"user\",\"content\":\"{content}\"}}\n"
        )
    }

    #[test]
    fn the_last_message_or_head_ends_the_conversation() {
        let mut text = line("1", "", "a") + &line("2", "1", "b") + &line("3", "1", "c");
        assert_eq!(contents(&Tree::read(text.as_bytes())), ["a", "c"]);
        text += "{\"head\":\"2\"}\n";
        assert_eq!(contents(&Tree::read(text.as_bytes())), ["a", "b"]);
        text += "{\"head\":null}\n";
        assert_eq!(contents(&Tree::read(text.as_bytes())), [""; 0]);
        assert_eq!(Tree::read(text.as_bytes()).left_out(), 0);
    }

    #[test]
    fn damaged_lines_are_left_out() {
        let text = line("1", "", "a")
            + "\n{\"id\":7}\n"
            + "{\"id\":\"x\",\"parent\":null,\"role\":\"root\"}\n"
            + &line("2", "absent", "b")
            + &line("1", "", "taken")
            + "{\"head\":\"absent\"}\n"
            + &line("3", "3", "its own parent")
            + "{\"id\":\"4\",\"parent\":\"1\",\"role\":\"us";
        let tree = Tree::read(text.as_bytes());
        assert_eq!((contents(&tree), tree.left_out()), (vec!["a"], 7));
    }

    /// Generates valid lines, damaged lines, and bytes that are not lines.
    fn lines() -> impl Strategy<Value = Vec<u8>> {
        let id = || prop::sample::select(vec!["1", "2", "3", "4", ""]);
        let message =
            (id(), id(), "[a-z]{0,3}").prop_map(|(id, parent, text)| line(id, parent, &text));
        let head = id().prop_map(|id| format!("{{\"head\":\"{id}\"}}\n"));
        let any = prop::collection::vec(any::<u8>(), 0..20);
        let one = prop_oneof![
            4 => message.prop_map(String::into_bytes),
            1 => head.prop_map(String::into_bytes),
            1 => any,
            1 => Just(b"\n[[[[{\"id\":\n".to_vec()),
        ];
        prop::collection::vec(one, 0..20).prop_map(|lines| lines.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_tree(bytes in lines(), cut in 0_usize..400) {
            let whole = Tree::read(&bytes);
            for (at, entry) in whole.entries().iter().enumerate() {
                let parent = whole.parents[at];
                prop_assert!(parent.is_none_or(|parent| parent < at));
                prop_assert_eq!(parent.map(|at| &whole.entries[at].id), entry.parent.as_ref());
            }
            let path = whole.path();
            prop_assert!(path.windows(2).all(|two| two[1].parent.as_ref() == Some(&two[0].id)));
            prop_assert!(path.first().is_none_or(|first| first.parent.is_none()));
            // a truncated file yields a prefix of the messages of the whole file
            let part = Tree::read(&bytes[..cut.min(bytes.len())]);
            prop_assert!(whole.entries().starts_with(part.entries()));
        }
    }
}
