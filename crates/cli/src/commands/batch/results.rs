//! The file of results: a line for each line of the batch, in its order, so that what is there says where to go on.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use engine::Completion;
use serde_json::{Value, json};
use server::{OpenAiEndpoint, OpenAiReply, ReplySource};

use super::request::{BatchRequest, LineKey, Refusal, Shape};
use crate::completion;
use crate::output::OutputArgs;

/// Maximum number of new results of changed lines in memory. When it is reached, they are written to the file, so that a process that
/// is killed loses at most this many.
const MOST_RENEWED: usize = 32;

/// A file that grows by whole lines.
pub(super) struct Results {
    path: PathBuf,
    file: File,
    /// Of each line of the batch.
    keys: Vec<LineKey>,
    /// Lines that it holds.
    done: usize,
    /// Of these, refused ones.
    pub(super) failed: usize,
    /// Lines in the file whose requests have changed since they were answered, in ascending order. Their results are replaced.
    changed: Vec<usize>,
    /// New results of changed lines that are not in the file yet.
    renewed: BTreeMap<usize, Value>,
}

impl Results {
    /// Open or make the file, and drop the half of a line that a killed process left. `keys`: of each line of the batch.
    ///
    /// The result of a line that has changed will be replaced. If most results belong to other requests, the file is rejected as
    /// the results of another batch.
    ///
    /// # Errors
    /// The file system's, and in words: results of another batch or model.
    pub(super) fn open(path: &Path, keys: Vec<LineKey>) -> io::Result<Result<Results, String>> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let (mut end, mut done, mut failed) = (0, 0, 0);
        let (mut changed, mut replies_lost) = (Vec::new(), Vec::new());
        let mut reader = BufReader::new(&mut file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let n = reader.read_until(b'\n', &mut line)?;
            if n == 0 || (line.last() != Some(&b'\n') && is_torn(&line)) {
                break;
            }
            let value: Option<Value> = serde_json::from_slice(&line).ok();
            let value = value.filter(is_result);
            let of = keys.get(done).zip(value.as_ref()).map(|(key, value)| origin(value, key));
            let failure = value.as_ref().is_some_and(is_failure);
            match of {
                Some(Origin::Line) => failed += usize::from(failure),
                Some(Origin::OtherLine) => {
                    changed.push(done);
                    // errors may be replaced, however many they are
                    replies_lost.extend((!failure).then_some(done));
                }
                Some(Origin::OtherModel) => {
                    return Ok(Err(refused(done, "is the result of another model")));
                }
                Some(Origin::Unknown) | None => {
                    return Ok(Err(refused(done, "is no result of this batch")));
                }
            }
            end += n as u64;
            done += 1;
        }
        if let Some(first) =
            replies_lost.first().filter(|_| replies_lost.len() > done - changed.len())
        {
            return Ok(Err(refused(*first, "is the result of another request")));
        }
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        let (path, renewed) = (path.to_owned(), BTreeMap::new());
        Ok(Ok(Results { path, file, keys, done, failed, changed, renewed }))
    }

    /// Number of lines whose results are in the file.
    pub(super) fn answered(&self) -> usize {
        self.done - self.changed.len()
    }

    /// Lines that have changed since they were answered, from 0.
    pub(super) fn changed(&self) -> &[usize] {
        &self.changed
    }

    /// Lines without a result, from 0: those that have changed, then those behind the end of the file.
    pub(super) fn missing(&self) -> Vec<usize> {
        self.changed.iter().copied().chain(self.done..self.keys.len()).collect()
    }

    /// Add the result of a line; they come in the order of [`missing`](Self::missing). It is written when this returns, except
    /// for changed lines: their results replace the old ones several at a time, or by [`settle`](Self::settle).
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn push(&mut self, number: usize, mut line: Value) -> io::Result<()> {
        if let Some(key) = self.keys.get(number) {
            let tag = format!("{}_{}", key.digest, key.model);
            match line.pointer_mut("/response/request_id") {
                Some(id) => *id = format!("req_{}_{tag}", number + 1).into(),
                None => line["request"] = tag.into(),
            }
        }
        self.failed += usize::from(is_failure(&line));
        if number < self.done {
            self.renewed.insert(number, line);
            let is_due =
                self.renewed.len() == self.changed.len() || self.renewed.len() == MOST_RENEWED;
            return if is_due { self.settle() } else { Ok(()) };
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.done += 1;
        Ok(())
    }

    /// Replaces the results of changed lines in the file with the new ones. The old file stays until the new one is complete.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        if self.renewed.is_empty() {
            return Ok(());
        }
        let told = |error: anyhow::Error| io::Error::other(format!("{error:#}"));
        let mut old = BufReader::new(File::open(&self.path)?);
        let mut new = OutputArgs { force: true }.create(&self.path).map_err(told)?;
        let mut line = Vec::new();
        for number in 0..self.done {
            line.clear();
            old.read_until(b'\n', &mut line)?;
            match self.renewed.get(&number) {
                Some(renewed) => new.write_all(format!("{renewed}\n").as_bytes())?,
                None => new.write_all(&line)?,
            }
        }
        new.finish().map_err(told)?;
        self.file = OpenOptions::new().append(true).open(&self.path)?;
        self.changed.retain(|number| !self.renewed.contains_key(number));
        self.renewed.clear();
        Ok(())
    }
}

