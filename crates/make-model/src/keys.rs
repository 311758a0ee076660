//! A shape as a file's metadata: what `models` reads, written.

use anyhow::Context as _;
use gguf::{FILE_TYPES, FileType, Writer};
use models::Mixture;

use super::shapes::Shape;

/// What a mixture is called in files and by which number; `None` for types that nothing here quantizes to.
pub(crate) fn file_type(mixture: &Mixture) -> Option<&'static FileType> {
    let made = FILE_TYPES.iter().filter(|ty| ty.name != "IQ3_S");
    made.into_iter().find(|ty| ty.name == mixture.name())
}

/// Sets `general.*` and the keys of the architecture.
///
/// # Errors
/// If the type cannot be made.
pub(crate) fn set(writer: &mut Writer, shape: &Shape, mixture: &Mixture) -> anyhow::Result<()> {
    let refused = || format!("no weights of type `{}` can be made here", mixture.name());
    let number = file_type(mixture).with_context(refused)?.number;
    for (key, value) in shape.outline.keys() {
        writer.set(key, value.clone());
    }
    let name = shape.config.name.as_deref().unwrap_or(&shape.name);
    writer
        .set("general.name", format!("{name} (random weights)"))
        .set("general.file_type", number)
        .set(format!("{}.vocab_size", shape.config.architecture), shape.config.vocab_size as u32);
    Ok(())
}
