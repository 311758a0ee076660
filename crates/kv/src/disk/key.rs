//! [`ContentKey`]: what kept blocks were computed from and by.

/// All that the bytes of blocks depend on. Blocks are of use only where every part is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContentKey {
    /// Hash of the tokens.
    pub tokens: String,
    /// Hash of the model.
    pub model: String,
    /// What attention keeps and reads, with its settings.
    pub policy: String,
    /// Types of keys and values in the caches.
    pub cache_types: String,
    /// The executor.
    pub executor: String,
    /// The device it runs on.
    pub device: String,
    /// The instruction set of its kernels.
    pub isa: String,
    /// The version of its kernels, and of how blocks are laid out.
    pub kernels: String,
    /// The form in which latents are attended to.
    pub latent_form: String,
}

impl ContentKey {
    /// Parts of a key.
    pub const PARTS: usize = 9;

    /// Its parts by name.
    pub(super) fn parts(&self) -> [(&'static str, &str); ContentKey::PARTS] {
        [
            ("tokens", &self.tokens),
            ("model", &self.model),
            ("policy", &self.policy),
            ("cache types", &self.cache_types),
            ("executor", &self.executor),
            ("device", &self.device),
            ("instruction set", &self.isa),
            ("kernels", &self.kernels),
            ("latent form", &self.latent_form),
        ]
    }

    /// The first part that differs but for the tokens: its name, what it is here, what it is there.
    pub fn differs<'a>(
        &'a self,
        other: &'a ContentKey,
    ) -> Option<(&'static str, &'a str, &'a str)> {
        let pairs = self.parts().into_iter().zip(other.parts()).skip(1);
        let mut pairs = pairs.map(|((name, ours), (_, theirs))| (name, ours, theirs));
        pairs.find(|(_, ours, theirs)| ours != theirs)
    }

    /// A key of these parts, in the order of its fields.
    pub fn of(parts: [String; ContentKey::PARTS]) -> ContentKey {
        let [tokens, model, policy, cache_types, executor, device, isa, kernels, latent_form] =
            parts;
        ContentKey {
            tokens,
            model,
            policy,
            cache_types,
            executor,
            device,
            isa,
            kernels,
            latent_form,
        }
    }
}
