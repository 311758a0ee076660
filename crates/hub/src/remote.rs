//! What a hub has of a model: its commit, its files, their sizes and digests, and the first bytes of them.

use std::io::Read;

use ureq::http::StatusCode;

use crate::name::{has_quant, pick, quant_of};
use crate::transport::{Follow, HubAnswer, failed, protocol};
use crate::{Hub, HubError, ModelName, Result};

/// A model on a hub, of which nothing need be here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteModel {
    /// As it was asked for.
    pub name: ModelName,
    /// The commit that was the latest when it was asked for.
    pub commit: String,
    /// Its files, the parts of a model in their order.
    pub files: Vec<RemoteFile>,
}

/// A file of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Its name, folders included.
    pub path: String,
    /// Its bytes.
    pub bytes: u64,
    /// SHA-256 of them, as 64 hexadecimal digits.
    pub digest: String,
}

impl RemoteModel {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}

/// Parts of a model at most.
const MOST_PARTS: usize = 1000;

impl Hub {
    /// Ask the hub for a model: its commit, and the file of the type that is asked for, or all its parts.
    ///
    /// # Errors
    /// [`HubError`]: nothing may be asked for, there is no such model or file, or no hub.
    pub fn find(&self, name: &ModelName) -> Result<RemoteModel> {
        if self.options.offline {
            return Err(HubError::Offline { name: name.to_string() });
        }
        let ModelName { repository, revision, .. } = name;
        let url = format!("{}/api/models/{repository}/revision/{revision}", self.options.endpoint);
        let answer = self.ask(&url, repository, Follow::All)?;
        let said = answer.json()?;
        let commit =
            said["sha"].as_str().filter(|sha| is_hex(sha) && (40..=64).contains(&sha.len()));
        let commit = commit.ok_or_else(|| protocol(&url, "sha: a commit", "none"))?.to_owned();
        let siblings = said["siblings"].as_array();
        let siblings = siblings.ok_or_else(|| protocol(&url, "siblings: files", "none"))?;
        let mut all: Vec<&str> =
            siblings.iter().filter_map(|file| file["rfilename"].as_str()).collect();
        all.retain(|file| is_model_file(file));
        let files = self.files_of(name, &all)?;
        let files = files.into_iter().map(|path| self.file(name, &commit, path));
        Ok(RemoteModel {
            name: name.clone(),
            commit: commit.clone(),
            files: files.collect::<Result<_>>()?,
        })
    }

    /// The file that a name means, or all its parts.
    fn files_of(&self, name: &ModelName, all: &[&str]) -> Result<Vec<String>> {
        let firsts: Vec<&str> = all
            .iter()
            .copied()
            .filter(|file| part_of(file).is_none_or(|(_, i, _)| i == 1))
            .collect();
        let Some(at) = pick(&firsts, name.quant.as_deref()) else {
            let mut there: Vec<String> = firsts
                .iter()
                .map(|file| quant_of(file).unwrap_or_else(|| (*file).to_owned()))
                .collect();
            there.dedup();
            there.truncate(20);
            return Err(HubError::NoFile {
                repository: name.repository.clone(),
                wanted: name.quant.clone().unwrap_or_else(|| "any".into()),
                there: if there.is_empty() { "none".into() } else { there.join(", ") },
            });
        };
        let Some((base, _, parts)) = part_of(firsts[at]) else {
            return Ok(vec![firsts[at].to_owned()]);
        };
        let part = |i: usize| {
            let file = format!("{base}-{i:05}-of-{parts:05}.gguf");
            let missing = || HubError::NoFile {
                repository: name.repository.clone(),
                wanted: file.clone(),
                there: firsts[at].to_owned(),
            };
            all.contains(&&*file).then_some(file.clone()).ok_or_else(missing)
        };
        (1..=parts).map(part).collect()
    }

