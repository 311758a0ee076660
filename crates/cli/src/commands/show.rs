//! `show`: one value, as text for people or as JSON. Whatever comes from the file is escaped.

use std::fmt;
use std::io::Write;

use gguf::{Gguf, escape};
use program::{Gating, Mask, OutputKind, StateCopies};
use serde::Serialize;

use crate::args::ModelArgs;
use crate::guessing;
use crate::{load, naming, units};

/// Show what is in a model file
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight show model.gguf\n  rooflight show model.gguf --tensors\n  \
                        rooflight show model.gguf --program"
)]
pub(super) struct Show {
    #[command(flatten)]
    model: ModelArgs,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// List every key of the metadata
    #[arg(long)]
    metadata: bool,
    /// List the ops of one forward pass
    #[arg(long)]
    program: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let gguf = load::open(&self.model.path("show")?)?;
        let mut summary = Summary::with_model(&gguf, self.program)?;
        if self.tensors {
            summary.tensors = Some(gguf.tensors().iter().map(Tensor::of).collect());
        }
        if self.metadata {
            let pairs = gguf.metadata().iter();
            summary.metadata =
                Some(pairs.map(|(key, value)| (escape(key, 100), value.to_string())).collect());
        }
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &summary)?;
            writeln!(out)?;
        } else {
            write!(out, "{summary}")?;
        }
        Ok(())
    }
}

/// Returns the text that `show` prints about a file and its model; `/show info` in a conversation prints it, too.
pub(crate) fn text(gguf: &Gguf, model: &models::LoadedModel) -> String {
    let dimensions = Dimensions::of(model, guessing::can_guess(model, gguf));
    Summary { model: Some(dimensions), ..Summary::of(gguf) }.to_string()
}

/// What is shown, as people or programs read it.
#[derive(Serialize)]
struct Summary {
    files: Vec<String>,
    gguf_version: u32,
    file_bytes: u64,
    architecture: Option<String>,
    name: Option<String>,
    parameters: u64,
    n_tensors: usize,
    types: Vec<TypeShare>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<Dimensions>,
    tokenizer: Vocabulary,
    chat_template: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Vec<(String, String)>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<Tensor>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
}

#[derive(Serialize)]
struct TypeShare {
    #[serde(rename = "type")]
    ty: String,
    n_tensors: usize,
    bytes: u64,
}

