//! The order in which the samplers of a chain act.

use std::fmt;

use super::stages::{BY_DEFAULT, STAGES};
use crate::{Error, Result};

/// Names under which llama.cpp lists adaptive-p, which draws the token and so is last wherever it stands.
const ADAPTIVE_P: [&str; 2] = ["adaptive_p", "adaptive-p"];

/// Which samplers act, in order. By default all but `infill`, in llama.cpp's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerOrder(Vec<usize>);

impl Default for SamplerOrder {
    fn default() -> Self {
        SamplerOrder((0..BY_DEFAULT).collect())
    }
}

impl SamplerOrder {
    /// From names: `penalties;top_k;temperature`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a name that is none.
    pub fn from_names(text: &str) -> Result<SamplerOrder> {
        SamplerOrder::from_list(text.split(';').map(str::trim).filter(|name| !name.is_empty()))
    }

    /// From names, one by one.
    ///
    /// # Errors
    /// [`Error::Setting`] for a name that is none.
    pub fn from_list<'a>(names: impl Iterator<Item = &'a str>) -> Result<SamplerOrder> {
        let drawn_last = |name: &&str| !ADAPTIVE_P.contains(name);
        let known = |name: &str| STAGES.iter().position(|stage| stage.names().contains(&name));
        let found = names.filter(drawn_last).map(|name| (known(name), name));
        SamplerOrder::once_each(found).map_err(|found| Error::Setting {
            name: "samplers",
            expected: "names, each once, of penalties dry top_n_sigma top_k typ_p top_p min_p xtc temperature infill adaptive_p",
            found,
        })
    }

    /// Of samplers and what they were called; what is none or was there before is the error.
    fn once_each<T: ToString>(
        found: impl Iterator<Item = (Option<usize>, T)>,
    ) -> std::result::Result<SamplerOrder, String> {
        let mut order = Vec::new();
        for (stage, name) in found {
            let stage = stage.filter(|stage| !order.contains(stage));
            order.push(stage.ok_or_else(|| name.to_string().chars().take(40).collect::<String>())?);
        }
        Ok(SamplerOrder(order))
    }

    /// From letters: `ekt`.
    ///
    /// # Errors
    /// [`Error::Setting`] for a letter that is none.
    pub fn from_letters(text: &str) -> Result<SamplerOrder> {
        let known = |letter| STAGES.iter().position(|stage| stage.letter() == letter);
        let letters = text.chars().filter(|&letter| letter != 'a');
        let found = letters.map(|letter| (known(letter), letter));
        SamplerOrder::once_each(found).map_err(|found| Error::Setting {
            name: "sampler-seq",
            expected: "letters of edskypmxti and a, each once",
            found,
        })
    }

    /// Whether the sampler of this name acts.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|&i| STAGES[i].names().contains(&name))
    }

    /// The samplers, in order.
    pub(super) fn stages(&self) -> impl Iterator<Item = &'static dyn super::stages::Stage> + '_ {
        self.0.iter().map(|&i| STAGES[i])
    }
}

impl fmt::Display for SamplerOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|&i| STAGES[i].names()[0]).collect();
        f.write_str(&names.join(";"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_and_written_as_llama_cpp_does() {
        let default = "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature";
        assert_eq!(SamplerOrder::default().to_string(), default);
        assert_eq!(SamplerOrder::from_names(default).unwrap(), SamplerOrder::default());
        assert_eq!(SamplerOrder::from_letters("edskypmxt").unwrap(), SamplerOrder::default());
        let short = SamplerOrder::from_names(" temperature; top-k;adaptive_p;").unwrap();
        assert_eq!(short, SamplerOrder::from_letters("tka").unwrap());
        assert_eq!(short.to_string(), "temperature;top_k");
        assert!(short.has("top_k") && !short.has("min_p"));
        assert_eq!(SamplerOrder::from_names("").unwrap().to_string(), "");
        let listed = SamplerOrder::from_list(["top_k", "infill"].into_iter()).unwrap();
        assert_eq!(listed, SamplerOrder::from_letters("ki").unwrap());
        assert!(!SamplerOrder::default().has("infill"));
    }

    #[test]
    fn what_is_no_sampler_is_named() {
        let names = SamplerOrder::from_names("top_k;bogus").unwrap_err().to_string();
        assert!(names.ends_with("found bogus"), "{names}");
        let letters = SamplerOrder::from_letters("kz").unwrap_err().to_string();
        assert!(letters.ends_with("found z"), "{letters}");
        // what acts twice could act any number of times
        assert!(SamplerOrder::from_letters("kpk").unwrap_err().to_string().ends_with("found k"));
        let twice = SamplerOrder::from_names("top_p;top_k;nucleus").unwrap_err().to_string();
        assert!(twice.ends_with("found nucleus"), "{twice}");
        let long = SamplerOrder::from_names(&"x".repeat(1000)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn every_name_and_letter_means_one_sampler() {
        for stage in STAGES {
            for name in stage.names() {
                let named = STAGES.iter().filter(|other| other.names().contains(name));
                assert_eq!(named.count(), 1, "{name}");
            }
            let lettered = STAGES.iter().filter(|other| other.letter() == stage.letter());
            assert_eq!(lettered.count(), 1, "{}", stage.letter());
        }
    }
}
