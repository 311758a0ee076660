//! The file of results: a line for each line of the batch, in its order, so that what is there says where to go on.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use engine::Completion;
use serde_json::{Value, json};
use server::{OpenAiEndpoint, OpenAiReply, ReplySource};

use super::request::{BatchRequest, LineKey, Refusal, Shape};
use crate::completion;

/// A file that grows by whole lines.
pub(super) struct Results {
    file: File,
    /// Of each line of the batch.
    keys: Vec<LineKey>,
    /// Lines it held when it was opened.
    pub(super) done: usize,
    /// Of these, refused ones.
    pub(super) failed: usize,
}

impl Results {
    /// Open or make the file, and drop the half of a line that a killed process left. `keys`: of each line of the batch.
    ///
    /// # Errors
    /// The file system's, and in words: results of another batch.
    pub(super) fn open(path: &Path, keys: Vec<LineKey>) -> io::Result<Result<Results, String>> {
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let (mut end, mut done, mut failed) = (0, 0, 0);
        let mut reader = BufReader::new(&mut file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let n = reader.read_until(b'\n', &mut line)?;
            if n == 0 || (line.last() != Some(&b'\n') && is_torn(&line)) {
                break;
            }
            let value: Option<Value> = serde_json::from_slice(&line).ok();
            let id = value.as_ref().and_then(|value| value.get("custom_id")?.as_str());
            let found = value.as_ref().and_then(|value| digest(value)?.as_str());
            let is_of =
                |key: &LineKey| value.as_ref().is_some_and(is_result) && key.id.as_deref() == id;
            let wrong = match keys.get(done).filter(|key| is_of(key)) {
                None => Some("is no result of this batch"),
                Some(key) if !found.is_some_and(|found| found.ends_with(&key.digest)) => {
                    Some("is the result of another request, or of another model")
                }
                Some(_) => None,
            };
            if let Some(wrong) = wrong {
                let ways = "give another file, or --force to begin anew";
                return Ok(Err(format!("line {} {wrong}: {ways}", done + 1)));
            }
            failed += usize::from(value.is_some_and(|value| is_failure(&value)));
            end += n as u64;
            done += 1;
        }
        file.set_len(end)?;
        file.seek(SeekFrom::Start(end))?;
        Ok(Ok(Results { file, keys, done, failed }))
    }

    /// Add the result of the next line of the batch; it is with the system when this returns.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn push(&mut self, mut line: Value) -> io::Result<()> {
        if let Some(key) = self.keys.get(self.done) {
            match line.pointer_mut("/response/request_id") {
                Some(id) => *id = format!("req_{}_{}", self.done + 1, key.digest).into(),
                None => line["request"] = key.digest.clone().into(),
            }
        }
        self.failed += usize::from(is_failure(&line));
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.done += 1;
        Ok(())
    }
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

    fn key(id: Option<&str>) -> LineKey {
        LineKey::new(id.map(str::to_owned), "{}", "m")
    }

    /// A file that a killed process left goes on behind its last whole line.
    #[test]
    fn a_torn_line_is_dropped_and_others_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let keys = || vec![key(Some("a")), key(None), key(Some("c"))];
        let mut results = Results::open(&path, keys()).unwrap().unwrap();
        assert_eq!(results.done, 0);
        results.push(refusal(Some("a"), true)).unwrap();
        results.push(json!({ "text": "fine", "usage": {} })).unwrap();
        results.file.write_all(br#"{"text":"fi"#).unwrap();
        drop(results);
        let mut results = Results::open(&path, keys()).unwrap().unwrap();
        assert_eq!((results.done, results.failed), (2, 1));
        results.push(refusal(Some("c"), false)).unwrap();
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
        results.push(refusal(Some("a"), true)).unwrap();
        results.push(refusal(Some("b"), true)).unwrap();
        let lines = std::fs::read_to_string(&path).unwrap();
        assert!(Results::open(&path, keys()).unwrap().is_ok_and(|results| results.done == 2));
        std::fs::write(&path, lines.clone() + &lines).unwrap();
        assert!(Results::open(&path, keys()).unwrap().is_err(), "more results than lines");
    }

    /// Lines need no id: what they ask, and of which model, tells their results from others.
    #[test]
    fn results_of_other_requests_and_models_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let of = |line: &str, model: &str| vec![LineKey::new(None, line, model)];
        let mut results = Results::open(&path, of("{}", "m")).unwrap().unwrap();
        results.push(json!({ "text": "fine", "usage": {} })).unwrap();
        for (line, model, is_one) in
            [("{} ", "m", true), ("{\"a\": 1}", "m", false), ("{}", "n", false)]
        {
            let opened = Results::open(&path, of(line, model)).unwrap();
            assert_eq!(opened.is_ok(), is_one, "{line} {model}");
            let told = opened.err().unwrap_or_default();
            assert!(
                is_one || told.starts_with("line 1 is the result of another request"),
                "{told}"
            );
        }
        let mut openai =
            Results::open(&folder.path().join("b.jsonl"), of("{}", "m")).unwrap().unwrap();
        openai.push(refusal(None, true)).unwrap();
        drop(openai);
        let opened = Results::open(&folder.path().join("b.jsonl"), of("{}", "n")).unwrap();
        assert!(opened.is_err_and(|told| told.contains("another model")));
    }
}
