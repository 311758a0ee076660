//! Flags and commands of llama.cpp, llama-bench, mlx_lm and Ollama. Each has an equivalent here, or a message about what to do
//! instead.
//!
//! A flag that the typed command has itself is never looked up. The table of flags is in `flags.rs`.

mod flags;

use flags::FLAGS;

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

/// What becomes of a flag of another program.
pub(crate) fn flag(name: &str) -> Option<PeerFlag> {
    FLAGS.iter().find(|(names, _)| names.contains(&name)).map(|(_, becomes)| *becomes)
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
        "a model is loaded as long as its command runs: Ctrl-C ends rooflight serve, and rooflight ps --port N lists what a server \
         has loaded",
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
    use super::PeerFlag::{Ignored, IgnoredSwitch, IgnoredValue, Named, Refused, Switch};
    use super::*;

    /// Flags that llama.cpp documents for `llama-cli`, `llama-completion` and `llama-server`. Source: the README files in its
    /// folder `tools`.
    const OF_LLAMA_CPP: &str = "-cl --cache-list --completion-bash --license --verbose-prompt -t --threads -tb --threads-batch -C \
        --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch --cpu-strict-batch \
        --prio-batch --poll-batch -c --ctx-size -n --predict --n-predict -b --batch-size -ub --ubatch-size --keep --swa-full -fa \
        --flash-attn -p --prompt --perf --no-perf -f --file -bf --binary-file -e --escape --no-escape --rope-scaling --rope-scale \
        --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast \
        -kvo --kv-offload -nkvo --no-kv-offload --repack -nr --no-repack --no-host -ctk --cache-type-k -ctv --cache-type-v -dt \
        --defrag-thold -np --parallel --rpc --mlock --mmap --no-mmap -dio --direct-io -ndio --no-direct-io -lm --load-mode -lzm \
        --lazy-mode --numa -dev --device --list-devices -ot --override-tensor -cmoe --cpu-moe -ncmoe --n-cpu-moe --moe-cache-mib \
        -ncffn --n-cpu-ffn -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -mg --main-gpu -fit --fit -fitt \
        --fit-target -fitc --fit-ctx --check-tensors --override-kv --op-offload --no-op-offload --lora --lora-scaled \
        --control-vector --control-vector-scaled --control-vector-layer-range -m --model -mu --model-url -dr --docker-repo -hf -hfr \
        --hf-repo -hff --hf-file -hfv -hfrv --hf-repo-v -hffv --hf-file-v -hft --hf-token --log-disable --log-file --log-jsonl \
        --no-log-jsonl --log-colors -v --verbose --log-verbose --offline -lv --verbosity --log-verbosity --log-prefix \
        --no-log-prefix --log-timestamps --no-log-timestamps --log-prompts-dir --spec-draft-type-k -ctkd --cache-type-k-draft \
        --spec-draft-type-v -ctvd --cache-type-v-draft --samplers -s --seed --sampler-seq --sampling-seq --ignore-eos --temp \
        --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --typical --typical-p \
        --repeat-last-n --repeat-penalty --presence-penalty --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length \
        --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat \
        --mirostat-lr --mirostat-ent -l --logit-bias --grammar --grammar-file -j --json-schema -jf --json-schema-file -bs \
        --backend-sampling --server-base --display-prompt --no-display-prompt -co --color -ctxcp --ctx-checkpoints \
        --swa-checkpoints -cms --checkpoint-min-step -cram --cache-ram --context-shift --no-context-shift -sys --system-prompt \
        --show-timings --no-show-timings -sysf --system-prompt-file -ptc --print-token-count --prompt-cache --prompt-cache-all \
        --prompt-cache-ro -r --reverse-prompt -sp --special -cnv --conversation -no-cnv --no-conversation -st --single-turn -i \
        --interactive -if --interactive-first -mli --multiline-input --in-prefix-bos --in-prefix --in-suffix --warmup --no-warmup \
        -gan --grp-attn-n -gaw --grp-attn-w -mm --mmproj -mmu --mmproj-url --mmproj-auto --no-mmproj --no-mmproj-auto \
        --mmproj-offload --no-mmproj-offload -mmdev --mmproj-device --image --audio --video --image-min-tokens --image-max-tokens \
        --output-file --chat-template-kwargs --jinja --no-jinja --reasoning-format -rea --reasoning --reasoning-effort \
        --reasoning-budget --reasoning-budget-message --reasoning-preserve --no-reasoning-preserve --chat-template \
        --chat-template-file --skip-chat-parsing --no-skip-chat-parsing --simple-io -lcs --lookup-cache-static -lcd \
        --lookup-cache-dynamic --kv-unified-per-slot -kvu --kv-unified -no-kvu --no-kv-unified --cache-idle-slots \
        --no-cache-idle-slots --spm-infill --pooling -cb --cont-batching -nocb --no-cont-batching --mtmd-batch-max-tokens \
        --video-fps --video-timestamp-interval --video-ffmpeg-dir -a --alias --tags --embd-normalize --host --port --reuse-port \
        --path --cors-origins --cors-methods --cors-headers --cors-credentials --no-cors-credentials --api-prefix --ui-config \
        --webui-config --ui-config-file --webui-config-file --ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy \
        --no-webui-mcp-proxy --tools --tools-runtime --mcp-servers-config --mcp-servers-json -ag --agent -no-ag --no-agent --ui \
        --webui --no-ui --no-webui --embedding --embeddings --rerank --reranking --api-key --api-key-file --ssl-key-file \
        --ssl-cert-file -to --timeout --sse-ping-interval --threads-http --cache-prompt --no-cache-prompt --cache-reuse --metrics \
        --props --slots --no-slots --slot-save-path --media-path --models-dir --models-preset --models-max --models-autoload \
        --no-models-autoload --prefill-assistant --no-prefill-assistant -sps --slot-prompt-similarity --lora-init-without-apply \
        --sleep-idle-seconds --spec-draft-hf -hfd -hfrd --hf-repo-draft --spec-draft-threads -td --threads-draft \
        --spec-draft-threads-batch -tbd --threads-batch-draft --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range \
        -Crd --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll \
        --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-strict-batch \
        --cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch --poll-batch-draft \
        --spec-draft-override-tensor -otd --override-tensor-draft --spec-draft-cpu-moe -cmoed --cpu-moe-draft \
        --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft --spec-draft-n-max --spec-draft-n-min \
        --spec-synth-len --spec-synth-rates --spec-draft-p-split --draft-p-split --spec-draft-p-min --draft-p-min \
        --spec-draft-backend-sampling --no-spec-draft-backend-sampling --spec-draft-sampling --spec-draft-device -devd \
        --device-draft --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-model -md --model-draft \
        --spec-type --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match --spec-ngram-simple-size-n \
        --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m \
        --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits --draft \
        --draft-n --draft-max --draft-min --draft-n-min --spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits \
        --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default --fim-qwen-7b-spec \
        --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default \
        --vision-gemma-12b-default --spec-default";

    /// Flags of Ollama's `run`, `pull` and `show`.
    const OF_OLLAMA: &str = "--keepalive --verbose --insecure --nowordwrap --format --think --hidethinking --truncate --dimensions \
        --modelfile";

    #[test]
    fn every_documented_flag_is_known() {
        let root = crate::commands::command();
        let unknown: Vec<&str> = [OF_LLAMA_CPP, OF_OLLAMA]
            .iter()
            .flat_map(|names| names.split_whitespace())
            .filter(|name| flag(name).is_none())
            .filter(|name| !root.get_subcommands().any(|command| crate::argv::has(command, name)))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn every_flag_is_named_once_and_goes_somewhere() {
        let root = crate::commands::command();
        let exists = |long: &str| root.get_subcommands().any(|one| crate::argv::has(one, long));
        let names: Vec<&str> = FLAGS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        for (i, name) in names.iter().enumerate() {
            assert!(name.starts_with('-'), "{name}");
            assert!(!names[..i].contains(name), "{name} twice");
        }
        for (names, becomes) in FLAGS {
            match becomes {
                Named(long) | Switch(long, _) => {
                    assert!(exists(long), "{names:?} becomes {long}, which no command has");
                }
                Ignored(why) | IgnoredValue(why) | IgnoredSwitch(why) | Refused(why) => {
                    assert!(!why.is_empty(), "{names:?}");
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
        assert!(command("stop").is_some_and(|advice| advice.contains("ps --port")));
        assert_eq!(command("frobnicate"), None);
    }
}
