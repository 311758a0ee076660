//! Options that say what of a long past is read: the policy of a session's cache.

use console::counts;
use program::{
    BlockAnchor, BlockSharing, Certificate, ContextMemory, FarPositions, KvPolicy, Program,
    Smoothing,
};

/// A policy by the name people know it by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PolicyName {
    /// Everything is read
    #[default]
    Full,
    /// The first and the latest tokens (StreamingLLM)
    Window,
    /// These, and the blocks that promise most, at a fixed distance (InfLLM)
    Infllm,
    /// These, and the blocks that promise most to each key-value head, where they are (Quest)
    Quest,
}

/// What of the past is read.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PolicyArgs {
    /// What is read of a long context: full (all), window (first and latest tokens), infllm (and the best blocks), quest [default: full]
    #[arg(long, value_name = "POLICY", value_enum, hide_possible_values = true)]
    kv_policy: Option<PolicyName>,
    /// First tokens that are always read; by default from the model's context, as all of these
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = counts::any)]
    kv_init: Option<usize>,
    /// Latest tokens that are always read
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = counts::tokens)]
    kv_local: Option<usize>,
    /// Tokens in a block: 64, 128
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = block, hide_possible_values = true)]
    kv_block: Option<u32>,
    /// Blocks that are read of the others
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = counts::any)]
    kv_blocks: Option<usize>,
    /// What stands for a block: bounds (greatest and least of each channel), mean, max, fixed (keys at equal distances), products or mass (keys that later queries ask for), all (every key, to measure by)
    #[arg(long, value_name = "ANCHOR", requires = "kv_policy", value_parser = named(&BlockAnchor::ALL, BlockAnchor::name), hide_possible_values = true)]
    kv_anchor: Option<BlockAnchor>,
    /// Keys whose mean stands for a block, by fixed, products or mass
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = counts::tokens)]
    kv_representatives: Option<usize>,
    /// Heads that choose blocks together: layer, kv-head
    #[arg(long, value_name = "HEADS", requires = "kv_policy", value_parser = named(&BlockSharing::ALL, BlockSharing::name), hide_possible_values = true)]
    kv_share: Option<BlockSharing>,
    /// Where tokens stand that are not among the latest: fixed (all at one distance), exact
    #[arg(long, value_name = "WHERE", requires = "kv_policy", value_parser = named(&FarPositions::ALL, FarPositions::name), hide_possible_values = true)]
    kv_positions: Option<FarPositions>,
    /// Layers at the start that read everything
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = counts::any)]
    kv_dense_layers: Option<usize>,
    /// Groups of 16 blocks whose blocks are looked at to choose, those that promise most; 0: all [default: as hold 65,536 tokens]
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = counts::any)]
    kv_supers: Option<usize>,
    /// Tokens for which blocks are chosen once, by the first of them: 1, 2, 4, 8, 16, 32, 64 [default: 1]
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = token_step, hide_possible_values = true)]
    kv_token_step: Option<u32>,
    /// Layers for which blocks are chosen once, in the first of them [default: 1]
    #[arg(long, value_name = "N", requires = "kv_policy", value_parser = counts::tokens)]
    kv_layer_step: Option<usize>,
    /// Choose blocks by this share of what a token asks for and the rest of what those before it did: 0 to 1, such as 0.05 [default: 1]
    #[arg(long, value_name = "SHARE", requires = "kv_policy", value_parser = smoothing)]
    kv_smooth: Option<Smoothing>,
    /// Read more blocks until at most this share of any head's attention is left out, proven by bounds: 0 to 1
    #[arg(long, value_name = "SHARE", requires = "kv_policy", value_parser = certificate)]
    kv_eps: Option<Certificate>,
}

fn certificate(text: &str) -> Result<Certificate, String> {
    let share = text.parse().ok().and_then(Certificate::new);
    share.ok_or_else(|| "expected a share from 0 to 1, such as 0.01".into())
}

fn block(text: &str) -> Result<u32, String> {
    let known = text.parse().ok().filter(|n| ContextMemory::BLOCKS.contains(n));
    known.ok_or_else(|| "expected 64 or 128".into())
}

fn smoothing(text: &str) -> Result<Smoothing, String> {
    let share = text.parse().ok().and_then(Smoothing::new);
    share.ok_or_else(|| "expected a share of more than 0 and at most 1, such as 0.05".into())
}

fn token_step(text: &str) -> Result<u32, String> {
    let known = text.parse().ok().filter(|n| ContextMemory::TOKEN_STEPS.contains(n));
    known.ok_or_else(|| "expected 1, 2, 4, 8, 16, 32 or 64".into())
}

