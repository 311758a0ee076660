//! Opens model files.

use std::path::{Path, PathBuf};

use engine::{Recommended, SamplerOptions};
use gguf::naming::Shard;
use gguf::{Gguf, Metadata, Value};

use crate::{Error, shown, units};

/// Maximum number of files listed in the error for a folder.
const LISTED: usize = 4;

/// Opens a model file and all its shards.
///
/// # Errors
/// [`Error::NotFound`] if there is no such file, [`Error::Malformed`] if the path is a folder, [`Error::Options`] if the path
/// is empty, or the error of the GGUF reader.
pub fn open(path: &Path) -> anyhow::Result<Gguf> {
    if path.as_os_str().is_empty() {
        return Err(Error::Options("the path of the model is empty".into()).into());
    }
    if !path.exists() {
        return Err(Error::NotFound { path: path.to_owned() }.into());
    }
    if path.is_dir() {
        return Err(Error::Malformed(of_folder(path)).into());
    }
    Gguf::open(path).map_err(|error| match error {
        // the error already names the file
        gguf::Error::Io { path, reason } => {
            anyhow::Error::from(reason).context(format!("reading {path}"))
        }
        error => anyhow::Error::from(error).context(format!("opening {}", shown(path))),
    })
}

/// Returns the models in a folder, sorted by name: GGUF files, but no projectors of images (`mmproj-*.gguf`), and of a sharded
/// model only the first shard. Folders in it are not searched.
///
/// # Errors
/// If the folder cannot be read.
pub fn models_in(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let is_model = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let is_first = Shard::of(path).is_none_or(|shard| shard.no == 1);
        name.ends_with(".gguf") && !name.starts_with("mmproj") && is_first
    };
    let paths = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<std::io::Result<Vec<PathBuf>>>()?;
    paths.retain(|path| is_model(path) && !path.is_dir());
    paths.sort();
    Ok(paths)
}

/// Returns the error message for a folder. It lists the models in the folder.
fn of_folder(path: &Path) -> String {
    let models = models_in(path).unwrap_or_default();
    let names: Vec<_> = models.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    let names: Vec<String> = names.iter().map(|name| gguf::escape(*name, 60)).collect();
    let folder = shown(path);
    match names.is_empty() {
        true => format!("{folder} is a folder without GGUF files: give a GGUF file"),
        false => {
            let listed = units::listed(&names, LISTED);
            format!("{folder} is a folder: give a GGUF file in it: {listed}")
        }
    }
}

/// Returns the sampler options that the file recommends. Also returns one line for each option that is out of range and
/// ignored.
pub fn recommended_sampler(metadata: &Metadata) -> (SamplerOptions, Vec<String>) {
    SamplerOptions::default()
        .with_recommended(&|key| metadata.get(key).map(|value| recommended(&value)))
}

/// Converts a metadata value. A value that is neither a number nor a string becomes NaN.
fn recommended<'a>(value: &Value<'a>) -> Recommended<'a> {
    if let Value::String(text) = value {
        return std::str::from_utf8(text).map_or(Recommended::Number(f64::NAN), Recommended::Text);
    }
    let float = value.as_f32().map(f64::from);
    let number = float.or_else(|| value.as_integer().map(|n| n as f64));
    Recommended::Number(number.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_type_count_and_texts_are_texts() {
        assert_eq!(recommended(&Value::I64(-1)), Recommended::Number(-1.0));
        assert_eq!(recommended(&Value::U8(20)), Recommended::Number(20.0));
        assert_eq!(recommended(&Value::F64(0.5)), Recommended::Number(0.5));
        assert_eq!(recommended(&Value::String(b"0.5")), Recommended::Text("0.5"));
        let nan = |value| matches!(recommended(&value), Recommended::Number(x) if x.is_nan());
        assert!(nan(Value::Bool(true)) && nan(Value::String(b"\xff")));
    }
}