#[derive(Serialize)]
struct Dimensions {
    hidden_size: usize,
    intermediate_size: usize,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    context_length: usize,
    rope_theta: Option<f32>,
    tied_embeddings: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<Window>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latent: Option<Latent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    indexer: Option<Indexer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    experts: Option<Experts>,
    /// Blocks that guess the tokens after the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_guessing: Option<usize>,
    weight_bytes_per_token: u64,
    cache_elements_per_token: u64,
    /// Of a session, read in each step.
    #[serde(skip_serializing_if = "is_zero")]
    state_bytes: u64,
    /// With those that it can go back to.
    #[serde(skip_serializing_if = "is_zero")]
    kept_state_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Layers whose queries see the newest positions only.
#[derive(Serialize)]
struct Window {
    positions: u32,
    n_layers: usize,
}

/// Latent attention.
#[derive(Serialize)]
struct Latent {
    kv_lora_rank: usize,
    q_lora_rank: Option<usize>,
    nope_dim: usize,
    rope_dims: usize,
    value_dim: usize,
}

/// What chooses the positions that attention reads.
#[derive(Serialize)]
struct Indexer {
    n_heads: usize,
    head_dim: usize,
    /// Most that are chosen.
    positions: usize,
    /// Layers that read no others, whether the choice is their own or that of one before them.
    n_layers: usize,
}

/// Mixtures of experts.
#[derive(Clone, Copy, Serialize)]
struct Experts {
    n_experts: usize,
    n_experts_used: usize,
    intermediate_size: usize,
    shared_intermediate_size: usize,
    n_dense_layers: usize,
    gating: &'static str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    groups: Option<Groups>,
}

/// What the model says of a text as a whole.
#[derive(Clone, Copy, Serialize)]
struct Text {
    pooling: &'static str,
    /// Of a vector, or a text's scores.
    numbers: usize,
}

/// Groups of experts.
#[derive(Clone, Copy, Serialize)]
struct Groups {
    n_groups: usize,
    n_groups_used: usize,
}

#[derive(Serialize)]
struct Vocabulary {
    kind: Option<String>,
    pre: Option<String>,
    n_tokens: Option<usize>,
    n_merges: Option<usize>,
    bos: Option<u32>,
    eos: Option<u32>,
    adds_bos: Option<bool>,
}

#[derive(Serialize)]
struct Tensor {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    dims: Vec<u64>,
    bytes: u64,
}

impl Tensor {
    fn of(tensor: &gguf::TensorInfo) -> Self {
        Tensor {
            name: escape(&tensor.name, 100),
            ty: tensor.type_name(),
            dims: tensor.dims.clone(),
            bytes: tensor.byte_len() as u64,
        }
    }
}

impl Dimensions {
    fn of(model: &models::LoadedModel, guesses: bool) -> Self {
        let c = &model.config;
        let layer = c.first_layer();
        let slides = |layer: &&models::LayerConfig| window(layer).is_some();
        let sees_all = c.layers.iter().find(|layer| !slides(layer)).unwrap_or(layer);
        let rope = sees_all.rope.as_ref();
        let experts = c.layers.iter().find_map(|layer| layer.experts.as_ref());
        let n_dense_layers = c.layers.iter().take_while(|layer| layer.experts.is_none()).count();
        Dimensions {
            hidden_size: c.hidden_size,
            intermediate_size: layer.intermediate_size,
            n_layers: c.layers.len(),
            n_heads: layer.n_heads,
            n_kv_heads: layer.n_kv_heads,
            head_dim: layer.head_dim,
            vocab_size: c.vocab_size,
            context_length: c.context_length,
            rope_theta: rope.map(|rope| rope.theta),
            tied_embeddings: c.tied_embeddings,
            window: c.layers.iter().find_map(window).map(|positions| Window {
                positions,
                n_layers: c.layers.iter().filter(slides).count(),
            }),
            text: c.text.as_ref().map(|text| Text {
                pooling: text.pooling.name(),
                numbers: model
                    .program
                    .output(OutputKind::Hidden)
                    .map_or(0, |id| model.program.value(id).shape.cols()),
            }),
            latent: layer.latent.as_ref().map(|latent| Latent {
                kv_lora_rank: latent.kv_lora_rank,
                q_lora_rank: latent.q_lora_rank,
                nope_dim: latent.nope_dim,
                rope_dims: layer.head_dim - latent.nope_dim,
                value_dim: layer.value_dim,
            }),
            indexer: c.layers.iter().find_map(|layer| layer.indexer.as_ref()).map(|its| Indexer {
                n_heads: its.n_heads,
                head_dim: its.head_dim,
                positions: its.n_units * its.unit,
                n_layers: c.layers.iter().filter(|layer| layer.indexer.is_some()).count(),
            }),
            experts: experts.map(|experts| Experts::of(experts, n_dense_layers)),
            n_guessing: guesses.then_some(c.n_guessing),
            weight_bytes_per_token: model.program.weight_bytes_per_token(),
            cache_elements_per_token: model.program.cache_elements_per_token(),
            state_bytes: model.program.state_bytes(),
            kept_state_bytes: model.program.recurrent_bytes(StateCopies::Most),
            notes: model.notes.clone(),
        }
    }
}

/// How many positions a layer's queries see at most, where that is not all.
fn window(layer: &models::LayerConfig) -> Option<u32> {
    match layer.score.mask {
        Mask::Window(n) | Mask::Chunk(n) => Some(n),
        Mask::Around(n) => Some(n.saturating_mul(2).saturating_add(1)),
        Mask::Causal | Mask::Full => None,
    }
}

impl Experts {
    fn of(experts: &models::Experts, n_dense_layers: usize) -> Experts {
        Experts {
            n_experts: experts.n_experts,
            n_experts_used: experts.n_experts_used,
            intermediate_size: experts.intermediate_size,
            shared_intermediate_size: experts.shared_intermediate_size,
            n_dense_layers,
            gating: match experts.gating {
                Gating::Softmax => "softmax",
                Gating::Sigmoid => "sigmoid",
            },
            groups: experts
                .groups
                .map(|groups| Groups { n_groups: groups.n_groups, n_groups_used: groups.n_used }),
        }
    }
}

impl Vocabulary {
    /// From the metadata alone: a vocabulary that cannot be used is still shown.
    fn of(gguf: &Gguf) -> Self {
        let metadata = gguf.metadata();
        let text = |key: &str| metadata.str(key).ok().flatten().map(|text| escape(text, 60));
        let id = |key: &str| metadata.u32(key).ok().flatten();
        let len = |key: &str| metadata.array_len(key).ok().flatten();
        Vocabulary {
            kind: text("tokenizer.ggml.model"),
            pre: text("tokenizer.ggml.pre"),
            n_tokens: len("tokenizer.ggml.tokens"),
            n_merges: len("tokenizer.ggml.merges"),
            bos: id("tokenizer.ggml.bos_token_id"),
            eos: id("tokenizer.ggml.eos_token_id"),
            adds_bos: metadata.bool("tokenizer.ggml.add_bos_token").ok().flatten(),
        }
    }
}

impl Summary {
    /// What the file says, and the model in it if that can be run; on request the ops of its program.
    fn with_model(gguf: &Gguf, program: bool) -> Result<Self, models::Error> {
        let mut summary = Summary::of(gguf);
        // An architecture that cannot be run can still be shown; a model that contradicts itself is an error.
        match models::load(gguf) {
            Ok(model) => {
                summary.model = Some(Dimensions::of(&model, guessing::can_guess(&model, gguf)));
                summary.program = program.then(|| model.program.listing().to_string());
            }
            Err(_) if gguf.tensors().is_empty() => {
                summary.problem = Some("a vocabulary only: there are no tensors".into())
            }
            Err(error @ models::Error::Architecture { .. }) => {
                summary.problem = Some(error.to_string())
            }
            Err(error) => return Err(error),
        }
        Ok(summary)
    }

