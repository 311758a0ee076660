//! The stored times of models on the processor and on GPUs, by which `auto` chooses.

use executors::GpuFacts;
use program::Executor;
use serde::{Deserialize, Serialize};

use super::to_run::{GpuProducts, ToRun};
use crate::Runtime;
use crate::machine::ceilings::{self, BUILD};
use crate::predictions::ModelKey;

/// Of the file; files of other versions are written anew.
const VERSION: u32 = 4;
const FILE: &str = "executors.json";
/// Models that are remembered, the latest.
const MODELS: usize = 64;

/// What was measured, by what it depends on.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Choices {
    version: u32,
    /// The latest last.
    choices: Vec<Choice>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Choice {
    #[serde(flatten)]
    key: ChoiceKey,
    #[serde(flatten)]
    times: ChoiceTimes,
}

/// A model and the types of its cache, a processor and a GPU.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChoiceKey {
    machine: String,
    adapter: String,
    driver: String,
    build: String,
    type_k: String,
    type_v: String,
    /// Layers on the GPU, where others are on the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_layers: Option<usize>,
    /// Layers whose experts are apart.
    #[serde(default)]
    apart: usize,
    /// Tensors that are named, in the words of the command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tensors: String,
    /// Whether the GPU rounds nothing before it multiplies.
    #[serde(default)]
    exact: bool,
    #[serde(flatten)]
    model: ModelKey,
}

/// What a short text took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChoiceTimes {
    pub(super) cpu_seconds: f64,
    pub(super) gpu_seconds: f64,
    /// Of the GPU's logits beside the processor's, normalized and squared.
    pub(super) error: f64,
}

impl ChoiceKey {
    pub(super) fn new(
        cpu: &dyn Executor,
        gpu: &GpuFacts,
        apart: usize,
        it: &ToRun<'_>,
    ) -> ChoiceKey {
        ChoiceKey {
            machine: ceilings::machine(cpu),
            adapter: gpu.adapter.clone(),
            driver: gpu.driver.clone(),
            build: BUILD.to_owned(),
            type_k: it.cache.k.name().to_owned(),
            type_v: it.cache.v.name().to_owned(),
            gpu_layers: gpu.beside,
            apart: if gpu.beside.is_some() { apart } else { 0 },
            tensors: it.asked.tensors.clone(),
            exact: it.products == GpuProducts::F32,
            model: ModelKey::of(it.program),
        }
    }
}

impl Choices {
    pub(super) fn read(runtime: &Runtime) -> Choices {
        let choices: Option<Choices> = runtime.read(FILE);
        choices.filter(|choices| choices.version == VERSION).unwrap_or_default()
    }

    pub(super) fn find(&self, key: &ChoiceKey) -> Option<ChoiceTimes> {
        let found = self.choices.iter().find(|choice| choice.key == *key)?;
        Some(found.times)
    }

    pub(super) fn keep(runtime: &Runtime, key: ChoiceKey, times: ChoiceTimes) {
        let mut all = Choices { version: VERSION, ..Choices::read(runtime) };
        all.choices.retain(|choice| choice.key != key);
        all.choices.push(Choice { key, times });
        let old = all.choices.len().saturating_sub(MODELS);
        all.choices.drain(..old);
        runtime.write(FILE, &all);
    }
}
