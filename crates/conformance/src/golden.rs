//! Logits made by another program (llama.cpp, as bundled in llama-cpp-python 0.3.36), and executors compared with them.
//!
//! Part of this crate are two cases of quantized weights ([`bundled`]) and cases of every architecture ([`archs`]), whose
//! models are made from recipes. More lie in the folder `shared/golden` beside the repository, where there is one:
//! [`quantized`] models with their files, f32 models that a Python script there writes ([`plain`]), and all positions of
//! more cases of architectures ([`shared_archs`]). What cannot run is told by [`testing::golden_skipped`].

mod archs;
pub(crate) mod generator;
mod recipe;
mod texts;
mod values;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fmt, io};

use ::models::GgufWeights;
use gguf::Gguf;
use program::{Executor, Model, Outputs, Prompt, Sequence, SessionId};
use serde_json::Value;

pub use archs::{archs, every_recipe, model, models, shared_archs, shared_named};
pub use texts::{TextModel, texts};

use crate::made::{EXACT, feed, step};
use crate::{Family, nmse};

/// One model with a prompt and what another program made of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name in the index.
    pub name: String,
    /// The GGUF file.
    pub model: GoldenFile,
    /// The prompt.
    pub tokens: Vec<u32>,
    /// Logits of the prompt's last positions: `[_, vocab_size]`.
    pub logits: Vec<f32>,
    /// Ids chosen greedily after the prompt.
    pub greedy: Vec<u32>,
    /// How far the logits may be off, as NMSE.
    pub bound: f64,
    /// Whether the greedy ids must be the same: with coarse weights the other program's own rounding decides ties.
    pub same_greedy: bool,
}

/// Where a case's model is.
#[derive(Clone, Debug)]
pub enum GoldenFile {
    /// In a file.
    Path(PathBuf),
    /// Here: the file's bytes.
    Bytes(Vec<u8>),
}

impl GoldenFile {
    fn open(&self) -> gguf::Result<Gguf> {
        match self {
            GoldenFile::Path(path) => Gguf::open(path),
            GoldenFile::Bytes(bytes) => Gguf::from_bytes(bytes.clone()),
        }
    }
}

/// What an executor made of a [`Case`].
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// `general.architecture` of the model.
    pub architecture: String,
    /// NMSE of the logits.
    pub nmse: f64,
    /// Ids chosen greedily after the prompt, as many as the case has.
    pub greedy: Vec<u32>,
    /// Leading ids of `greedy` that are the other program's.
    pub same_greedy: usize,
    /// The executor's logits of the positions the case has.
    pub logits: Vec<f32>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "NMSE {:.1e}, greedy ids {} of {} equal",
            self.nmse,
            self.same_greedy,
            self.greedy.len()
        )
    }
}

impl Outcome {
    /// Panic unless the outcome is within the case's bounds.
    ///
    /// # Panics
    /// If it is not.
    pub fn assert(&self, case: &Case) {
        let Case { name, bound, .. } = case;
        assert!(self.nmse <= *bound, "{name}: NMSE {:.3e}, allowed {bound:.0e}", self.nmse);
        if case.same_greedy {
            assert_eq!(self.greedy, case.greedy, "{name}: greedy ids");
        }
    }
}

/// Run the case's prompt with an f32 cache, in one step but for positions without logits, then choose greedily.
///
/// # Panics
/// If the model does not load or a step fails.
pub fn golden_case(executor: &dyn Executor, case: &Case) -> Outcome {
    let gguf = case.model.open().unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let loaded = ::models::load(&gguf).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let vocab_size = loaded.config.vocab_size;
    let model = executor
        .load(loaded.program, &GgufWeights(&gguf), &mut |_| ())
        .unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let session = model.open(&EXACT).expect("a session opens");
    let (head, tail) = case.tokens.split_at(case.tokens.len() - case.logits.len() / vocab_size);
    let prompt = Some(Prompt { start: 0, len: case.tokens.len() });
    if !head.is_empty() {
        step(
            &*model,
            Sequence { session, tokens: head, outputs: Outputs::NONE, prompt, rows: &[] },
        );
    }
    let logits =
        step(&*model, Sequence { session, tokens: tail, outputs: Outputs::ALL, prompt, rows: &[] });
    let first = argmax(&logits[logits.len() - vocab_size..]);
    let greedy = greedy(&*model, session, first, case.greedy.len());
    Outcome {
        architecture: loaded.config.architecture,
        nmse: nmse(&logits, &case.logits),
        same_greedy: greedy.iter().zip(&case.greedy).take_while(|(a, b)| a == b).count(),
        greedy,
        logits,
    }
}

fn greedy(model: &dyn Model, session: SessionId, first: u32, n: usize) -> Vec<u32> {
    let mut ids = vec![first];
    while ids.len() < n {
        ids.push(argmax(&feed(model, session, &ids[ids.len() - 1..], Outputs::LAST)));
    }
    ids
}

/// The highest score's index; the lowest of equal ones.
fn argmax(row: &[f32]) -> u32 {
    let mut best = 0;
    for (i, x) in row.iter().enumerate() {
        if *x > row[best] {
            best = i;
        }
    }
    best as u32
}

/// The cases in this crate: a Q4_0 and a mixed K-quant model.
///
/// # Panics
/// If they cannot be read.
pub fn bundled() -> Vec<Case> {
    quantized_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data"))
        .expect("the crate holds its data")
}

/// One tiny Qwen2 model in every weight type, from the shared folder.
///
/// # Errors
/// Why they cannot be had, for [`testing::golden_skipped`].
pub fn quantized() -> Result<Vec<Case>, String> {
    quantized_in(&testing::shared()?.join("golden/quant"))
        .map_err(|e| format!("shared/golden/quant: {e}"))
}