    fn of(gguf: &Gguf) -> Self {
        let metadata = gguf.metadata();
        let text = |key: &str| metadata.str(key).ok().flatten().map(|text| escape(text, 200));
        let types = naming::bytes_by_type(gguf);
        Summary {
            files: gguf
                .paths()
                .iter()
                .map(|path| escape(path.as_os_str().as_encoded_bytes(), 200))
                .collect(),
            gguf_version: gguf.version(),
            file_bytes: gguf.file_bytes(),
            architecture: text("general.architecture"),
            name: text("general.name"),
            parameters: naming::parameters(gguf),
            n_tensors: gguf.tensors().len(),
            types: types
                .into_iter()
                .map(|(ty, n_tensors, bytes)| TypeShare { ty, n_tensors, bytes })
                .collect(),
            model: None,
            tokenizer: Vocabulary::of(gguf),
            chat_template: metadata.get("tokenizer.chat_template").is_some(),
            problem: None,
            metadata: None,
            tensors: None,
            program: None,
        }
    }
}

/// A name, padded, and what it is.
fn line(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<16}{value}")
}

/// `5`, or `-` where the file does not say.
fn or_dash<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| "-".to_owned(), T::to_string)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            line(f, "file", file)?;
        }
        line(
            f,
            "size",
            format_args!("{} (GGUF v{})", units::bytes(self.file_bytes), self.gguf_version),
        )?;
        line(f, "architecture", or_dash(self.architecture.as_ref()))?;
        line(f, "name", or_dash(self.name.as_ref()))?;
        line(
            f,
            "parameters",
            format_args!("{} in {} tensors", units::count(self.parameters), self.n_tensors),
        )?;
        for share in &self.types {
            line(
                f,
                "type",
                format_args!(
                    "{:<7} {:>5} tensors  {}",
                    share.ty,
                    share.n_tensors,
                    units::bytes(share.bytes)
                ),
            )?;
        }
        if let Some(model) = &self.model {
            write!(f, "{model}")?;
        }
        let v = &self.tokenizer;
        let tokens = or_dash(v.n_tokens.as_ref());
        line(
            f,
            "tokenizer",
            format_args!(
                "{}, pre {}, {tokens} tokens",
                or_dash(v.kind.as_ref()),
                or_dash(v.pre.as_ref())
            ),
        )?;
        line(
            f,
            "bos, eos",
            format_args!("{}, {}", or_dash(v.bos.as_ref()), or_dash(v.eos.as_ref())),
        )?;
        let reads = self.model.as_ref().is_some_and(|model| model.text.is_some());
        match (self.chat_template, reads) {
            (true, _) => line(f, "chat template", "yes")?,
            (false, true) => line(f, "chat template", "none")?,
            (false, false) => line(f, "chat template", "none: ChatML is used")?,
        }
        if let Some(problem) = &self.problem {
            line(f, "cannot run", problem)?;
        }
        for (key, value) in self.metadata.iter().flatten() {
            writeln!(f, "{key} = {value}")?;
        }
        for t in self.tensors.iter().flatten() {
            writeln!(
                f,
                "{:<40} {:<7} {:<24} {}",
                t.name,
                t.ty,
                format!("{:?}", t.dims),
                units::bytes(t.bytes)
            )?;
        }
        f.write_str(self.program.as_deref().unwrap_or_default())
    }
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl fmt::Display for Dimensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "context", format_args!("{} tokens", self.context_length))?;
        line(f, "layers", self.n_layers)?;
        line(
            f,
            "hidden size",
            format_args!("{}, feed-forward {}", self.hidden_size, self.intermediate_size),
        )?;
        line(
            f,
            "heads",
            format_args!(
                "{} of {}, {} for keys and values",
                self.n_heads, self.head_dim, self.n_kv_heads
            ),
        )?;
        if let Some(Text { pooling, numbers }) = self.text {
            let does = if pooling == "rank" { "ranked by scores" } else { "embedded in vectors" };
            line(f, "texts", format_args!("{does} of {numbers}, pooling {pooling}"))?;
        }
        if let Some(Window { positions, n_layers }) = &self.window {
            let of = self.n_layers;
            line(f, "window", format_args!("{positions} tokens on {n_layers} of {of} layers"))?;
        }
        if let Some(Latent { kv_lora_rank, q_lora_rank, nope_dim, rope_dims, value_dim }) =
            &self.latent
        {
            let queries =
                q_lora_rank.map_or_else(String::new, |rank| format!(", queries of {rank}"));
            line(
                f,
                "latents",
                format_args!(
                    "{kv_lora_rank} + {rope_dims} cached, keys {nope_dim} + {rope_dims}, values {value_dim}{queries}"
                ),
            )?;
        }
        if let Some(Indexer { n_heads, head_dim, positions, n_layers }) = &self.indexer {
            let of = self.n_layers;
            line(
                f,
                "indexer",
                format_args!(
                    "{n_heads} heads of {head_dim} choose {positions} positions, on {n_layers} of {of} layers"
                ),
            )?;
        }
        if let Some(experts) = &self.experts {
            line(f, "experts", experts)?;
        }
        if let Some(n) = self.n_guessing {
            let blocks = if n == 1 { "1 block" } else { &*format!("the first of {n} blocks") };
            line(f, "guesses", format_args!("{blocks} behind the layers: --spec mtp"))?;
        }
        line(f, "vocabulary", self.vocab_size)?;
        line(
            f,
            "read per token",
            format_args!("{} of weights", units::bytes(self.weight_bytes_per_token)),
        )?;
        line(
            f,
            "cache per token",
            format_args!("{} in f16", units::bytes(self.cache_elements_per_token * 2)),
        )?;
        if self.state_bytes > 0 {
            let [one, kept] = [self.state_bytes, self.kept_state_bytes].map(units::bytes);
            let text = format_args!("{one} a session, {kept} with those to go back to");
            line(f, "states", text)?;
        }
        self.notes.iter().try_for_each(|note| line(f, "note", note))
    }
}

