//! The families, one file each. The first whose marks a template holds is its family.

mod apertus;
mod command;
mod deepseek;
mod dsml;
mod functionary;
mod gemma;
mod gigachat;
mod glm;
mod gpt_oss;
mod granite;
mod hermes;
mod kimi;
mod lfm;
mod lists;
mod llama;
mod minicpm;
mod minimax;
mod mistral;
mod qwen_coder;

use crate::CallFamily;

/// What a model is asked for whose template says nothing of tools.
pub(crate) static DEFAULT: &CallFamily = &hermes::FAMILY;

/// All families, those with marks of their own before those whose marks others hold too.
pub static FAMILIES: &[&CallFamily] = &[
    &gpt_oss::FAMILY,
    &gemma::FAMILY,
    &kimi::FAMILY,
    &dsml::FAMILY,
    &deepseek::V3_1,
    &deepseek::R1,
    &minimax::M3,
    &minimax::M2,
    &mistral::FAMILY,
    &apertus::FAMILY,
    &command::FAMILY,
    &lfm::FAMILY,
    &gigachat::FAMILY,
    &granite::FAMILY,
    &qwen_coder::SEED,
    &lists::NEMOTRON,
    &lists::TOOL_CALLS,
    &glm::FAMILY,
    &minicpm::FAMILY,
    &qwen_coder::FAMILY,
    &functionary::FAMILY,
    &hermes::FAMILY,
    &llama::JSON,
    &llama::PYTHON,
];
