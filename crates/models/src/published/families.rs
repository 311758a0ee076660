//! The published models, family by family.
//!
//! Source: the `config.json` of each model. Factors of the rotation's frequencies, which are a tensor, are not given.

mod deepseek;
mod dense;
mod gemma;
mod llama;
mod mixtures;
mod qwen;
mod recurrent;

use super::family::Family;

/// Every family.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    let makers = [
        qwen::FAMILIES,
        llama::FAMILIES,
        gemma::FAMILIES,
        dense::FAMILIES,
        mixtures::FAMILIES,
        deepseek::FAMILIES,
        recurrent::FAMILIES,
    ];
    makers.into_iter().flatten()
}
