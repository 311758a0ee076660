//! Formats paths for messages.

use std::path::Path;

/// Maximum length of a path in a message, in characters.
const MAX_PATH: usize = 200;

/// Returns a path that is safe to print: control characters are escaped, and long paths are truncated.
pub fn shown(path: &Path) -> String {
    gguf::escape(path.as_os_str().as_encoded_bytes(), MAX_PATH)
}
