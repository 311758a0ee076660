//! A shape as a file's metadata: what `models` reads, written.

use anyhow::Context as _;
use gguf::Writer;
use models::Mixture;

use super::shapes::Shape;

/// Numbers of file types in `general.file_type`.
const FILE_TYPES: &[(&str, u32)] = &[
    ("F32", 0),
    ("F16", 1),
    ("Q4_0", 2),
    ("Q4_1", 3),
    ("Q8_0", 7),
    ("Q5_0", 8),
    ("Q5_1", 9),
    ("Q2_K", 10),
    ("Q3_K_S", 11),
    ("Q3_K_M", 12),
    ("Q3_K_L", 13),
    ("Q4_K_S", 14),
    ("Q4_K_M", 15),
    ("Q5_K_S", 16),
    ("Q5_K_M", 17),
    ("Q6_K", 18),
    ("IQ4_NL", 25),
    ("IQ4_XS", 30),
    ("BF16", 32),
    ("TQ1_0", 36),
    ("TQ2_0", 37),
    ("MXFP4_MOE", 38),
];

/// What a mixture is called in files and by which number; `None` for types that nothing here quantizes to.
pub(crate) fn file_type(mixture: &Mixture) -> Option<&'static (&'static str, u32)> {
    FILE_TYPES.iter().find(|row| row.0 == mixture.name())
}

/// Sets `general.*` and the keys of the architecture.
///
/// # Errors
/// If the type cannot be made.
pub(crate) fn set(writer: &mut Writer, shape: &Shape, mixture: &Mixture) -> anyhow::Result<()> {
    let refused = || format!("no weights of type `{}` can be made here", mixture.name());
    let (_, number) = *file_type(mixture).with_context(refused)?;
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
