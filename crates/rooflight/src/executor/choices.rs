//! Stored timings of models on the processor and on GPUs. `--executor auto` chooses by them.

use executors::GpuFacts;
use program::Executor;
use serde::{Deserialize, Serialize};

use super::to_run::{GpuProducts, ToRun};
use crate::Runtime;
use crate::machine::ceilings::{self, BUILD};
use crate::predictions::ModelKey;

/// Version of the file. Files of other versions are replaced.
const VERSION: u32 = 4;
const FILE: &str = "executors.json";
/// Maximum number of stored models. The oldest are removed.
const MODELS: usize = 64;

/// Stored timings with their keys.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Choices {
    version: u32,
    /// Newest last.
    choices: Vec<Choice>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Choice {
    #[serde(flatten)]
    key: ChoiceKey,
    #[serde(flatten)]
    times: ChoiceTimes,
}

/// Everything that the timings depend on: the model, the types of its cache, the processor, the GPU and the build.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChoiceKey {
    machine: String,
    adapter: String,
    driver: String,
    build: String,
    type_k: String,
    type_v: String,
    /// Number of layers on the GPU, if the processor runs the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_layers: Option<usize>,
    /// Number of first layers whose experts are on the processor.
    #[serde(default)]
    apart: usize,
    /// Placement rules of tensors, as given on the command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tensors: String,
    /// Whether the GPU multiplies in f32, without rounding the inputs first.
    #[serde(default)]
    exact: bool,
    #[serde(flatten)]
    model: ModelKey,
}

/// Times for a short text on both executors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ChoiceTimes {
    pub(super) cpu_seconds: f64,
    pub(super) gpu_seconds: f64,
    /// Normalized mean squared error of the GPU's logits, relative to the processor's.
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
