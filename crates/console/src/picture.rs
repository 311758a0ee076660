//! Charts on their way to a file.

use std::path::{Path, PathBuf};

use plot::Picture;

use crate::output::OutputArgs;

/// Pixels of a bitmap for one of the chart's units.
const SCALE: f64 = 2.0;

/// A file that a chart can be written to, by its ending.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending.map(str::to_ascii_lowercase).as_deref() {
        Some("svg" | "png") => Ok(path),
        _ => Err("expected a file that ends in .svg or .png".into()),
    }
}

/// Write a chart in the format that the file's ending names.
///
/// # Errors
/// Memory for the bitmap, or those of [`OutputArgs::write`].
pub fn write(path: &Path, picture: &Picture, output: OutputArgs) -> anyhow::Result<()> {
    let bitmap = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"));
    let bytes = if bitmap { picture.png(SCALE)? } else { picture.svg().into_bytes() };
    output.write(path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_names_the_format() {
        let folder = tempfile::tempdir().unwrap();
        let picture = plot::Waterfall::new("a").total("b", 1.0).picture();
        for (name, first) in [("a.svg", &b"<svg"[..]), ("a.PNG", b"\x89PNG")] {
            let file = folder.path().join(name);
            let output = OutputArgs::default();
            write(&path(file.to_str().unwrap()).unwrap(), &picture, output).unwrap();
            assert!(std::fs::read(file).unwrap().starts_with(first), "{name}");
        }
        assert!(path("a.txt").is_err() && path("svg").is_err());
        let nowhere = Path::new("/nowhere/at/all.svg");
        assert!(write(nowhere, &picture, OutputArgs::default()).is_err());
    }
}