    /// What the hub says of a file.
    fn file(&self, name: &ModelName, commit: &str, path: String) -> Result<RemoteFile> {
        let url = self.url_of(&name.repository, commit, &path);
        // headers of the hub itself: behind its redirect are those of a server that only has the bytes
        let answer = self.ask_range(&url, &name.repository, (0, 1), Follow::SameServer)?;
        let etag = answer.header("x-linked-etag").or_else(|| answer.header("etag"));
        let digest =
            etag.map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_lowercase());
        let digest = digest.filter(|digest| digest.len() == 64 && is_hex(digest));
        let digest = digest.ok_or_else(|| {
            let found = etag.unwrap_or("no digest");
            protocol(&url, "the SHA-256 of the file as its ETag", found)
        })?;
        if let Some(other) = answer.header("x-repo-commit").filter(|other| *other != commit) {
            return Err(protocol(&url, format!("commit {commit}"), other));
        }
        let total = || Some(answer.header("content-range")?.rsplit_once('/')?.1.parse().ok());
        let linked = answer.header("x-linked-size").map(|size| size.parse().ok());
        let whole = || {
            let is_whole = answer.status == StatusCode::OK;
            answer.header("content-length").filter(|_| is_whole).map(|size| size.parse().ok())
        };
        let bytes = linked.or_else(total).or_else(whole).flatten();
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| protocol(&url, "the size of the file", "none"))?;
        Ok(RemoteFile { path, bytes, digest })
    }

    /// Bytes of a file from its beginning, at most `most`.
    ///
    /// # Errors
    /// A server that cannot be reached or sends something else.
    pub fn beginning(&self, model: &RemoteModel, file: &RemoteFile, most: u64) -> Result<Vec<u8>> {
        let end = most.min(file.bytes);
        let url = self.url_of(&model.name.repository, &model.commit, &file.path);
        let mut answer = self.ask_range(&url, &model.name.repository, (0, end), Follow::All)?;
        let mut bytes = Vec::new();
        // who does not know of ranges sends all of it, of which the beginning is read
        let read = answer.body.as_reader().take(end).read_to_end(&mut bytes);
        read.map_err(|error| failed(&answer.url, &error))?;
        match bytes.len() as u64 == end {
            true => Ok(bytes),
            false => Err(protocol(&url, format!("{end} bytes"), &format!("{} bytes", bytes.len()))),
        }
    }

    pub(crate) fn url_of(&self, repository: &str, commit: &str, path: &str) -> String {
        let path: String = path.chars().map(escaped).collect();
        format!("{}/{repository}/resolve/{commit}/{path}", self.options.endpoint)
    }

    fn ask(&self, url: &str, what: &str, follow: Follow) -> Result<HubAnswer> {
        self.known(self.transport.get_patiently(url, None, follow)?, what)
    }

    fn ask_range(
        &self,
        url: &str,
        what: &str,
        range: (u64, u64),
        follow: Follow,
    ) -> Result<HubAnswer> {
        let answer = self.transport.get_patiently(url, Some(range), follow)?;
        if follow == Follow::SameServer && answer.status.is_redirection() {
            return Ok(answer);
        }
        self.known(answer, what)
    }

    /// An answer that came to something; else what the hub does not have, or does not show to whoever asks.
    fn known(&self, answer: HubAnswer, what: &str) -> Result<HubAnswer> {
        let hint = match (answer.status, &self.options.token) {
            (StatusCode::NOT_FOUND, _) => "",
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, None) => {
                ", or only for those who say who they are: HF_TOKEN"
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(_)) => {
                ", or not for the owner of HF_TOKEN"
            }
            _ => return answer.check(),
        };
        let endpoint = self.options.endpoint.clone();
        Err(HubError::NotFound { what: what.to_owned(), endpoint, hint })
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A GGUF with a model of texts, at a path that stays below the folder it is put in.
pub fn is_model_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let stays = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let plain =
        path.len() <= 512 && !path.chars().any(|c| c.is_control() || matches!(c, '\\' | ':'));
    let other = name.starts_with("mmproj") || name.contains("imatrix");
    stays && plain && name.ends_with(".gguf") && !other
}

/// `base-00001-of-00003.gguf`: base, number and count.
pub fn part_of(path: &str) -> Option<(&str, usize, usize)> {
    let stem = path.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| (text.len() == 5).then(|| text.parse::<usize>().ok()).flatten();
    let (number, count) = (digits(number)?, digits(count)?);
    ((1..=count).contains(&number) && count <= MOST_PARTS).then_some((base, number, count))
}

/// Whether two names are parts of one model, or the same.
pub(crate) fn same_model(a: &str, b: &str) -> bool {
    match (part_of(a), part_of(b)) {
        (Some(a), Some(b)) => (a.0, a.2) == (b.0, b.2),
        _ => a == b,
    }
}

/// A character as it stands in the path of an address.
pub fn escaped(c: char) -> String {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' | '~' | '/' => c.to_string(),
        other => {
            let mut bytes = [0; 4];
            other.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
        }
    }
}

impl RemoteFile {
    /// The type of weights that its name says.
    pub fn quant(&self) -> Option<String> {
        quant_of(&self.path)
    }

    /// Whether its name says this type.
    pub fn is_of(&self, quant: &str) -> bool {
        has_quant(&self.path, quant)
    }
}
