//! [`Outline`]: what the file of a model would say of it, where there is no file.

use gguf::{Gguf, OwnedValue, Writer};

use crate::{ModelConfig, Result};

/// The keys of a model without a file, as its file would have them, and the tensors whose presence says something.
///
/// ```
/// let mut outline = models::Outline::new("qwen2", 151_936);
/// for (key, value) in [("block_count", 24u32), ("embedding_length", 896), ("attention.head_count", 14)] {
///     outline.set(key, value);
/// }
/// outline.set("feed_forward_length", 4864u32).set("attention.head_count_kv", 2u32);
/// outline.set("context_length", 32_768u32).set("attention.layer_norm_rms_epsilon", 1e-6f32);
/// let config = outline.config()?;
/// assert_eq!((config.layers.len(), config.first_layer().head_dim), (24, 64));
/// # Ok::<(), models::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    architecture: String,
    vocab_size: usize,
    keys: Vec<(String, OwnedValue)>,
    tensors: Vec<String>,
}

impl Outline {
    /// Of an architecture with this name and an embedding table of `vocab_size` rows, which is the head as well.
    pub fn new(architecture: &str, vocab_size: usize) -> Outline {
        let architecture = architecture.to_owned();
        let keys = vec![("general.architecture".to_owned(), architecture.as_str().into())];
        Outline { architecture, vocab_size, keys, tensors: Vec::new() }
    }

    /// Give the model a name.
    pub fn name(&mut self, name: &str) -> &mut Outline {
        self.put("general.name".to_owned(), name.into());
        self
    }

    /// Set a key, given without the architecture's prefix. The last value set is the one.
    pub fn set(&mut self, key: &str, value: impl Into<OwnedValue>) -> &mut Outline {
        self.put(format!("{}.{key}", self.architecture), value.into());
        self
    }

    fn put(&mut self, key: String, value: OwnedValue) {
        self.keys.retain(|(known, _)| *known != key);
        self.keys.push((key, value));
    }

    /// Leave the first `n_layers` layers, and of what is said layer by layer what is said of these.
    pub fn cut(&mut self, n_layers: usize) -> &mut Outline {
        let count = format!("{}.block_count", self.architecture);
        let all = self.keys.iter().find_map(|(key, value)| match value {
            OwnedValue::U32(all) if *key == count => Some(*all as usize),
            _ => None,
        });
        for (_, value) in &mut self.keys {
            match value {
                OwnedValue::Array(_, values) if Some(values.len()) == all => {
                    values.truncate(n_layers);
                }
                _ => {}
            }
        }
        self.set("block_count", u32::try_from(n_layers).unwrap_or(u32::MAX))
    }

    /// Leave a key out.
    pub fn unset(&mut self, key: &str) -> &mut Outline {
        let key = format!("{}.{key}", self.architecture);
        self.keys.retain(|(known, _)| *known != key);
        self
    }

    /// Give the embedding table this many rows.
    pub fn vocab_size(&mut self, vocab_size: usize) -> &mut Outline {
        self.vocab_size = vocab_size;
        self
    }

    /// The model has this tensor: `output.weight` where the head is a matrix of its own, for one.
    pub fn tensor(&mut self, name: &str) -> &mut Outline {
        self.tensors.push(name.to_owned());
        self
    }

    /// Whole keys and their values, the architecture's name among them.
    pub fn keys(&self) -> impl Iterator<Item = (&str, &OwnedValue)> {
        self.keys.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The hyper-parameters that this says.
    ///
    /// # Errors
    /// As of a file: a key that is missing or out of range.
    pub fn config(&self) -> Result<ModelConfig> {
        let mut writer = Writer::new();
        for (key, value) in &self.keys {
            writer.set(key.clone(), value.clone());
        }
        let file = Gguf::from_bytes(writer.to_bytes()?)?;
        let hidden_size = file.metadata().u64(&format!("{}.embedding_length", self.architecture));
        let hidden_size = hidden_size?.unwrap_or_default();
        let dims = |name: &str| match name {
            "token_embd.weight" => Some(vec![hidden_size, self.vocab_size as u64]),
            _ => self.tensors.iter().any(|known| known == name).then(Vec::new),
        };
        ModelConfig::read(file.metadata(), &dims).map(|(config, _)| config)
    }
}
