//! Describes a model file to the user: title, size and quantization type.

use gguf::{FileType, Gguf};
use models::ModelConfig;

use crate::units;

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 60;

/// Returns the name of the model with its size, such as `SmolLM2 135M Instruct` or `Gemma 3 270M`. If the file has no name,
/// uses the architecture.
pub fn title(gguf: &Gguf) -> String {
    let name = text(gguf, "general.name").or_else(|| text(gguf, "general.basename"));
    let name = name.or_else(|| text(gguf, "general.architecture"));
    let name = name.unwrap_or_else(|| "model".into());
    let size = size(gguf);
    // a name such as "Qwen2.5-7B-Instruct" already contains the size
    let says = |word: &str| word.eq_ignore_ascii_case(&size);
    let named = name.split(|c: char| c.is_whitespace() || "-_()".contains(c)).any(says);
    if named { name } else { format!("{name} {size}") }
}

/// Returns architecture, size and type in the format of llama-bench: `gemma3 270M Q4_K - Medium`.
pub fn description(gguf: &Gguf, config: &ModelConfig) -> String {
    let architecture = gguf::escape(&config.architecture, 40);
    format!("{architecture} {} {}", size(gguf), file_type(gguf))
}

/// Returns the size label of the file, or the number of weights if there is no label.
fn size(gguf: &Gguf) -> String {
    text(gguf, "general.size_label").unwrap_or_else(|| units::count(parameters(gguf)))
}

/// Returns the quantization type of the file, such as `Q4_K - Medium`. If the metadata has no type, or it contradicts the
/// tensors, returns the tensor type that takes the most bytes.
pub fn file_type(gguf: &Gguf) -> String {
    declared_type(gguf).map_or_else(|| main_type(gguf), |ty| ty.description.to_owned())
}

/// Returns the file type from the metadata. Returns `None` if there is none, or if it contradicts the tensors.
pub fn declared_type(gguf: &Gguf) -> Option<&'static FileType> {
    let number = gguf.metadata().u64("general.file_type").ok().flatten()?;
    let main = main_type(gguf);
    let is_float = ["F32", "F16", "BF16"].contains(&&*main);
    FileType::from_number(number)
        .filter(|ty| ty.is_float == is_float && (!is_float || ty.name == main))
}

/// Returns the number of weights in all tensors.
pub fn parameters(gguf: &Gguf) -> u64 {
    gguf.tensors().iter().map(|t| t.elements()).fold(0, u64::saturating_add)
}

/// Returns the tensor type that takes the most bytes.
pub fn main_type(gguf: &Gguf) -> String {
    let largest = bytes_by_type(gguf).into_iter().max_by_key(|(_, _, bytes)| *bytes);
    largest.map_or_else(|| "no tensors".to_owned(), |(ty, _, _)| ty)
}

/// Returns the name, number of tensors and number of bytes of each tensor type in the file, in the order of type numbers.
pub fn bytes_by_type(gguf: &Gguf) -> Vec<(String, usize, u64)> {
    let mut types = std::collections::BTreeMap::new();
    for tensor in gguf.tensors() {
        let (_, n, bytes) =
            types.entry(tensor.type_number()).or_insert_with(|| (tensor.type_name(), 0, 0_u64));
        *n += 1;
        *bytes += tensor.byte_len() as u64;
    }
    types.into_values().collect()
}

/// Returns a string of the metadata, escaped for printing. Returns `None` if it is missing or empty.
fn text(gguf: &Gguf, key: &str) -> Option<String> {
    let text = gguf.metadata().str(key).ok().flatten()?.trim();
    (!text.is_empty()).then(|| gguf::escape(text, MAX_NAME))
}

#[cfg(test)]
mod tests {
    use quant::GgmlType;

    use super::*;

    fn file(name: Option<&str>, label: Option<&str>) -> Gguf {
        let bytes = conformance::demo_gguf_with(|writer| {
            for (key, text) in [("general.name", name), ("general.size_label", label)] {
                if let Some(text) = text {
                    writer.set(key, text);
                }
            }
        });
        Gguf::from_bytes(bytes).unwrap()
    }

    #[test]
    fn models_are_named_with_their_size() {
        for (name, label, want) in [
            ("SmolLM2 135M Instruct", Some("135M"), "SmolLM2 135M Instruct"),
            ("Qwen2.5-7b-Instruct", Some("7B"), "Qwen2.5-7b-Instruct"),
            ("Gemma 3", Some("270M"), "Gemma 3 270M"),
            ("Gemma 3\u{1b}[31m", Some("270M"), "Gemma 3\\u{1b}[31m 270M"),
        ] {
            assert_eq!(title(&file(Some(name), label)), want);
        }
        let unlabelled = title(&file(Some("Phi"), None));
        assert!(unlabelled.starts_with("Phi ") && unlabelled.len() > 4, "{unlabelled}");
    }

    /// Most tensors of a small Q4_K_M model have other types, because most rows are too short for blocks of 256.
    #[test]
    fn the_type_is_that_of_the_file_unless_its_tensors_contradict_it() {
        let of = |number: Option<u32>, ty: GgmlType| {
            let mut writer = gguf::Writer::new();
            if let Some(number) = number {
                writer.set("general.file_type", number);
            }
            let bytes = vec![0; ty.block_bytes() * 4096 / ty.block_len()];
            writer.tensor("a", ty, &[4096], bytes);
            file_type(&Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap())
        };
        assert_eq!(of(Some(15), GgmlType::Q8_0), "Q4_K - Medium");
        assert_eq!(of(Some(7), GgmlType::Q8_0), "Q8_0");
        assert_eq!(of(Some(0), GgmlType::Q8_0), "Q8_0", "not F32");
        assert_eq!(of(Some(15), GgmlType::F16), "F16", "not quantized");
        assert_eq!(of(Some(0), GgmlType::F16), "F16");
        for number in [None, Some(4), Some(u32::MAX)] {
            assert_eq!(of(number, GgmlType::Q8_0), "Q8_0", "{number:?}");
        }
    }
}