/// F32 models of the architectures of a family, from the shared folder. Their files are written once, into
/// the target folder, by `make_model.py` with the Python named by `ROOFLIGHT_PYTHON` (else `python3`).
///
/// # Errors
/// Why they cannot be had, for [`testing::golden_skipped`].
pub fn plain(family: Family) -> Result<Vec<Case>, String> {
    let shared = testing::shared()?;
    let script = Script::new(&shared, "make_model.py")?;
    let known = script.models(family);
    let folder = shared.join("golden/logits");
    let index = index(&folder).map_err(|e| format!("shared/golden/logits: {e}"))?;
    let mut cases = Vec::new();
    for (name, entry) in &index {
        let model = entry["model_name"].as_str().unwrap_or(name);
        if known.iter().any(|known| known == model) {
            let path = script.file(model, entry, |out| {
                vec![model.into(), out.into(), "--type".into(), "f32".into()]
            })?;
            let case = case(&folder, name, entry, path)
                .map_err(|e| format!("shared/golden/logits {name}: {e}"))?;
            cases.push(Case { bound: EXACT_BOUND, same_greedy: true, ..case });
        }
    }
    Ok(cases)
}

/// Exact arithmetic differs in the order of sums only.
const EXACT_BOUND: f64 = 1e-9;

type Index = serde_json::Map<String, Value>;

fn index(folder: &Path) -> io::Result<Index> {
    Ok(serde_json::from_slice(&std::fs::read(folder.join("index.json"))?)?)
}

fn quantized_in(folder: &Path) -> io::Result<Vec<Case>> {
    let read = |(name, entry): (&String, &Value)| {
        let file = entry["model"].as_str().unwrap_or_default();
        let stem = file.trim_end_matches(".gguf");
        // Plain types leave the other program nothing to round but the activations of F16 and BF16.
        let same_greedy = matches!(name.as_str(), "f16" | "bf16" | "q8_0");
        Ok(Case { bound: 1e-3, same_greedy, ..case(folder, stem, entry, folder.join(file))? })
    };
    index(folder)?.iter().map(read).collect()
}

/// A case with exact bounds.
fn case(folder: &Path, name: &str, entry: &Value, model: PathBuf) -> io::Result<Case> {
    let ids = |key: &str| serde_json::from_value::<Vec<u32>>(entry[key].clone());
    let logits = std::fs::read(folder.join(format!("{name}.f32")))?;
    let logits = logits.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let (tokens, greedy, model) = (ids("tokens")?, ids("greedy")?, GoldenFile::Path(model));
    Ok(Case { name: name.to_owned(), model, tokens, logits, greedy, bound: 0.0, same_greedy: true })
}

/// A script that writes models.
struct Script {
    python: OsString,
    path: PathBuf,
    /// What `--list` prints: a name and a few words in each line.
    list: String,
}

impl Script {
    fn new(shared: &Path, name: &str) -> Result<Self, String> {
        let python = std::env::var_os("ROOFLIGHT_PYTHON").unwrap_or_else(|| "python3".into());
        let path = shared.join("models").join(name);
        let needs = || "needs python with numpy and gguf (ROOFLIGHT_PYTHON)".to_owned();
        let listed = Command::new(&python).arg("-B").arg(&path).arg("--list").output();
        let listed = listed.map_err(|_| needs())?;
        if !listed.status.success() {
            return Err(needs());
        }
        let list = String::from_utf8_lossy(&listed.stdout).into_owned();
        Ok(Script { python, path, list })
    }

    /// Names of the models of a family's architectures, where a line has a Python dictionary with `'arch': 'qwen2'`.
    fn models(&self, family: Family) -> Vec<String> {
        let ours = |line: &&str| {
            family.architectures().iter().any(|name| line.contains(&format!("'arch': '{name}'")))
        };
        let lines = self.list.lines().filter(ours);
        lines.filter_map(|line| line.split_whitespace().next()).map(Into::into).collect()
    }

    /// The model's file, written now if it is not there yet. `arguments` tell the script to write it to a path, which
    /// may become a folder with the file in it.
    fn file(
        &self,
        model: &str,
        entry: &Value,
        arguments: impl Fn(&Path) -> Vec<OsString>,
    ) -> Result<PathBuf, String> {
        let seed = entry["seed"].to_string();
        let digest = entry["sha256"].as_str().and_then(|d| d.get(..8)).unwrap_or_default();
        let folder = target().join("golden-models");
        let path = folder.join(format!("{model}-{seed}-{digest}.gguf"));
        if path.exists() {
            return Ok(path);
        }
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        // Another test may write the same model now: each writes its own file, and the last one to finish names it.
        let thread = std::thread::current().id();
        let unfinished = folder.join(format!("{model}-{}-{thread:?}.part", std::process::id()));
        let written = Command::new(&self.python)
            .arg("-B")
            .arg(&self.path)
            .args(["--seed", &seed])
            .args(arguments(&unfinished))
            .output()
            .map_err(|e| e.to_string())?;
        if !written.status.success() {
            let said = String::from_utf8_lossy(&written.stderr);
            return Err(format!("{} {model}: {said}", self.path.display()));
        }
        let within = unfinished.join(format!("{model}.gguf"));
        let file = if unfinished.is_dir() { &within } else { &unfinished };
        std::fs::rename(file, &path).map_err(|e| format!("{}: {e}", path.display()))?;
        if unfinished.is_dir() {
            std::fs::remove_dir(&unfinished).map_err(|e| e.to_string())?;
        }
        Ok(path)
    }
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from)
}
