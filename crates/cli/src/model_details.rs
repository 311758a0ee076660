//! Details of a model's file that a server reports to programs that show or choose models.

use gguf::{Gguf, Metadata, Value as MetadataValue};
use serde_json::{Map, Value, json};
use server::ModelDetails;
use tokenizer::InfillMarks;

use crate::naming;

/// Maximum number of metadata keys reported, and maximum length in bytes of a text among them.
const MOST_KEYS: usize = 256;
const MOST_TEXT: usize = 1000;
/// Key of the chat template, which has a field of its own in [`ModelDetails`].
const TEMPLATE: &str = "tokenizer.chat_template";

/// Returns the details in the model's file. Invalid entries are omitted here: loading the model reports them.
pub(crate) fn of(gguf: &Gguf) -> ModelDetails {
    let metadata = gguf.metadata();
    let text = |key: &str| metadata.str(key).ok().flatten().unwrap_or_default().to_owned();
    let template = text(TEMPLATE);
    ModelDetails {
        parameters: naming::parameters(gguf),
        // spelled as in Ollama and in file names
        quantization: naming::declared_type(gguf)
            .map_or_else(|| naming::main_type(gguf), |ty| ty.name.to_owned()),
        thinks: engine::template_thinks(&template),
        template,
        license: text("general.license"),
        settings: settings(metadata),
        fills_holes: InfillMarks::from_gguf(metadata).ok().flatten().is_some(),
        metadata: scalars(metadata),
    }
}

/// Returns sampler settings that the file recommends and that differ from the defaults.
fn settings(metadata: &Metadata) -> Vec<(String, String)> {
    let (usual, own) =
        (engine::SamplerOptions::default(), rooflight::file::recommended_sampler(metadata).0);
    let changed = engine::SAMPLER_SETTINGS.iter().filter_map(|setting| {
        let value = setting.show(&own);
        (value != setting.show(&usual)).then(|| (setting.name.replace('-', "_"), value))
    });
    changed.collect()
}

/// Returns the metadata without the chat template; lists are replaced by null.
fn scalars(metadata: &Metadata) -> Map<String, Value> {
    let pairs = metadata.iter().filter(|(key, _)| *key != TEMPLATE && key.len() <= MOST_TEXT);
    let json_of = |(key, value): (&str, MetadataValue<'_>)| (key.to_owned(), scalar(&value));
    pairs.take(MOST_KEYS).map(json_of).collect()
}

fn scalar(value: &MetadataValue<'_>) -> Value {
    match value {
        MetadataValue::String(text) => {
            let text = String::from_utf8_lossy(text);
            let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= MOST_TEXT);
            json!(text[..end.unwrap_or(text.len())])
        }
        MetadataValue::Bool(value) => json!(value),
        // through text: 0.6 and not 0.6000000238418579
        MetadataValue::F32(value) => json!(value.to_string().parse::<f64>().ok()),
        MetadataValue::F64(value) => json!(value),
        MetadataValue::Array(_) => Value::Null,
        other => {
            let number = other.as_integer();
            let signed = number.and_then(|n| i64::try_from(n).ok()).map(Value::from);
            let large = || number.and_then(|n| u64::try_from(n).ok()).map(Value::from);
            signed.or_else(large).unwrap_or(Value::Null)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details(set: impl FnOnce(&mut gguf::Writer)) -> ModelDetails {
        let mut writer = gguf::Writer::new();
        writer.set("general.architecture", "qwen2");
        set(&mut writer);
        of(&Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap())
    }

    #[test]
    fn a_file_says_its_type_template_and_licence() {
        let told = details(|writer| {
            writer.set("general.file_type", 15_u32);
            writer.set("general.license", "apache-2.0");
            writer.set("general.sampling.temp", 0.6_f32);
            writer.set(TEMPLATE, "{{ messages }}</think>");
            writer.set("qwen2.block_count", 2_u32);
            writer.set("general.tags", vec![1_u32]);
            writer.set("general.description", &*"x".repeat(5000));
        });
        assert_eq!((&*told.quantization, &*told.license), ("Q4_K_M", "apache-2.0"));
        assert!(told.thinks && !told.fills_holes && told.template.contains("messages"));
        assert_eq!(told.metadata["qwen2.block_count"], 2);
        assert_eq!(told.metadata["general.tags"], Value::Null);
        assert_eq!(told.metadata["general.description"].as_str().unwrap().len(), MOST_TEXT);
        assert!(!told.metadata.contains_key(TEMPLATE), "it has a field of its own");
        assert_eq!(told.settings, [("temperature".to_owned(), "0.6".to_owned())]);
        let plain = details(|writer| {
            writer.set(TEMPLATE, "{{ messages }}");
        });
        assert!(!plain.thinks && plain.settings.is_empty());
    }

    /// A type that the tensors contradict is not reported.
    #[test]
    fn the_type_is_that_of_the_tensors_if_the_metadata_is_wrong() {
        let quantization = |number: u32| {
            let told = details(|writer| {
                writer.set("general.file_type", number);
                writer.tensor("a", quant::GgmlType::Q8_0, &[32], vec![0; 34]);
            });
            told.quantization
        };
        assert_eq!([0, 1, 7, 15].map(quantization), ["Q8_0", "Q8_0", "Q8_0", "Q4_K_M"]);
    }

    /// No file can make the server's list of models long.
    #[test]
    fn what_is_told_is_bounded() {
        let told = details(|writer| {
            for i in 0..2000 {
                writer.set(format!("x.{i}"), i);
            }
        });
        assert_eq!(told.metadata.len(), MOST_KEYS);
    }
}