/// Values by their names.
fn named<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        all.iter().copied().find(|value| name(*value) == text).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|value| name(*value)).collect();
            format!("expected one of {}", names.join(", "))
        })
    }
}

impl PolicyArgs {
    /// The policy for a model trained on so many positions.
    pub(crate) fn policy(&self, trained: usize) -> KvPolicy {
        let mut memory = ContextMemory::suited(trained);
        match self.kv_policy.unwrap_or_default() {
            PolicyName::Full => return KvPolicy::Full,
            PolicyName::Window => memory.n_blocks = 0,
            PolicyName::Infllm => {}
            PolicyName::Quest => {
                memory.positions = FarPositions::Exact;
                memory.sharing = BlockSharing::KvHead;
                memory.dense_layers = 2;
            }
        }
        if let Some(block) = self.kv_block {
            memory.n_blocks = (memory.n_blocks * memory.block).div_ceil(block);
            memory.block = block;
        }
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX / 2);
        let whole = |n: u32| n.next_multiple_of(memory.block);
        memory.n_init = whole(self.kv_init.map_or(memory.n_init, number));
        memory.n_local = whole(self.kv_local.map_or(memory.n_local, number));
        memory.n_blocks = self.kv_blocks.map_or(memory.n_blocks, number);
        memory.anchor = self.kv_anchor.unwrap_or(memory.anchor);
        let representatives = self.kv_representatives.map_or(memory.n_representatives, number);
        memory.n_representatives = representatives;
        memory.sharing = self.kv_share.unwrap_or(memory.sharing);
        memory.positions = self.kv_positions.unwrap_or(memory.positions);
        memory.dense_layers = self.kv_dense_layers.map_or(memory.dense_layers, number);
        memory.certificate = self.kv_eps;
        memory.token_step = self.kv_token_step.unwrap_or(memory.token_step);
        memory.layer_step = self.kv_layer_step.map_or(memory.layer_step, number);
        // 1 is what there is without
        memory.smoothing = self.kv_smooth.filter(|smoothing| smoothing.share() < 1.0);
        memory.n_supers = self.kv_supers.map_or_else(|| memory.suited_supers(), number);
        KvPolicy::Memory(memory)
    }

    /// Whether a setting was given that a policy without blocks, or without anything to leave out, does not have.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let name = self.kv_policy.unwrap_or_default();
        let choice = [
            ("--kv-blocks", self.kv_blocks.is_some() && name == PolicyName::Full),
            ("--kv-anchor", self.kv_anchor.is_some()),
            ("--kv-share", self.kv_share.is_some()),
            ("--kv-eps", self.kv_eps.is_some()),
            ("--kv-supers", self.kv_supers.is_some()),
            ("--kv-smooth", self.kv_smooth.is_some()),
            ("--kv-token-step", self.kv_token_step.is_some()),
            ("--kv-layer-step", self.kv_layer_step.is_some()),
        ];
        let rest = [
            ("--kv-init", self.kv_init.is_some()),
            ("--kv-local", self.kv_local.is_some()),
            ("--kv-block", self.kv_block.is_some()),
            ("--kv-positions", self.kv_positions.is_some()),
            ("--kv-dense-layers", self.kv_dense_layers.is_some()),
        ];
        let chooses =
            self.kv_eps.is_some() || self.kv_blocks.map_or(name != PolicyName::Window, |n| n > 0);
        let idle_choice = choice.into_iter().filter(|_| name == PolicyName::Full || !chooses);
        let idle_rest = rest.into_iter().filter(|_| name == PolicyName::Full);
        let idle = idle_choice.chain(idle_rest).filter(|(_, given)| *given);
        let why = match name {
            PolicyName::Full => "with --kv-policy full everything is read",
            _ => "no blocks are chosen",
        };
        let mut warnings: Vec<String> =
            idle.map(|(option, _)| format!("{option} has no effect: {why}")).collect();
        let anchor = self.kv_anchor.unwrap_or(BlockAnchor::Bounds);
        if self.kv_representatives.is_some() && !anchor.is_of_few_keys() {
            let anchor = anchor.name();
            warnings
                .push(format!("--kv-representatives has no effect: blocks are chosen by {anchor}"));
        }
        warnings
    }
}

