//! Flags and commands of other programs, by name: llama.cpp, llama-bench, mlx_lm, Ollama. What they do here, or what does
//! it: nothing of them is dropped without a word.
//!
//! A flag that the typed command has itself is never looked up.

/// What becomes of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerFlag {
    /// The flag of the same meaning here.
    Named(&'static str),
    /// The equivalent flag of Rooflight, and its value if none is given after `=`.
    Switch(&'static str, &'static str),
    /// Left out, and why that changes nothing.
    Ignored(&'static str),
    /// Left out with the value that follows it.
    IgnoredValue(&'static str),
    /// Left out, with a following `on`, `off` or `auto`.
    IgnoredSwitch(&'static str),
    /// Not here: why, or what to do instead.
    Refused(&'static str),
}

use PeerFlag::{Ignored, IgnoredSwitch, IgnoredValue, Named, Refused, Switch};

const BY_NAME: &str = "a model is brought here by its name: -hf org/repo:TYPE";
const BY_SCHEMA: &str = "--json-schema SCHEMA makes replies JSON; true is the schema of any";
const NO_ADAPTER: &str = "adapters are not applied yet: merge them into the model first";
const NO_IMAGE: &str = "there are no models of images or sound yet";
const OF_SERVER: &str = "rooflight serve answers other programs";
const EMBEDS: &str =
    "models that embed texts do without it; serve --pooling mean has a chat model do";
const NO_STATE: &str = "rooflight serve --cache-disk DIR keeps conversations on disk; rooflight run --continue resumes the last one";
const NO_TEMPLATE: &str = "this command reads a text without a chat template";
const CPU_ONLY: &str = "--executor cpu, wgpu, cuda or auto says what computes";
const NO_LOCK: &str = "weights are packed once into memory of their own, which is not locked";
const ALWAYS_PLAIN: &str = "only a terminal gets colours, and none are needed to read it";
const CONVERSATION: &str =
    "rooflight run is a conversation without a prompt, and answers a prompt by the chat template";
const NO_PAGE: &str = "there is no page in the browser yet";
const OS_DECIDES: &str = "the system places threads";
const BATCHED: &str = "requests that run at the same time always share their steps";
const ALWAYS_SERVED: &str = "/metrics, /slots and /props are always there";
const REUSES: &str = "what a prompt shares with an earlier one is always taken from the cache";
const CACHE_MEMORY: &str =
    "--kv-memory bounds the memory of caches, --cache-disk keeps conversations on disk";
const NO_TLS: &str =
    "put a reverse proxy before the server for that, which the server itself does not do";
const DRAFT_LENGTH: &str = "how many tokens are drafted follows from how many were right";
const VERBOSITY: &str = "-v prints details, and serve --log-level says what its log has";

/// Every flag known by name.
pub(crate) static FLAGS: &[(&str, PeerFlag)] = &[
    ("-ngl", Named("--n-gpu-layers")),
    ("-fa", Named("--flash-attn")),
    ("-ctk", Named("--cache-type-k")),
    ("-ctv", Named("--cache-type-v")),
    ("-sys", Named("--system-prompt")),
    ("-tb", Named("--threads-batch")),
    ("-ub", Named("--ubatch-size")),
    ("-md", Named("--model-draft")),
    ("-pg", Named("--pg")),
    ("-rea", Named("--reasoning")),
    ("-jf", Named("--json-schema")),
    ("--max-tokens", Named("--predict")),
    ("--max-new-tokens", Named("--predict")),
    ("--num-predict", Named("--predict")),
    ("--num-ctx", Named("--ctx-size")),
    ("--n-ctx", Named("--ctx-size")),
    ("--max-kv-size", Named("--ctx-size")),
    ("--stop", Named("--reverse-prompt")),
    ("--n-probs", Named("--logprobs")),
    ("--num-threads", Named("--threads")),
    ("--system-message", Named("--system-prompt")),
    ("--allowed-origin", Named("--cors")),
    ("--allowed-origins", Named("--cors")),
    ("--think", Switch("--reasoning", "on")),
    ("--nothink", Switch("--reasoning", "off")),
    ("--jinja", Ignored("templates are always rendered so")),
    ("-st", Ignored("a prompt on the command line is answered once")),
    ("--single-turn", Ignored("a prompt on the command line is answered once")),
    ("-i", Ignored("without a prompt rooflight run is a conversation")),
    ("--interactive", Ignored("without a prompt rooflight run is a conversation")),
    ("--no-mmap", Ignored(NO_LOCK)),
    ("--mmap", Ignored(NO_LOCK)),
    ("--mlock", Ignored(NO_LOCK)),
    ("-mmp", IgnoredValue(NO_LOCK)),
    ("--color", IgnoredSwitch(ALWAYS_PLAIN)),
    ("-co", IgnoredSwitch(ALWAYS_PLAIN)),
    (
        "-e",
        Ignored(
            "what is written as \\n in a prompt stays those two characters: let the shell make line breaks",
        ),
    ),
    (
        "--escape",
        Ignored(
            "what is written as \\n in a prompt stays those two characters: let the shell make line breaks",
        ),
    ),
    ("--no-escape", Ignored("nothing is escaped")),
    ("--log-disable", Ignored("there is no log: stderr is quiet but on a terminal or with -v")),
    ("--no-display-prompt", Ignored("the prompt is never printed")),
    ("--simple-io", Ignored("pipes get plain text")),
    ("--no-perf", Ignored("times are told on a terminal or with -v")),
    ("--perf", Ignored("times are told on a terminal or with -v")),
    ("--no-warmup", Ignored("only rooflight bench warms up, always")),
    ("--no-context-shift", Ignored("a full context stops the reply")),
    ("--context-shift", Refused("in a conversation /set context-full drop-oldest does it")),
    ("--progress", Ignored("a terminal is shown progress")),
    ("-kvu", Ignored("there is one cache")),
    ("--kv-unified", Ignored("there is one cache")),
    ("-nkvo", Ignored(CPU_ONLY)),
    ("--no-kv-offload", Ignored(CPU_ONLY)),
    ("-sm", IgnoredValue(CPU_ONLY)),
    ("--split-mode", IgnoredValue(CPU_ONLY)),
    ("-mg", IgnoredValue(CPU_ONLY)),
    ("--main-gpu", IgnoredValue(CPU_ONLY)),
    ("-ts", IgnoredValue(CPU_ONLY)),
    ("--tensor-split", IgnoredValue(CPU_ONLY)),
    ("-dev", IgnoredValue(CPU_ONLY)),
    ("--device", IgnoredValue(CPU_ONLY)),
    ("-ot", Named("--override-tensor")),
    ("-ncmoe", Named("--n-cpu-moe")),
    ("-cmoe", Named("--cpu-moe")),
    ("--numa", IgnoredValue(OS_DECIDES)),
    ("--prio", IgnoredValue(OS_DECIDES)),
    ("--poll", IgnoredValue(OS_DECIDES)),
    ("-C", IgnoredValue(OS_DECIDES)),
    ("--cpu-mask", IgnoredValue(OS_DECIDES)),
    ("--cpu-strict", IgnoredValue(OS_DECIDES)),
    ("--delay", IgnoredValue("tests follow one another at once")),
    ("--keepalive", IgnoredValue("nothing stays loaded after the command")),
    ("-np", Named("--parallel")),
    ("--parallel", Refused("there is one conversation at a time: rooflight batch runs several")),
    ("-hf", Named("--model")),
    ("-hfr", Named("--model")),
    ("-hff", Refused(BY_NAME)),
    ("-mu", Refused(BY_NAME)),
    ("--hf-repo", Named("--model")),
    ("--hf-file", Refused(BY_NAME)),
    ("--model-url", Refused(BY_NAME)),
    ("-mm", Refused(NO_IMAGE)),
    ("--mmproj", Refused(NO_IMAGE)),
    ("--image", Refused(NO_IMAGE)),
    ("--audio", Refused(NO_IMAGE)),
    ("-cnv", Ignored(CONVERSATION)),
    ("--conversation", Ignored(CONVERSATION)),
    ("-no-cnv", Refused("`rooflight complete` continues a text without a chat template")),
    ("--no-conversation", Refused("`rooflight complete` continues a text without a chat template")),
    ("--format", Refused(BY_SCHEMA)),
    ("--lora", Refused(NO_ADAPTER)),
    ("--lora-scaled", Refused(NO_ADAPTER)),
    ("--adapter-path", Refused(NO_ADAPTER)),
    ("--control-vector", Refused(NO_ADAPTER)),
    ("-sysf", Named("--system-prompt-file")),
    ("--chat-template", Refused(NO_TEMPLATE)),
    ("--chat-template-kwargs", Refused("--reasoning on and off tell a template to think or not")),
    ("--no-webui", Ignored(NO_PAGE)),
    ("--webui", Ignored(NO_PAGE)),
    (
        "--verbose-prompt",
        Refused("rooflight template prints the prompt, rooflight tokenize its tokens"),
    ),
    ("--no-warnings", Refused("warnings go to stderr: 2>/dev/null drops them")),
    ("--prompt-cache", Refused(NO_STATE)),
    ("--slot-save-path", Refused(NO_STATE)),
    ("--override-kv", Refused("metadata is used as it stands in the file")),
    (
        "--keep",
        Refused(
            "a full context stops the reply; /set context-full drop-oldest keeps the system message",
        ),
    ),
    ("--host", Refused(OF_SERVER)),
    ("--port", Refused(OF_SERVER)),
    ("--api-key", Refused(OF_SERVER)),
    ("-oe", Refused("results go to stdout, in one format")),
    ("-rpc", Refused("one machine computes")),
    ("--rpc", Refused("one machine computes")),
    ("--embd-output-format", Refused("--json prints what OpenAI's API returns")),
    ("--embd-separator", Refused("each argument, or each line of a file, is a text")),
    ("--cls-separator", Refused("--query has the question, and each text is an answer")),
    ("--attention", Refused("the file says what its queries see")),
    ("--embedding", Ignored(EMBEDS)),
    ("--embeddings", Ignored(EMBEDS)),
    ("--rerank", Refused("rooflight embed --query ranks texts")),
    ("--reranking", Refused("rooflight embed --query ranks texts")),
    ("-cb", Ignored(BATCHED)),
    ("--cont-batching", Ignored(BATCHED)),
    ("-nocb", Refused(BATCHED)),
    ("--no-cont-batching", Refused(BATCHED)),
    ("--metrics", Ignored(ALWAYS_SERVED)),
    ("--slots", Ignored(ALWAYS_SERVED)),
    ("--props", Ignored(ALWAYS_SERVED)),
    ("--cache-prompt", Ignored(REUSES)),
    ("--cache-reuse", IgnoredValue(REUSES)),
    ("-sps", IgnoredValue(REUSES)),
    ("--slot-prompt-similarity", IgnoredValue(REUSES)),
    ("-cram", Refused(CACHE_MEMORY)),
    ("--cache-ram", Refused(CACHE_MEMORY)),
    ("--threads-http", IgnoredValue("connections need no option")),
    ("--ssl-key-file", Refused(NO_TLS)),
    ("--ssl-cert-file", Refused(NO_TLS)),
    ("--api-prefix", Refused(NO_TLS)),
    ("--path", Refused(NO_PAGE)),
    (
        "--models-dir",
        Refused("give the models as arguments: the first is loaded at once, others on demand"),
    ),
    ("--draft-min", IgnoredValue(DRAFT_LENGTH)),
    ("--draft-p-min", IgnoredValue(DRAFT_LENGTH)),
    ("-lv", Refused(VERBOSITY)),
    ("--verbosity", Refused(VERBOSITY)),
    ("--log-verbosity", Refused(VERBOSITY)),
    ("--offline", Refused("HF_HUB_OFFLINE=1 in the environment forbids downloads")),
];

/// What becomes of a flag of another program.
pub(crate) fn flag(name: &str) -> Option<PeerFlag> {
    FLAGS.iter().find(|(known, _)| *known == name).map(|(_, becomes)| *becomes)
}

/// Commands of other programs, with what to do here.
static COMMANDS: &[(&[&str], &str)] = &[
    (&["server", "start", "api"], "rooflight serve MODEL.gguf answers other programs over HTTP"),
    (
        &["get", "download", "push", "search", "login"],
        "rooflight pull NAME brings a model here: org/repo:TYPE, or a short name (rooflight pull --names)",
    ),
    (
        &["cp", "tags"],
        "rooflight list says which models are here, rooflight show MODEL what is in one, rooflight plan --list which are published",
    ),
    (
        &["stop", "unload", "status"],
        "nothing stays loaded: a model is there as long as its command runs; rooflight ps asks a server",
    ),
    (
        &["chat", "talk", "cli", "interactive"],
        "rooflight run MODEL.gguf is a conversation; without a model the bundled demo answers",
    ),
    (
        &["generate", "completion", "infer"],
        "rooflight run MODEL.gguf 'PROMPT' answers, rooflight complete MODEL.gguf 'TEXT' continues a text",
    ),
    (
        &["create"],
        "there are no Modelfiles: rooflight run takes --chat-template, -sys, --temp and the like, requests to rooflight serve have them as fields; \
         rooflight pull brings a model",
    ),
    (
        &["update", "upgrade"],
        "a newer version comes from where this one came from; rooflight version tells which it is",
    ),
    (&["logs"], "rooflight serve writes its log to stderr, or into a file: --log-file FILE"),
    (
        &["quantize", "convert", "imatrix", "quant"],
        "models are not converted or quantized yet: llama.cpp's llama-quantize does that, and its files run here",
    ),
    (
        &["embedding", "embeddings", "rerank", "reranking"],
        "rooflight embed -m MODEL.gguf 'TEXT' turns texts into vectors, with --query it ranks them",
    ),
    (&["info", "inspect"], "rooflight show MODEL.gguf tells what is in a file"),
    (
        &["doctor", "tune", "benchmark"],
        "rooflight machine measures this machine, rooflight bench MODEL.gguf a model on it",
    ),
    (&["batched-bench"], "rooflight bench --turns 1,8,32 measures several texts at once"),
];

/// What to do in place of another program's command.
pub(crate) fn command(name: &str) -> Option<&'static str> {
    let name = name.strip_prefix("llama-").unwrap_or(name);
    COMMANDS.iter().find(|(names, _)| names.contains(&name)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_is_named_once_and_goes_somewhere() {
        let run = crate::commands::command();
        let flags: Vec<&clap::Arg> =
            run.get_subcommands().flat_map(clap::Command::get_arguments).collect();
        let exists = |long: &str| {
            let long = long.trim_start_matches("--");
            flags.iter().any(|arg| {
                arg.get_long() == Some(long)
                    || arg.get_all_aliases().unwrap_or_default().contains(&long)
            })
        };
        for (i, (name, becomes)) in FLAGS.iter().enumerate() {
            assert!(name.starts_with('-'), "{name}");
            assert!(FLAGS[..i].iter().all(|(other, _)| other != name), "{name} twice");
            match becomes {
                Named(long) => assert!(exists(long), "{name} becomes {long}, which no command has"),
                Switch(long, _) => assert!(exists(long), "{name}"),
                Ignored(why) | IgnoredValue(why) | IgnoredSwitch(why) | Refused(why) => {
                    assert!(!why.is_empty(), "{name}")
                }
            }
        }
    }

    #[test]
    fn no_command_of_ours_is_called_foreign() {
        let root = crate::commands::command();
        for ours in root.get_subcommands() {
            assert_eq!(command(ours.get_name()), None, "{}", ours.get_name());
        }
        assert!(command("llama-quantize").is_some() && command("server").is_some());
        assert_eq!(command("frobnicate"), None);
    }
}