impl fmt::Display for Experts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, used, width) = (self.n_experts, self.n_experts_used, self.intermediate_size);
        write!(f, "{used} of {n}, feed-forward {width} each, {} gate", self.gating)?;
        if let Some(Groups { n_groups, n_groups_used }) = self.groups {
            write!(f, ", from {n_groups_used} of {n_groups} groups")?;
        }
        if self.shared_intermediate_size > 0 {
            write!(f, ", {} for every token", self.shared_intermediate_size)?;
        }
        match self.n_dense_layers {
            0 => Ok(()),
            1 => f.write_str("; none in the first layer"),
            n => write!(f, "; none in the first {n} layers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_told_in_a_line() {
        let experts = Experts {
            n_experts: 64,
            n_experts_used: 6,
            intermediate_size: 1408,
            shared_intermediate_size: 0,
            n_dense_layers: 0,
            gating: "softmax",
            groups: None,
        };
        assert_eq!(experts.to_string(), "6 of 64, feed-forward 1408 each, softmax gate");
        let groups = Some(Groups { n_groups: 8, n_groups_used: 4 });
        let more = Experts { shared_intermediate_size: 2816, groups, ..experts };
        let text = |n_dense_layers| Experts { n_dense_layers, ..more }.to_string();
        assert!(text(1).contains(", from 4 of 8 groups, 2816 for every token; none"));
        assert!(text(1).ends_with("; none in the first layer"));
        assert!(text(3).ends_with("; none in the first 3 layers"));
    }
}