impl Drop for Results {
    /// Keeps what was answered where a command ends early.
    fn drop(&mut self) {
        if let Err(error) = self.settle() {
            crate::ui::warn(&format!("results of changed lines are lost: {error}"));
        }
    }
}

/// Relation of a stored result to the line of the batch with the same number.
enum Origin {
    /// The result of that line.
    Line,
    /// The result of another line, by the same model.
    OtherLine,
    /// A result of another model.
    OtherModel,
    /// Not written by `rooflight batch`.
    Unknown,
}

fn origin(result: &Value, key: &LineKey) -> Origin {
    let id = result.get("custom_id").and_then(Value::as_str);
    let Some(found) = digest(result).and_then(Value::as_str) else { return Origin::Unknown };
    // results of earlier versions do not name their model
    let is_same = found.split('_').any(|part| part == key.digest);
    let mut parts = found.rsplit('_');
    let is_tagged = |part: Option<&str>| {
        part.is_some_and(|part| part.len() == 16 && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    match (parts.next(), parts.next()) {
        _ if is_same && key.id.as_deref() == id => Origin::Line,
        (Some(model), digest) if model == key.model && is_tagged(digest) => Origin::OtherLine,
        (model, _) if is_tagged(model) => Origin::OtherModel,
        _ => Origin::Unknown,
    }
}

fn refused(line: usize, wrong: &str) -> String {
    format!("line {} {wrong}: give another file, or --force to begin anew", line + 1)
}

/// Where a result has the digest of its request.
fn digest(line: &Value) -> Option<&Value> {
    line.get("request").or_else(|| line.pointer("/response/request_id"))
}

/// Whether this may be the beginning of a line that is written here: nothing else is ever dropped.
fn is_torn(line: &[u8]) -> bool {
    let begins = ["{\"text\":", "{\"error\":", "{\"id\":\"batch_req_"].map(str::as_bytes);
    begins.iter().any(|begin| line.starts_with(begin) || begin.starts_with(line))
}

/// Whether a line looks like what is written here.
fn is_result(line: &Value) -> bool {
    let has = |key| line.get(key).is_some();
    has("response") || has("error") || (has("text") && has("usage"))
}

fn is_failure(line: &Value) -> bool {
    let status = line.pointer("/response/status_code").and_then(Value::as_u64);
    status.is_some_and(|status| status != 200)
        || line.get("error").is_some_and(|error| !error.is_null())
}

/// The result of a reply. `line`: its number, from 1.
pub(super) fn of_reply(
    request: &BatchRequest,
    line: usize,
    source: &ReplySource,
    reply: &Completion,
    notes: &[String],
) -> Value {
    let id = request.id.as_deref();
    let Shape::OpenAi(endpoint) = request.shape else {
        let mut object = completion::to_json(reply);
        object["timings"] = source.timings(&reply.timings, &reply.usage);
        object["context_ledger"] = server::context_json(reply, source.capacity);
        if request.request.asked.logprobs.is_some() {
            object["logprobs"] = source.logprobs(&reply.logprobs);
        }
        if !notes.is_empty() {
            object["warnings"] = json!(notes);
        }
        if let Some(id) = id {
            object["custom_id"] = id.into();
        }
        return object;
    };
    let name = if endpoint == OpenAiEndpoint::Chat { "chatcmpl" } else { "cmpl" };
    let writer = OpenAiReply::new(source.clone(), endpoint, &request.request);
    let writer = writer.with_id(format!("{name}-{line}")).with_notes(notes.to_vec());
    response(id, line, 200, &writer.whole(std::slice::from_ref(reply)))
}

/// The result of a line that could not be answered.
pub(super) fn of_refusal(line: usize, refusal: &Refusal) -> Value {
    let Refusal { id, error, openai } = refusal;
    let mut object = error.to_json();
    if *openai {
        return response(id.as_deref(), line, error.status(), &object);
    }
    if let Some(id) = id {
        object["custom_id"] = id.clone().into();
    }
    object
}

fn response(id: Option<&str>, line: usize, status: u16, body: &Value) -> Value {
    json!({
        "id": format!("batch_req_{line}"),
        "custom_id": id,
        "response": { "status_code": status, "request_id": format!("req_{line}"), "body": body },
        "error": null,
    })
}

#[cfg(test)]
mod tests {
    use server::ApiError;

    use super::*;

    fn refusal(id: Option<&str>, openai: bool) -> Value {
        let id = id.map(str::to_owned);
        of_refusal(1, &Refusal { id, error: ApiError::field("n", "no"), openai })
    }

    /// Digests of two models.
    const M: &str = "00000000000000aa";
    const N: &str = "00000000000000bb";

    fn key(id: Option<&str>) -> LineKey {
        LineKey::new(id.map(str::to_owned), "{}", M)
    }

    /// Only results of lines that have changed are missing, and the others stay as they are, to the byte.
    #[test]
    fn results_of_changed_lines_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let reply = |text: &str| json!({ "text": text, "usage": {} });
        let keys = |lines: [&str; 4]| lines.map(|line| LineKey::new(None, line, M)).to_vec();
        let lines = || -> Vec<String> {
            std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect()
        };
        let mut results = Results::open(&path, keys(["1", "2", "3", "4"])).unwrap().unwrap();
        for (number, line) in [reply("a"), refusal(None, false), reply("c")].into_iter().enumerate()
        {
            results.push(number, line).unwrap();
        }
        let before = lines();
        // a killed process leaves the old results
        let mut results = Results::open(&path, keys(["1", "2b", "3b", "4"])).unwrap().unwrap();
        assert_eq!((results.missing(), results.failed), (vec![1, 2, 3], 0));
        results.push(1, reply("b")).unwrap();
        assert_eq!(lines(), before);
        std::mem::forget(results);
        // a stopped one keeps what it has
        let mut results = Results::open(&path, keys(["1", "2b", "3b", "4"])).unwrap().unwrap();
        results.push(1, reply("b")).unwrap();
        results.settle().unwrap();
        assert_eq!((results.missing(), results.answered()), (vec![2, 3], 2));
        let mut results = Results::open(&path, keys(["1", "2b", "3b", "4"])).unwrap().unwrap();
        assert_eq!(results.changed(), [2]);
        results.push(2, reply("c2")).unwrap();
        results.push(3, reply("d")).unwrap();
        let after = lines();
        assert_eq!((after.len(), &after[0]), (4, &before[0]));
        assert!(after[2].contains("c2") && after[3].contains("\"d\""), "{after:?}");
        let whole = Results::open(&path, keys(["1", "2b", "3b", "4"])).unwrap().unwrap();
        assert!(whole.missing().is_empty());
        // the results of mostly other lines are those of another batch
        let other = Results::open(&path, keys(["1", "x", "y", "z"])).unwrap().err().unwrap();
        assert!(other.starts_with("line 2 is the result of another request"), "{other}");
        assert_eq!(lines(), after);
    }

    /// A file that a killed process left goes on behind its last whole line.
    #[test]
    fn a_torn_line_is_dropped_and_others_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let keys = || vec![key(Some("a")), key(None), key(Some("c"))];
        let mut results = Results::open(&path, keys()).unwrap().unwrap();
        assert_eq!(results.answered(), 0);
        results.push(0, refusal(Some("a"), true)).unwrap();
        results.push(1, json!({ "text": "fine", "usage": {} })).unwrap();
        results.file.write_all(br#"{"text":"fi"#).unwrap();
        drop(results);
        let mut results = Results::open(&path, keys()).unwrap().unwrap();
        assert_eq!((results.answered(), results.failed), (2, 1));
        assert_eq!(results.missing(), [2]);
        results.push(2, refusal(Some("c"), false)).unwrap();
        assert_eq!(results.failed, 2);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{text}");
    }

    #[test]
    fn results_of_another_batch_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let keys = || vec![key(Some("a")), key(Some("b"))];
        let other = refusal(Some("b"), true).to_string() + "\n";
        for content in [&*other, "not json\n", "not even a line", "{\"custom_id\": \"a\"}\n"] {
            std::fs::write(&path, content).unwrap();
            let problem = Results::open(&path, keys()).unwrap().err().unwrap();
            assert!(problem.contains("line 1") && problem.contains("--force"), "{problem}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content, "it is left alone");
        }
        std::fs::remove_file(&path).unwrap();
        let mut results = Results::open(&path, keys()).unwrap().unwrap();
        results.push(0, refusal(Some("a"), true)).unwrap();
        results.push(1, refusal(Some("b"), true)).unwrap();
        let lines = std::fs::read_to_string(&path).unwrap();
        assert!(Results::open(&path, keys()).unwrap().is_ok_and(|results| results.answered() == 2));
        std::fs::write(&path, lines.clone() + &lines).unwrap();
        assert!(Results::open(&path, keys()).unwrap().is_err(), "more results than lines");
    }

    /// Lines need no id: what they ask, and of which model, tells their results from others.
    #[test]
    fn results_of_other_requests_and_models_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let of = |line: &str, model: &str| vec![LineKey::new(None, line, model)];
        let mut results = Results::open(&path, of("{}", M)).unwrap().unwrap();
        results.push(0, json!({ "text": "fine", "usage": {} })).unwrap();
        for (line, model, told) in [
            ("{} ", M, None),
            ("{\"a\": 1}", M, Some("line 1 is the result of another request")),
            ("{}", N, Some("line 1 is the result of another model")),
        ] {
            let refused = Results::open(&path, of(line, model)).unwrap().err();
            let same = refused.as_deref().zip(told).is_some_and(|(it, told)| it.starts_with(told));
            assert!(same || refused.as_deref() == told, "{line} {model}: {refused:?}");
        }
        let mut openai =
            Results::open(&folder.path().join("b.jsonl"), of("{}", M)).unwrap().unwrap();
        openai.push(0, refusal(None, true)).unwrap();
        drop(openai);
        let opened = Results::open(&folder.path().join("b.jsonl"), of("{}", N)).unwrap();
        assert!(opened.is_err_and(|told| told.contains("another model")));
    }
}
