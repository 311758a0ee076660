//! Writes charts to files.

use std::path::{Path, PathBuf};

use plot::Picture;

use crate::output::OutputArgs;

/// Parses the path of a chart, which must end in `.svg`.
///
/// # Errors
/// A message with the expected ending.
pub fn path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let ending = path.extension().and_then(|ending| ending.to_str());
    match ending.map(str::to_ascii_lowercase).as_deref() {
        Some("svg") => Ok(path),
        Some("png") => {
            Err("pictures are SVG: name it .svg; browsers and rsvg-convert make a PNG of that"
                .into())
        }
        _ => Err("expected a file that ends in .svg".into()),
    }
}

/// Writes a chart as SVG.
///
/// # Errors
/// Those of [`OutputArgs::write`].
pub fn write(path: &Path, picture: &Picture, output: OutputArgs) -> anyhow::Result<()> {
    output.write(path, picture.svg().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_svg() {
        let folder = tempfile::tempdir().unwrap();
        let picture = plot::Waterfall::new("a").total("b", 1.0).picture();
        for (name, first) in [("a.svg", &b"<svg"[..]), ("b.SVG", b"<svg")] {
            let file = folder.path().join(name);
            let output = OutputArgs::default();
            write(&path(file.to_str().unwrap()).unwrap(), &picture, output).unwrap();
            assert!(std::fs::read(file).unwrap().starts_with(first), "{name}");
        }
        assert!(
            path("a.png").unwrap_err().contains(".svg")
                && path("a.txt").is_err()
                && path("svg").is_err()
        );
        let nowhere = Path::new("/nowhere/at/all.svg");
        assert!(write(nowhere, &picture, OutputArgs::default()).is_err());
    }
}
