//! Which form of latent attention a prompt takes. What each costs: [`MlaDims`].

use program::Prompt;

pub use program::{MlaDims, MlaForm};

/// How the form of latent attention is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MlaChoice {
    /// By cost: long prompts compressed, all else elided.
    #[default]
    Auto,
    /// This one.
    Always(MlaForm),
}

impl MlaChoice {
    /// Every choice, in the order they are listed to users.
    pub fn all() -> impl Iterator<Item = MlaChoice> {
        std::iter::once(MlaChoice::Auto).chain(MlaForm::ALL.into_iter().map(MlaChoice::Always))
    }

    /// The choice with this name.
    pub fn parse(name: &str) -> Option<MlaChoice> {
        Self::all().find(|choice| choice.name() == name)
    }

    /// The name of this choice.
    pub fn name(self) -> &'static str {
        match self {
            MlaChoice::Auto => "auto",
            MlaChoice::Always(form) => form.name(),
        }
    }

    /// The form of a sequence whose tokens are part of `prompt`, if they are of one.
    pub(crate) fn choose(self, dims: &MlaDims, prompt: Option<Prompt>) -> MlaForm {
        match (self, prompt) {
            (MlaChoice::Always(form), _) => form,
            (MlaChoice::Auto, Some(Prompt { start, len })) => {
                dims.prompt_form(start as u64..start.saturating_add(len) as u64)
            }
            (MlaChoice::Auto, None) => MlaForm::Elided,
        }
    }

    /// Whether keys and values of every head are cached instead of latents.
    pub(crate) fn is_expanded(self) -> bool {
        self == MlaChoice::Always(MlaForm::Expanded)
    }

    /// Whether it may bring queries to the latents.
    pub(crate) fn absorbs(self) -> bool {
        match self {
            MlaChoice::Auto | MlaChoice::Always(MlaForm::Absorbed | MlaForm::Elided) => true,
            MlaChoice::Always(MlaForm::Expanded | MlaForm::Compressed) => false,
        }
    }

    /// Whether it may make keys of latents.
    pub(crate) fn expands(self) -> bool {
        match self {
            MlaChoice::Auto | MlaChoice::Always(MlaForm::Expanded | MlaForm::Compressed) => true,
            MlaChoice::Always(MlaForm::Absorbed | MlaForm::Elided) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: MlaDims =
        MlaDims { n_heads: 128, rank: 512, nope_dim: 128, rope_dim: 64, value_dim: 128 };

    #[test]
    fn long_prompts_are_compressed_and_steps_are_not() {
        let form = |start, len| MlaChoice::Auto.choose(&V2, Some(Prompt { start, len }));
        let first = (1..600).find(|&n| form(1_000_000, n) == MlaForm::Compressed);
        assert_eq!(first, Some(171));
        assert_eq!(form(0, 512), MlaForm::Compressed);
        assert_eq!(form(0, 100_000), MlaForm::Compressed);
        assert_eq!(form(1000, 1), MlaForm::Elided);
        assert_eq!(MlaChoice::Auto.choose(&V2, None), MlaForm::Elided);
        let always = MlaChoice::Always(MlaForm::Absorbed);
        assert_eq!(always.choose(&V2, None), MlaForm::Absorbed);
    }

    #[test]
    fn names_are_read_back() {
        let names: Vec<_> = MlaChoice::all().map(MlaChoice::name).collect();
        assert_eq!(names, ["auto", "expanded", "compressed", "absorbed", "elided"]);
        for choice in MlaChoice::all() {
            assert_eq!(MlaChoice::parse(choice.name()), Some(choice));
        }
        assert_eq!(MlaChoice::parse("Elided"), None);
    }
}
