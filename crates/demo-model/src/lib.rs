//! The demo model: small, trained by `training/`, and linked into the binary, so that the first command of a newcomer needs no file,
//! no network and no path.

use gguf::Gguf;

/// The model's file, in GGUF.
pub static BYTES: &[u8] = include_bytes!("../assets/rooflight-demo-5m-q8_0.gguf");

/// Default limit of a reply, in tokens: the model was trained on short ones.
pub const REPLY_TOKENS: usize = 256;

/// Opens the model as if it were a file.
///
/// # Errors
/// If the linked file is malformed; a test shows that it is not.
pub fn open() -> gguf::Result<Gguf> {
    Gguf::from_bytes(BYTES.to_vec())
}
