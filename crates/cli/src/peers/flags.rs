//! The table of flags of other programs. Each row has the spellings of one meaning.

use super::PeerFlag::{self, Ignored, IgnoredSwitch, IgnoredValue, Named, Refused, Switch};

const BY_NAME: &str = "a model is brought here by its name: -hf org/repo:TYPE";
const BY_SCHEMA: &str = "--json-schema SCHEMA makes replies JSON; true is the schema of any";
const BY_SHORT_NAME: &str =
    "rooflight run NAME brings a model here: rooflight pull --names lists short names";
const NO_ADAPTER: &str = "adapters are not applied yet: merge them into the model first";
const NO_IMAGE: &str = "there are no models of images or sound yet";
const OF_SERVER: &str = "rooflight serve answers other programs";
const EMBEDS: &str =
    "models that embed texts do without it; serve --pooling mean has a chat model do";
const NO_STATE: &str = "rooflight serve --cache-disk DIR keeps conversations on disk; rooflight run --continue resumes the last one";
const NO_TEMPLATE: &str = "this command reads a text without a chat template";
const JINJA: &str = "chat templates are always rendered by Jinja";
const FRAMED: &str = "the chat template puts marks around messages: --chat-template gives another one; `rooflight complete` continues a text as it is";
const CPU_ONLY: &str = "--executor cpu, wgpu, cuda or auto says what computes";
const LAYERS: &str = "-ngl says how many layers the GPU has, -ot and -ncmoe move experts";
const NO_LOCK: &str = "weights are packed once into memory of their own, which is not locked";
const PACKED: &str = "weights are always packed for what computes";
const ALWAYS_PLAIN: &str = "only a terminal gets colours, and none are needed to read it";
const CONVERSATION: &str =
    "rooflight run is a conversation without a prompt, and answers a prompt by the chat template";
const ONCE: &str = "a prompt on the command line is answered once";
const TALKS: &str = "without a prompt rooflight run is a conversation";
const ESCAPES: &str =
    "what is written as \\n in a prompt stays those two characters: let the shell make line breaks";
const NO_PAGE: &str = "there is no page in the browser yet";
const OS_DECIDES: &str = "the system places threads";
const ONE_CACHE: &str = "there is one cache";
const BATCHED: &str = "requests that run at the same time always share their steps";
const ALWAYS_SERVED: &str = "/metrics, /slots and /props are always there";
const REUSES: &str = "what a prompt shares with an earlier one is always taken from the cache";
const CACHE_MEMORY: &str =
    "--kv-memory bounds the memory of caches, --cache-disk keeps conversations on disk";
const NO_TLS: &str =
    "put a reverse proxy before the server for that, which the server itself does not do";
const ORIGINS: &str = "pages of a --cors origin may use all methods and headers";
const NO_TOOLS: &str = "nothing is run here: requests bring their tools, and clients run them";
const FITS: &str =
    "what fits on a GPU is placed there unless -ngl says what, and -c is the context";
const TIMES: &str = "times are told on a terminal or with -v";
const WARM: &str = "only rooflight bench warms up, always";
const LOG_LINES: &str = "each line of the log of rooflight serve has its time and level";
const DRAFTS: &str = "rooflight run --spec MODE says what drafts; rooflight serve drafts by the texts of its requests";
const DRAFT_LENGTH: &str = "how many tokens are drafted follows from how many were right";
const DRAFT_BESIDE: &str = "a draft model runs where the model runs, on the same threads";
const VERBOSITY: &str = "-v prints details, and serve --log-level says what its log has";