/// What to say of a policy that a program has no layer for.
pub(crate) fn idle(policy: &KvPolicy, program: &Program) -> Option<String> {
    let layers = (0..program.caches.len() as u32).map(program::CacheId);
    let mut remembering = layers.filter(|cache| policy.of_cache(program, *cache).is_some());
    let is_idle = *policy != KvPolicy::Full && remembering.next().is_none();
    is_idle.then(|| {
        "--kv-policy has no effect: no layer of the model reads all that is before it".into()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use rooflight::policy::check;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn parse(line: &str) -> PolicyArgs {
        let words = std::iter::once("rooflight").chain(line.split_whitespace());
        Line::try_parse_from(words).expect("options that parse").policy
    }

    fn said(line: &str) -> String {
        parse(line).policy(32_768).to_string()
    }

    #[test]
    fn policies_by_name() {
        assert_eq!(said(""), "full");
        assert_eq!(said("--kv-policy full"), "full");
        assert_eq!(said("--kv-policy window"), "first 128, latest 4096, at a fixed distance");
        assert_eq!(
            said("--kv-policy infllm"),
            "first 128, latest 4096, 16 blocks of 128 by bounds for a layer, of 32 super-blocks, at a fixed distance"
        );
        assert_eq!(
            said("--kv-policy quest"),
            "first 128, latest 4096, 16 blocks of 128 by bounds for a kv-head, of 32 super-blocks, at exact positions, all in the first 2 layers"
        );
    }

    #[test]
    fn a_share_that_may_be_left_out() {
        assert_eq!(
            said("--kv-policy quest --kv-eps 0.01"),
            "first 128, latest 4096, 16 blocks of 128 by bounds for a kv-head and more until at most 0.01 of a head is \
             left out, at exact positions, all in the first 2 layers"
        );
        assert!(check(&parse("--kv-policy quest --kv-eps 0.01").policy(32_768)).is_ok());
        let by_mean = parse("--kv-policy quest --kv-eps 0.01 --kv-anchor mean").policy(32_768);
        assert!(check(&by_mean).is_err_and(|e| e.to_string().contains("mean proves nothing")));
        for bad in ["2", "-1", "NaN", "some"] {
            let line = ["rooflight", "--kv-policy", "quest", &format!("--kv-eps={bad}")];
            assert!(Line::try_parse_from(line).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_that_stand_for_a_block() {
        assert_eq!(
            said("--kv-policy infllm --kv-anchor products --kv-representatives 8"),
            "first 128, latest 4096, 16 blocks of 128 by products of 8 keys for a layer, of 32 super-blocks, at a fixed distance"
        );
        assert!(
            said("--kv-policy infllm --kv-anchor mass").contains("by mass of 4 keys for a layer")
        );
        let told = |line| parse(line).warnings().join("; ");
        assert!(told("--kv-policy infllm --kv-representatives 2").contains("by bounds"));
        assert_eq!(told("--kv-policy infllm --kv-anchor products --kv-representatives 2"), "");
        let many = parse("--kv-policy infllm --kv-anchor products --kv-representatives 129");
        assert!(check(&many.policy(32_768)).is_err_and(|e| e.to_string().contains("1 to 128")));
    }

    #[test]
    fn blocks_of_few_super_blocks() {
        assert!(
            said("--kv-policy infllm --kv-supers 5").contains("for a layer, of 5 super-blocks,")
        );
        assert!(!said("--kv-policy infllm --kv-supers 0").contains("super-blocks"));
        assert!(!said("--kv-policy infllm --kv-anchor all").contains("super-blocks"));
        assert!(said("--kv-policy infllm --kv-blocks 1000").contains("of 63 super-blocks"));
        let wrong =
            |line: &str| check(&parse(line).policy(32_768)).map_err(|error| error.to_string());
        for fits in
            ["--kv-blocks 16 --kv-supers 1", "--kv-eps 0.1", "--kv-blocks 1000", "--kv-supers 0"]
        {
            assert_eq!(wrong(&format!("--kv-policy infllm {fits}")), Ok(()), "{fits}");
        }
        for (bad, why) in [
            ("--kv-blocks 17 --kv-supers 1", "give 2 or more, or 0"),
            ("--kv-eps 0.1 --kv-supers 1", "--kv-eps looks at all blocks"),
            ("--kv-anchor all --kv-supers 1", "--kv-anchor all looks at all blocks"),
            ("--kv-blocks 0 --kv-eps 0.1 --kv-supers 1", "--kv-eps looks at all blocks"),
            ("--kv-anchor mass --kv-representatives 999 --kv-blocks 17 --kv-supers 1", "1 to 128"),
        ] {
            let refused = wrong(&format!("--kv-policy infllm {bad}"));
            assert!(refused.as_ref().is_err_and(|e| e.contains(why)), "{bad}: {refused:?}");
        }
        assert!(
            parse("--kv-policy window --kv-supers 3").warnings()[0]
                .contains("no blocks are chosen")
        );
    }

    #[test]
    fn choices_that_are_smoothed() {
        assert!(
            said("--kv-policy infllm --kv-smooth 0.05 --kv-token-step 2").contains(
                "for a layer, of 32 super-blocks, smoothed by 0.05, every 2 tokens, at a"
            )
        );
        assert!(!said("--kv-policy infllm --kv-smooth 1").contains("smoothed"));
        for bad in ["0", "-1", "1.5", "NaN", "some"] {
            let line = ["rooflight", "--kv-policy", "infllm", &format!("--kv-smooth={bad}")];
            assert!(Line::try_parse_from(line).is_err(), "{bad}");
        }
        for (bad, why) in [
            ("quest --kv-eps 0.1", "leave out --kv-smooth"),
            ("infllm --kv-anchor all", "--kv-smooth needs an anchor"),
        ] {
            let policy = parse(&format!("--kv-policy {bad} --kv-smooth 0.5")).policy(32_768);
            assert!(check(&policy).is_err_and(|e| e.to_string().contains(why)), "{bad}");
        }
        let idle = parse("--kv-policy window --kv-smooth 0.5").warnings().join("; ");
        assert!(idle.contains("--kv-smooth has no effect: no blocks are chosen"), "{idle}");
    }

    #[test]
    fn choices_for_several_tokens_and_layers() {
        let of = |steps: &str| said(&format!("--kv-policy infllm --kv-supers 0 {steps}"));
        let told = |steps: &str| {
            format!(
                "first 128, latest 4096, 16 blocks of 128 by bounds for a layer{steps}, at a fixed distance"
            )
        };
        assert_eq!(of("--kv-token-step 8"), told(", every 8 tokens"));
        assert_eq!(of("--kv-layer-step 2"), told(", every 2 layers"));
        assert_eq!(
            of("--kv-token-step 4 --kv-layer-step 3"),
            told(", every 4 tokens and 3 layers")
        );
        assert_eq!(of("--kv-token-step 1 --kv-layer-step 1"), told(""));
        for bad in
            ["--kv-token-step=3", "--kv-token-step=128", "--kv-token-step=0", "--kv-layer-step=0"]
        {
            assert!(Line::try_parse_from(["rooflight", "--kv-policy", "infllm", bad]).is_err());
        }
        let wrong = |line: &str| {
            check(&parse(&format!("--kv-policy {line}")).policy(32_768)).map_err(|e| e.to_string())
        };
        for (bad, why) in [
            ("quest --kv-eps 0.1 --kv-token-step 2", "--kv-eps proves what each query"),
            ("quest --kv-eps 0.1 --kv-layer-step 2", "--kv-eps proves what each query"),
            ("infllm --kv-blocks 5000 --kv-token-step 2", "at most 4096 blocks"),
            ("infllm --kv-blocks 17 --kv-supers 1 --kv-token-step 2", "--kv-supers 1"),
        ] {
            let refused = wrong(bad);
            assert!(refused.as_ref().is_err_and(|e| e.contains(why)), "{bad}: {refused:?}");
        }
        assert_eq!(wrong("infllm --kv-blocks 5000 --kv-layer-step 2"), Ok(()));
        let idle = parse("--kv-policy window --kv-token-step 2 --kv-layer-step 2").warnings();
        assert!(idle.iter().all(|line| line.contains("no blocks are chosen")) && idle.len() == 2);
    }

    #[test]
    fn settings_change_a_policy_in_whole_blocks() {
        let line = "--kv-policy infllm --kv-init 10 --kv-local 1k --kv-block 64 --kv-blocks 5 --kv-anchor mean \
                    --kv-share kv-head --kv-positions exact --kv-dense-layers 1";
        assert_eq!(
            said(line),
            "first 64, latest 1024, 5 blocks of 64 by mean for a kv-head, of 64 super-blocks, at exact positions, all in the first 1 layers"
        );
        let twice = "first 128, latest 4096, 32 blocks of 64 by bounds for a layer, of 64 super-blocks, at a fixed distance";
        assert_eq!(said("--kv-policy infllm --kv-block 64"), twice);
        assert!(Line::try_parse_from(["rooflight", "--kv-local", "64"]).is_err());
        assert!(
            Line::try_parse_from(["rooflight", "--kv-policy", "infllm", "--kv-block", "100"])
                .is_err()
        );
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let told = |line| parse(line).warnings().join("; ");
        assert_eq!(told("--kv-policy infllm --kv-anchor mean"), "");
        assert!(told("--kv-policy full --kv-local 64").starts_with("--kv-local has no effect"));
        assert!(told("--kv-policy window --kv-anchor mean").contains("no blocks are chosen"));
        assert!(told("--kv-policy infllm --kv-blocks 0 --kv-share layer").contains("--kv-share"));
        assert_eq!(told("--kv-policy infllm --kv-blocks 0 --kv-share layer --kv-eps 0.1"), "");
        assert!(told("--kv-policy full --kv-eps 0.1").starts_with("--kv-eps has no effect"));
    }
}
