//! Which text of a prompt is the template's own.
//!
//! Control tokens in the template's text and string constants are replaced by marks before rendering, and only marks
//! become control tokens afterwards. Messages are rendered as they are, so a template's logic on them (`split`, `trim`,
//! `startswith`) works as ever; yet whatever they say, whole or pieced together from several, stays text.
//!
//! A mark is a number between two sentinels. The sentinel is a private-use character that occurs in no message.
//! Some templates write a control token around a role: `'<|' + message.role + '|>'`. The two ends of such tokens get
//! marks without width, and what stands between them counts if it is the role of a message.

use std::borrow::Cow;

use ahash::{AHashMap, AHashSet};
use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};

use crate::{Error, Result, Span, Tokenizer};

/// Control tokens to look for in a template.
pub(crate) struct Controls {
    /// Finds them; `None` if there are none.
    search: Option<AhoCorasick>,
    texts: Vec<String>,
    index: AHashMap<String, usize>,
    around: AroundRoles,
}

/// Most control tokens named after a role, each counted once for each place of a role in it, and most bytes of them.
/// Real vocabularies have at most a few dozen; each is compared with what stands around the roles of a prompt.
const MAX_AROUND: usize = 256;
const MAX_AROUND_BYTES: usize = 16 << 10;

/// Roles that control tokens are named after.
const ROLES: &[&str] = &["system", "user", "assistant", "tool", "developer"];

impl Controls {
    /// Those of a vocabulary.
    pub(crate) fn new(tokenizer: &Tokenizer) -> Result<Controls> {
        let mut seen = AHashSet::new();
        let texts = tokenizer
            .controls()
            .map(|(_, text)| text.to_owned())
            .filter(|text| seen.insert(text.clone()));
        Controls::of(texts.collect())
    }

    /// Those of no vocabulary.
    pub(super) fn none() -> Result<Controls> {
        Controls::of(Vec::new())
    }

    fn of(texts: Vec<String>) -> Result<Controls> {
        let search = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts);
        let search = if texts.is_empty() { None } else { Some(search.map_err(Error::vocabulary)?) };
        let index = texts.iter().cloned().zip(0..).collect();
        let around = AroundRoles::new(&texts)?;
        Ok(Controls { search, texts, index, around })
    }

    /// Marks for one rendering; `inputs` are all texts that are not the template's.
    pub(super) fn marks<'c>(&'c self, inputs: &[Cow<'_, str>]) -> Result<Marks<'c>> {
        let private = |c: char| ('\u{100000}'..='\u{10FFFD}').contains(&c);
        let used: AHashSet<char> =
            inputs.iter().flat_map(|text| text.chars()).filter(|c| private(*c)).collect();
        let sentinel = ('\u{100000}'..='\u{10FFFD}')
            .rev()
            .find(|c| !used.contains(c))
            .ok_or_else(|| Error::template(None, "the messages use every private character"))?;
        Ok(Marks { controls: self, sentinel })
    }
}

/// What stands before and behind the role in control tokens named after one.
struct AroundRoles {
    pairs: Vec<(String, String)>,
    /// Finds the end of a pair where a text begins; `None` without pairs.
    closes: Option<AhoCorasick>,
    /// Finds the beginning of a pair, backwards, where a text ends backwards.
    opens: Option<AhoCorasick>,
    longest: usize,
}

impl AroundRoles {
    fn new(controls: &[String]) -> Result<AroundRoles> {
        let mut pairs = AHashSet::new();
        let mut bytes = 0;
        for text in controls {
            let lower = text.to_ascii_lowercase();
            for (at, role) in ROLES.iter().flat_map(|role| lower.match_indices(role)) {
                let (open, close) = (&text[..at], &text[at + role.len()..]);
                if open.is_empty() || close.is_empty() || !pairs.insert((open, close)) {
                    continue;
                }
                bytes += open.len() + close.len();
                if pairs.len() > MAX_AROUND || bytes > MAX_AROUND_BYTES {
                    return Err(Error::vocabulary(format!(
                        "control tokens name roles in more than {MAX_AROUND} ways or {MAX_AROUND_BYTES} bytes: \
                         expected a few"
                    )));
                }
            }
        }
        let mut pairs: Vec<(String, String)> =
            pairs.into_iter().map(|(open, close)| (open.to_owned(), close.to_owned())).collect();
        // Longest first, so that the outcome does not hang on the order of a set.
        pairs.sort_unstable_by(|a, b| {
            let key =
                |(open, close): &(String, String)| std::cmp::Reverse((open.len(), close.len()));
            (key(a), a).cmp(&(key(b), b))
        });
        let anchored = |ends: Vec<Vec<u8>>| match ends.is_empty() {
            true => Ok(None),
            false => AhoCorasick::builder()
                .start_kind(StartKind::Anchored)
                .build(ends)
                .map(Some)
                .map_err(Error::vocabulary),
        };
        let backwards = |text: &String| text.bytes().rev().collect();
        Ok(AroundRoles {
            closes: anchored(pairs.iter().map(|(_, close)| close.clone().into_bytes()).collect())?,
            opens: anchored(pairs.iter().map(|(open, _)| backwards(open)).collect())?,
            longest: pairs
                .iter()
                .map(|(open, close)| open.len().max(close.len()))
                .max()
                .unwrap_or(0),
            pairs,
        })
    }