/// Every flag known by name.
#[rustfmt::skip]
pub(super) static FLAGS: &[(&[&str], PeerFlag)] = &[
    // the same under another name
    (&["-ngl"], Named("--n-gpu-layers")),
    (&["-fa"], Named("--flash-attn")),
    (&["-ctk"], Named("--cache-type-k")),
    (&["-ctv"], Named("--cache-type-v")),
    (&["-sys", "--system-message"], Named("--system-prompt")),
    (&["-sysf"], Named("--system-prompt-file")),
    (&["-tb"], Named("--threads-batch")),
    (&["-ub"], Named("--ubatch-size")),
    (&["-md", "--spec-draft-model", "--spec-draft-hf", "-hfd", "-hfrd", "--hf-repo-draft"], Named("--model-draft")),
    (&["--spec-draft-n-max", "--num-draft-tokens"], Named("--draft-max")),
    (&["-pg"], Named("--pg")),
    (&["-rea", "--reasoning-budget", "--reasoning-effort"], Named("--reasoning")),
    (&["--think"], Switch("--reasoning", "on")),
    (&["--nothink"], Switch("--reasoning", "off")),
    (&["-jf"], Named("--json-schema")),
    (&["--max-tokens", "--max-new-tokens", "--num-predict"], Named("--predict")),
    (&["--num-ctx", "--n-ctx", "--max-kv-size", "--kv-unified-per-slot"], Named("--ctx-size")),
    (&["--stop"], Named("--reverse-prompt")),
    (&["--n-probs"], Named("--logprobs")),
    (&["--num-threads"], Named("--threads")),
    (&["--allowed-origin", "--allowed-origins", "--cors-origins"], Named("--cors")),
    (&["--sleep-idle-seconds"], Named("--keepalive")),
    (&["-ot"], Named("--override-tensor")),
    (&["-ncmoe"], Named("--n-cpu-moe")),
    (&["-cmoe"], Named("--cpu-moe")),
    (&["-np"], Named("--parallel")),
    (&["-hf", "-hfr", "--hf-repo"], Named("--model")),
    (&["--log-verbose"], Named("--verbose")),
    (&["--no-show-timings"], Named("--quiet")),
    // conversations and prompts
    (&["--jinja", "--no-jinja"], Ignored(JINJA)),
    (&["--in-prefix", "--in-suffix", "--in-prefix-bos"], Refused(FRAMED)),
    (&["--chat-template", "--chat-template-file"], Refused(NO_TEMPLATE)),
    (&["--chat-template-kwargs"], Refused("--reasoning on and off tell a template to think or not")),
    (&["-st", "--single-turn"], Ignored(ONCE)),
    (&["-i", "--interactive", "-if", "--interactive-first"], Ignored(TALKS)),
    (&["-cnv", "--conversation"], Ignored(CONVERSATION)),
    (&["-no-cnv", "--no-conversation"], Refused("`rooflight complete` continues a text without a chat template")),
    (&["-mli", "--multiline-input"], Ignored("\"\"\" begins and ends a message of several lines")),
    (&["-e", "--escape"], Ignored(ESCAPES)),
    (&["--no-escape"], Ignored("nothing is escaped")),
    (&["-bf", "--binary-file"], Refused("-f FILE reads a text")),
    (&["--prompt-cache", "--prompt-cache-all", "--prompt-cache-ro", "--slot-save-path"], Refused(NO_STATE)),
    (&["--keep"], Refused("a full context stops the reply; /set context-full drop-oldest keeps the system message")),
    (&["--context-shift"], Refused("in a conversation /set context-full drop-oldest does it")),
    (&["--no-context-shift"], Ignored("a full context stops the reply")),
    (&["-gan", "--grp-attn-n", "-gaw", "--grp-attn-w"], Refused("--rope-scaling and --rope-scale reach beyond the context that a model was made for")),
    (&["--prefill-assistant"], Ignored("a last message of the assistant is always continued")),
    (&["--no-prefill-assistant"], Refused("a request with add_generation_prompt begins another message")),
    (&["--spm-infill"], Ignored("the order of a hole and what is around it follows from the model's file")),
    (&["--server-base"], Refused("rooflight run loads the model itself; any client of OpenAI's API talks to a server")),
    // reasoning
    (&["--reasoning-format"], IgnoredValue("thoughts are always separate from the reply: on stderr, or in reasoning_content of a server")),
    (&["--reasoning-budget-message"], IgnoredValue("the budget is passed to the chat template, and no message is put into thoughts")),
    (&["--reasoning-preserve", "--no-reasoning-preserve"], Ignored("the chat template decides which thoughts of earlier replies it keeps")),
    (&["--skip-chat-parsing"], Refused("thoughts and calls are always told apart; `rooflight complete` prints a text as it is written")),
    (&["--no-skip-chat-parsing"], Ignored("thoughts and calls are always told apart")),
    // output
    (&["--format"], Refused(BY_SCHEMA)),
    (&["-sp", "--special"], Refused("control tokens are never printed: --json has the ids of all tokens, rooflight template --tokens those of a prompt")),
    (&["--color", "-co", "--log-colors"], IgnoredSwitch(ALWAYS_PLAIN)),
    (&["--simple-io"], Ignored("pipes get plain text")),
    (&["--display-prompt", "--no-display-prompt"], Ignored("the prompt is never printed")),
    (&["--verbose-prompt"], Refused("rooflight template prints the prompt, rooflight tokenize its tokens")),
    (&["-ptc", "--print-token-count"], IgnoredValue("the line below a reply counts the tokens of the context")),
    (&["--perf", "--no-perf", "--show-timings"], Ignored(TIMES)),
    (&["--progress"], Ignored("a terminal is shown progress")),
    (&["--output-file"], Refused("the reply goes to stdout: > FILE keeps it")),
    (&["-oe"], Refused("results go to stdout, in one format")),
    (&["--no-warnings"], Refused("warnings go to stderr: 2>/dev/null drops them")),
    (&["--log-disable"], Ignored("there is no log: stderr is quiet but on a terminal or with -v")),
    (&["--log-file"], Refused("messages go to stderr: redirect them with 2> FILE; rooflight serve --log-file FILE has a log")),
    (&["--log-prefix", "--no-log-prefix", "--log-timestamps", "--no-log-timestamps"], Ignored(LOG_LINES)),
    (&["--no-log-jsonl"], Ignored("the log is lines of text unless --log-jsonl is given")),
    (&["--log-prompts-dir"], Refused("rooflight serve --log-prompts logs what is said and answered")),
    (&["-lv", "--verbosity", "--log-verbosity"], Refused(VERBOSITY)),
    (&["-cl", "--cache-list"], Refused("rooflight list names the models that are here")),
    (&["--completion-bash"], Refused("rooflight completions bash prints it")),
    (&["--license"], Refused("rooflight licenses prints them; rooflight show MODEL --metadata has a model's")),
    (&["--list-devices"], Refused("rooflight without arguments names what this machine has, rooflight machine measures it")),
    (&["--modelfile"], Refused("there are no Modelfiles: rooflight show MODEL --metadata has all that a file says")),
    // loading, memory, what computes
    (&["--no-mmap", "--mmap", "--mlock", "-dio", "--direct-io", "-ndio", "--no-direct-io"], Ignored(NO_LOCK)),
    (&["-mmp", "-lm", "--load-mode", "-lzm", "--lazy-mode"], IgnoredValue(NO_LOCK)),
    (&["--repack", "-nr", "--no-repack", "--no-host"], Ignored(PACKED)),
    (&["--check-tensors"], Ignored("a step that computes NaN or infinity is an error; rooflight trace finds the first such value")),
    (&["--override-kv"], Refused("metadata is used as it stands in the file")),
    (&["-nkvo", "--no-kv-offload", "-kvo", "--kv-offload", "--op-offload", "--no-op-offload"], Ignored(CPU_ONLY)),
    (&["-sm", "--split-mode", "-mg", "--main-gpu", "-ts", "--tensor-split", "-dev", "--device"], IgnoredValue(CPU_ONLY)),
    (&["-fit", "--fit"], IgnoredSwitch(FITS)),
    (&["-fitc", "--fit-ctx"], IgnoredValue("the context is what -c says, and not made smaller to fit")),
    (&["-fitt", "--fit-target"], Refused("--gpu-memory SIZE says how much of a GPU is used")),
    (&["--moe-cache-mib"], Refused("--gpu-memory SIZE says how much of a GPU is used")),
    (&["-ncffn", "--n-cpu-ffn"], Refused(LAYERS)),
    (&["-bs", "--backend-sampling"], Ignored("a GPU finds the likeliest tokens itself where it computes")),
    (&["-rpc", "--rpc"], Refused("one machine computes")),
    (&["--numa", "--prio", "--prio-batch", "--poll", "--poll-batch", "-C", "--cpu-mask", "-Cr", "--cpu-range", "--cpu-strict",
       "-Cb", "--cpu-mask-batch", "-Crb", "--cpu-range-batch", "--cpu-strict-batch"], IgnoredValue(OS_DECIDES)),
    (&["--no-warmup", "--warmup"], Ignored(WARM)),
    (&["--delay"], IgnoredValue("tests follow one another at once")),
    (&["--keepalive"], IgnoredValue("nothing stays loaded after the command")),
    // the cache
    (&["-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"], Ignored(ONE_CACHE)),
    (&["--swa-full"], Ignored("layers with a sliding window cache what later tokens can see")),
    (&["-dt", "--defrag-thold"], IgnoredValue("caches are made of blocks, which need not lie together")),
    (&["-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", "-cms", "--checkpoint-min-step", "--cache-reuse", "-sps",
       "--slot-prompt-similarity"], IgnoredValue(REUSES)),
    (&["--cache-prompt", "--no-cache-prompt", "--cache-idle-slots", "--no-cache-idle-slots"], Ignored(REUSES)),
    (&["-cram", "--cache-ram"], Refused(CACHE_MEMORY)),
    // models
    (&["-hff", "-mu", "--hf-file", "--model-url", "-dr", "--docker-repo"], Refused(BY_NAME)),
    (&["-hft", "--hf-token"], Refused("HF_TOKEN in the environment is the token")),
    (&["--offline"], Refused("HF_HUB_OFFLINE=1 in the environment forbids downloads")),
    (&["--insecure"], Refused("a hub without TLS is given by its address: HF_ENDPOINT=http://HOST")),
    (&["--lora", "--lora-scaled", "--lora-init-without-apply", "--adapter-path", "--control-vector", "--control-vector-scaled",
       "--control-vector-layer-range"], Refused(NO_ADAPTER)),
    (&["-mm", "--mmproj", "-mmu", "--mmproj-url", "--image", "--audio", "--video", "--media-path", "--image-min-tokens",
       "--image-max-tokens", "--mtmd-batch-max-tokens", "--video-fps", "--video-timestamp-interval", "--video-ffmpeg-dir",
       "-mv", "--model-vocoder", "-hfv", "-hfrv", "--hf-repo-v", "-hffv", "--hf-file-v", "--tts-use-guide-tokens",
       "--vision-gemma-4b-default", "--vision-gemma-12b-default"], Refused(NO_IMAGE)),
    (&["--mmproj-auto", "--no-mmproj", "--no-mmproj-auto", "--mmproj-offload", "--no-mmproj-offload"], Ignored(NO_IMAGE)),
    (&["-mmdev", "--mmproj-device"], IgnoredValue(NO_IMAGE)),
    (&["--gpt-oss-20b-default", "--gpt-oss-120b-default", "--embd-gemma-default", "--fim-qwen-1.5b-default",
       "--fim-qwen-3b-default", "--fim-qwen-7b-default", "--fim-qwen-7b-spec", "--fim-qwen-14b-spec",
       "--fim-qwen-30b-default"], Refused(BY_SHORT_NAME)),
    // drafts
    (&["--draft-min", "--draft-n-min", "--spec-draft-n-min", "--draft-p-min", "--spec-draft-p-min", "--draft-p-split",
       "--spec-draft-p-split", "--spec-draft-sampling", "--spec-ngram-mod-n-min", "--spec-ngram-mod-n-max",
       "--spec-ngram-mod-n-match", "--spec-ngram-simple-size-n", "--spec-ngram-simple-size-m", "--spec-ngram-simple-min-hits",
       "--spec-ngram-map-k-size-n", "--spec-ngram-map-k-size-m", "--spec-ngram-map-k-min-hits", "--spec-ngram-map-k4v-size-n",
       "--spec-ngram-map-k4v-size-m", "--spec-ngram-map-k4v-min-hits", "--spec-ngram-size-n", "--spec-ngram-size-m",
       "--spec-ngram-min-hits"], IgnoredValue(DRAFT_LENGTH)),
    (&["--spec-type", "-lcs", "--lookup-cache-static", "-lcd", "--lookup-cache-dynamic", "--spec-synth-len",
       "--spec-synth-rates"], Refused(DRAFTS)),
    (&["--spec-default"], Ignored("tokens are drafted where that is faster")),
    (&["--spec-draft-type-k", "-ctkd", "--cache-type-k-draft", "--spec-draft-type-v", "-ctvd", "--cache-type-v-draft"],
       IgnoredValue("the cache of a draft model has the types of -ctk and -ctv")),
    (&["--spec-draft-threads", "-td", "--threads-draft", "--spec-draft-threads-batch", "-tbd", "--threads-batch-draft",
       "--spec-draft-override-tensor", "-otd", "--override-tensor-draft", "--spec-draft-n-cpu-moe", "--spec-draft-ncmoe",
       "-ncmoed", "--n-cpu-moe-draft", "--spec-draft-device", "-devd", "--device-draft", "--spec-draft-ngl", "-ngld",
       "--gpu-layers-draft", "--n-gpu-layers-draft"], IgnoredValue(DRAFT_BESIDE)),
    (&["--spec-draft-cpu-moe", "-cmoed", "--cpu-moe-draft", "--spec-draft-backend-sampling",
       "--no-spec-draft-backend-sampling"], Ignored(DRAFT_BESIDE)),
    (&["--spec-draft-cpu-mask", "-Cd", "--cpu-mask-draft", "--spec-draft-cpu-range", "-Crd", "--cpu-range-draft",
       "--spec-draft-cpu-strict", "--cpu-strict-draft", "--spec-draft-prio", "--prio-draft", "--spec-draft-poll", "--poll-draft",
       "--spec-draft-cpu-mask-batch", "-Cbd", "--cpu-mask-batch-draft", "--spec-draft-cpu-strict-batch",
       "--cpu-strict-batch-draft", "--spec-draft-prio-batch", "--prio-batch-draft", "--spec-draft-poll-batch",
       "--poll-batch-draft"], IgnoredValue(OS_DECIDES)),
    // embeddings
    (&["--embd-output-format"], Refused("--json prints what OpenAI's API returns")),
    (&["--embd-separator"], Refused("each argument, or each line of a file, is a text")),
    (&["--cls-separator"], Refused("--query has the question, and each text is an answer")),
    (&["--attention"], Refused("the file says what its queries see")),
    (&["--embedding", "--embeddings"], Ignored(EMBEDS)),
    (&["--rerank", "--reranking"], Refused("rooflight embed --query ranks texts")),
    (&["--dimensions", "--truncate"], Refused("requests to rooflight serve say it: dimensions, truncate")),
    // servers
    (&["--host", "--port", "--api-key"], Refused(OF_SERVER)),
    (&["--parallel"], Refused("there is one conversation at a time: rooflight batch runs several")),
    (&["-cb", "--cont-batching"], Ignored(BATCHED)),
    (&["-nocb", "--no-cont-batching"], Refused(BATCHED)),
    (&["--metrics", "--slots", "--no-slots", "--props"], Ignored(ALWAYS_SERVED)),
    (&["--threads-http"], IgnoredValue("connections need no option")),
    (&["-to", "--timeout"], IgnoredValue("replies take as long as they need; a client that reads nothing for 30 s is gone")),
    (&["--sse-ping-interval"], IgnoredValue("streams have no pings, and the server closes none for being quiet")),
    (&["--reuse-port"], Refused("one server listens at a port: --port 0 takes a free one")),
    (&["--ssl-key-file", "--ssl-cert-file", "--api-prefix"], Refused(NO_TLS)),
    (&["--cors-methods", "--cors-headers"], IgnoredValue(ORIGINS)),
    (&["--cors-credentials", "--no-cors-credentials"], Ignored(ORIGINS)),
    (&["--path"], Refused(NO_PAGE)),
    (&["--no-webui", "--webui", "--ui", "--no-ui", "--no-ui-mcp-proxy", "--no-webui-mcp-proxy"], Ignored(NO_PAGE)),
    (&["--ui-config", "--webui-config", "--ui-config-file", "--webui-config-file"], IgnoredValue(NO_PAGE)),
    (&["--ui-mcp-proxy", "--webui-mcp-proxy"], Refused(NO_PAGE)),
    (&["-ag", "--agent", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json"], Refused(NO_TOOLS)),
    (&["-no-ag", "--no-agent"], Ignored(NO_TOOLS)),
    (&["--tags"], IgnoredValue("models have names alone: -a A,B")),
    (&["--models-dir"], Refused("give the folder as the argument: rooflight serve FOLDER")),
    (&["--models-preset"], Refused("give the models as arguments, and -a NAMES once for each")),
    (&["--models-max"], IgnoredValue("as many models are loaded as memory has room for; --keepalive unloads idle ones")),
    (&["--models-autoload"], Ignored("models are loaded on demand")),
    (&["--no-models-autoload"], Refused("models are loaded on demand; serve only those that may be")),
];
