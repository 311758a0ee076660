//! Texts that come from outside: an argument, a file, stdin. All of them become UTF-8 here, or an error that says where
//! they are none.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::exit::Failure;
use crate::output::shown;

/// Where a text is from. `-` is stdin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TextSource {
    /// The command line itself.
    Argument(OsString),
    /// A file.
    File(PathBuf),
    /// What is piped in, or typed up to Ctrl-D.
    Stdin,
}

impl TextSource {
    /// An argument that is a text.
    pub(crate) fn of_argument(text: OsString) -> Self {
        if text == "-" { Self::Stdin } else { Self::Argument(text) }
    }

    /// An argument that names a file.
    pub(crate) fn of_path(path: PathBuf) -> Self {
        if path.as_os_str() == "-" { Self::Stdin } else { Self::File(path) }
    }

    /// The whole text, without a byte order mark.
    ///
    /// # Errors
    /// If the text cannot be read; [`rooflight::Error::Malformed`] if it is not UTF-8.
    pub(crate) fn read(self) -> anyhow::Result<String> {
        Ok(match self {
            Self::Argument(text) => decode(text.into_encoded_bytes(), "the text given")?,
            Self::File(path) => read_file(&path)?,
            Self::Stdin => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).context("reading stdin")?;
                decode(bytes, "stdin")?
            }
        })
    }
}

fn read_file(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", shown(path)))?;
    Ok(decode(bytes, &shown(path))?)
}

/// UTF-8 from bytes of `source`.
fn decode(mut bytes: Vec<u8>, source: &str) -> rooflight::Result<String> {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(rooflight::Error::Malformed(format!(
            "{source} is UTF-16, as PowerShell's > writes: expected UTF-8; save it as UTF-8 first"
        )));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let line_start = bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
        rooflight::Error::Malformed(format!(
            "{source}: line {line}, byte {}: expected UTF-8, found 0x{:02X}; \
             if it is Latin-1, iconv -f latin1 -t utf-8 converts it",
            at - line_start + 1,
            bytes[at]
        ))
    })
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A prompt with something in it.
///
/// # Errors
/// [`Failure::Usage`] for one without: what filled it, `"$(cat missing)"` say, has failed.
pub(crate) fn filled(prompt: String) -> Result<String, Failure> {
    if prompt.trim().is_empty() {
        return Err(Failure::Usage("the prompt is empty".into()));
    }
    Ok(prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf8_gets_in() {
        let told = |bytes: &[u8]| decode(bytes.to_vec(), "a.txt").map_err(|e| e.to_string());
        assert_eq!(told(b"\xef\xbb\xbfhi\n").as_deref(), Ok("hi\n"));
        assert_eq!(told("gr\u{fc}n".as_bytes()).as_deref(), Ok("gr\u{fc}n"));
        let error = told(b"one\ntwo\nabc\xe9 x").unwrap_err();
        assert!(error.starts_with("a.txt: line 3, byte 4: expected UTF-8, found 0xE9"), "{error}");
        assert!(told(b"\xff\xfeh\0i\0").unwrap_err().contains("UTF-16"));
        assert!(told(b"\xe2\x82").unwrap_err().contains("line 1, byte 1"), "cut in a character");
    }

    #[test]
    fn a_dash_is_stdin() {
        assert_eq!(TextSource::of_argument("-".into()), TextSource::Stdin);
        assert_eq!(TextSource::of_path("-".into()), TextSource::Stdin);
        assert_eq!(TextSource::of_argument("--".into()), TextSource::Argument("--".into()));
    }

    #[test]
    fn prompts_have_something_in_them() {
        assert!(filled(" \n".into()).is_err() && filled(String::new()).is_err());
        assert_eq!(filled(" a".into()).unwrap(), " a");
    }
}