    /// Whether `text` begins with the end of a pair, and whether it ends with the beginning of one.
    fn touch(&self, text: &str) -> (bool, bool) {
        let at_start = |search: &Option<AhoCorasick>, bytes: &[u8]| {
            let input = Input::new(bytes).anchored(Anchored::Yes);
            search.as_ref().is_some_and(|search| search.find(input).is_some())
        };
        let bytes = text.as_bytes();
        let last: Vec<u8> = bytes.iter().rev().take(self.longest).copied().collect();
        (
            at_start(&self.closes, &bytes[..bytes.len().min(self.longest)]),
            at_start(&self.opens, &last),
        )
    }
}

/// Puts marks into a template's text and finds them in the prompt.
pub(super) struct Marks<'c> {
    controls: &'c Controls,
    sentinel: char,
}

impl<'c> Marks<'c> {
    /// A text of the template with marks.
    pub(super) fn mark(&self, text: &str) -> String {
        let s = self.sentinel;
        let (closes, opens) = self.controls.around.touch(text);
        let mut marked = String::with_capacity(text.len());
        if closes {
            marked.extend([s, '>']);
        }
        let mut done = 0;
        for found in self.controls.search.iter().flat_map(|search| search.find_iter(text)) {
            marked.push_str(&text[done..found.start()]);
            marked.push_str(&format!("{s}{}{s}", found.pattern().as_usize()));
            done = found.end();
        }
        marked.push_str(&text[done..]);
        if opens {
            marked.extend([s, '<']);
        }
        marked
    }

    /// The prompt as spans, without marks.
    pub(super) fn spans(&self, prompt: &str) -> Vec<Span> {
        let mut spans = Segments::default();
        // Where in the plain text so far a control token around a role may have its first end.
        let mut open = None;
        let mut rest = prompt;
        while let Some(at) = rest.find(self.sentinel) {
            spans.plain.push_str(&rest[..at]);
            rest = &rest[at + self.sentinel.len_utf8()..];
            if let Some(after) = rest.strip_prefix('<') {
                open = Some(spans.plain.len());
                rest = after;
            } else if let Some(after) = rest.strip_prefix('>') {
                rest = after;
                if let Some((start, control, close)) =
                    open.take().and_then(|at| self.around_role(&spans.plain, at, after))
                {
                    spans.plain.truncate(start);
                    spans.control(control);
                    rest = &after[close..];
                }
            } else {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                if let Some(control) =
                    rest[..digits].parse().ok().and_then(|i: usize| self.controls.texts.get(i))
                {
                    spans.control(control);
                    open = None;
                }
                rest = rest[digits..].strip_prefix(self.sentinel).unwrap_or(&rest[digits..]);
            }
        }
        spans.plain.push_str(rest);
        spans.flush();
        spans.list
    }

    /// The control token whose first end stops at `at` in `plain`, whose role is the rest of `plain`, and whose last end
    /// starts `after`: where it starts in `plain`, its text, and the length of its last end.
    fn around_role(&self, plain: &str, at: usize, after: &str) -> Option<(usize, &'c str, usize)> {
        let role = plain.get(at..)?;
        if !ROLES.iter().any(|known| known.eq_ignore_ascii_case(role)) {
            return None;
        }
        self.controls.around.pairs.iter().find_map(|(open, close)| {
            if !plain[..at].ends_with(open.as_str()) || !after.starts_with(close.as_str()) {
                return None;
            }
            let index = *self.controls.index.get(&format!("{open}{role}{close}"))?;
            Some((at - open.len(), self.controls.texts[index].as_str(), close.len()))
        })
    }
}

#[derive(Default)]
struct Segments {
    list: Vec<Span>,
    plain: String,
}

impl Segments {
    fn flush(&mut self) {
        if !self.plain.is_empty() {
            self.list.push(Span { text: std::mem::take(&mut self.plain), special: false });
        }
    }

    fn control(&mut self, text: &str) {
        self.flush();
        self.list.push(Span { text: text.to_owned(), special: true });
    }
}
