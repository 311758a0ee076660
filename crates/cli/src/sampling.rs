//! Options of sampling and of the length of a reply: from flags, else from the model file, else llama.cpp's defaults.

use std::sync::Arc;

use engine::{
    ChatFormat, Constraint, FullContext, Message, PromptOptions, Reasoning, SAMPLER_SETTINGS,
    Sampler, SamplerOptions, SamplerOrder, SamplerSetting, ThoughtMarks, Vocabulary,
};
use gguf::Metadata;
use grammar::Form;
use rooflight::file::recommended_sampler;
use tools::{ReplyForms, ToolUse};

use crate::counts::{self, ReplyLength};
use crate::statistics::Statistics;
use crate::ui;

/// How the next token is chosen. Defaults are the model's own recommendation, else the number in brackets.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct SamplerArgs {
    /// Temperature: 0 or less is deterministic [0.8]
    #[arg(long, value_name = "X", alias = "temperature")]
    temp: Option<f32>,
    /// Only the N likeliest tokens, 0 for all [40]
    #[arg(long, value_name = "N")]
    top_k: Option<i32>,
    /// Only the likeliest tokens that together have this probability [0.95]
    #[arg(long, value_name = "X")]
    top_p: Option<f32>,
    /// Only tokens at least this fraction as likely as the likeliest [0.05]
    #[arg(long, value_name = "X")]
    min_p: Option<f32>,
    /// Only tokens within X standard deviations of the highest score [-1: off]
    #[arg(long, value_name = "X", alias = "top-nsigma")]
    top_n_sigma: Option<f32>,
    /// Only the most typical tokens that together have this probability [1: off]
    #[arg(long, value_name = "X", alias = "typical-p")]
    typical: Option<f32>,
    /// Samplers that go by probability leave N tokens at least [0]
    #[arg(long, value_name = "N")]
    min_keep: Option<i32>,
    /// How often likely tokens are left out, all but the last of them [0: never]
    #[arg(long, value_name = "X")]
    xtc_probability: Option<f32>,
    /// The probability that counts as likely there [0.1]
    #[arg(long, value_name = "X")]
    xtc_threshold: Option<f32>,
    /// How far the temperature goes down where the model is sure, and up where not [0]
    #[arg(long, value_name = "X")]
    dynatemp_range: Option<f32>,
    /// How long it stays down [1]
    #[arg(long, value_name = "X")]
    dynatemp_exp: Option<f32>,
    /// Divide the scores of tokens used lately [1: off]
    #[arg(long, value_name = "X")]
    repeat_penalty: Option<f32>,
    /// How many last tokens the penalties look at, -1 for all [64]
    #[arg(long, value_name = "N")]
    repeat_last_n: Option<i32>,
    /// Lower a token's score for having been used [0]
    #[arg(long, value_name = "X")]
    presence_penalty: Option<f32>,
    /// Lower a token's score for each time it was used [0]
    #[arg(long, value_name = "X")]
    frequency_penalty: Option<f32>,
    /// DRY: penalize tokens that continue a repetition [0: off]
    #[arg(long, value_name = "X")]
    dry_multiplier: Option<f32>,
    /// DRY: factor on the penalty for each token of repetition [1.75]
    #[arg(long, value_name = "X")]
    dry_base: Option<f32>,
    /// DRY: tokens that may repeat without penalty [2]
    #[arg(long, value_name = "N")]
    dry_allowed_length: Option<i32>,
    /// How many last tokens repetitions are looked for in, -1 for all [64]
    #[arg(long, value_name = "N")]
    dry_penalty_last_n: Option<i32>,
    /// Nothing repeats over this text; may be given several times; none for no such text [line break, :, ", *]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    dry_sequence_breaker: Vec<String>,
    /// 2: Mirostat 2, in place of all samplers but temperature [0]
    #[arg(long, value_name = "N")]
    mirostat: Option<i32>,
    /// Bits of surprise per token that it steers to [5]
    #[arg(long, value_name = "X")]
    mirostat_ent: Option<f32>,
    /// How fast it does [0.1]
    #[arg(long, value_name = "X")]
    mirostat_lr: Option<f32>,
    /// Choose tokens that have this probability on average [-1: off]
    #[arg(long, value_name = "X")]
    adaptive_target: Option<f32>,
    /// How much of the average is older than the last token [0.9]
    #[arg(long, value_name = "X")]
    adaptive_decay: Option<f32>,
    /// Which samplers act, in this order; infill and adaptive_p too [penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES")]
    samplers: Option<String>,
    /// The same by letters [edskypmxt]
    #[arg(long, value_name = "LETTERS", alias = "sampling-seq", conflicts_with = "samplers")]
    sampler_seq: Option<String>,
    /// Add to the score of a token, 15043+2 or 15043-inf; may be given several times
    #[arg(short, long, value_name = "ID+X", value_parser = logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Same seed, same text; -1 for another every time [-1]
    #[arg(short, long, value_name = "N")]
    seed: Option<i64>,
}

impl SamplerArgs {
    /// The options for a model with this metadata. What the file recommends out of range is left out, and a flag of a
    /// sampler that does not act has no effect: a warning tells either.
    ///
    /// # Errors
    /// A flag out of range.
    pub(crate) fn options(&self, metadata: &Metadata) -> engine::Result<SamplerOptions> {
        let mut options = recommended(metadata);
        if let Some(names) = &self.samplers {
            options.samplers = SamplerOrder::from_names(names)?;
        }
        if let Some(letters) = &self.sampler_seq {
            options.samplers = SamplerOrder::from_letters(letters)?;
        }
        for (name, value) in self.numbers() {
            let setting = SamplerSetting::find(name).expect("every flag has its setting");
            setting.set(&mut options, value).map_err(|problem| wrong(setting, &problem, value))?;
        }
        if !self.dry_sequence_breaker.is_empty() {
            let texts = self.dry_sequence_breaker.iter().filter(|text| *text != "none");
            options.dry_sequence_breakers = texts.cloned().collect();
        }
        options.logit_bias.clone_from(&self.logit_bias);
        options.seed = self.seed.and_then(|seed| u64::try_from(seed).ok()).or(options.seed);
        options.check()?;
        self.remarks(&options).iter().for_each(|flag| ui::warn(flag));
        Ok(options)
    }

    /// The numbers that were given, by the names of their settings.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let float = |x: Option<f32>| x.map(f64::from);
        let int = |x: Option<i32>| x.map(f64::from);
        let all = [
            ("temperature", float(self.temp)),
            ("top-k", int(self.top_k)),
            ("top-p", float(self.top_p)),
            ("min-p", float(self.min_p)),
            ("top-n-sigma", float(self.top_n_sigma)),
            ("typical", float(self.typical)),
            ("min-keep", int(self.min_keep)),
            ("xtc-probability", float(self.xtc_probability)),
            ("xtc-threshold", float(self.xtc_threshold)),
            ("dynatemp-range", float(self.dynatemp_range)),
            ("dynatemp-exp", float(self.dynatemp_exp)),
            ("repeat-penalty", float(self.repeat_penalty)),
            ("repeat-last-n", int(self.repeat_last_n)),
            ("presence-penalty", float(self.presence_penalty)),
            ("frequency-penalty", float(self.frequency_penalty)),
            ("dry-multiplier", float(self.dry_multiplier)),
            ("dry-base", float(self.dry_base)),
            ("dry-allowed-length", int(self.dry_allowed_length)),
            ("dry-penalty-last-n", int(self.dry_penalty_last_n)),
            ("mirostat", int(self.mirostat)),
            ("mirostat-ent", float(self.mirostat_ent)),
            ("mirostat-lr", float(self.mirostat_lr)),
            ("adaptive-target", float(self.adaptive_target)),
            ("adaptive-decay", float(self.adaptive_decay)),
        ];
        all.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)))
    }

    /// A line for each flag that was given and does nothing beside the others, or something that its value does not say.
    fn remarks(&self, options: &SamplerOptions) -> Vec<String> {
        let mirostat = options.mirostat == 2;
        let mut lines = Vec::new();
        for (name, _) in self.numbers() {
            let sampler = SamplerSetting::find(name).map_or("", |setting| setting.sampler);
            let flag = if name == "temperature" { "temp" } else { name };
            if mirostat && !sampler.is_empty() && sampler != "temperature" {
                lines.push(format!("--{flag} has no effect beside --mirostat 2"));
            } else if !mirostat && !sampler.is_empty() && !options.samplers.has(sampler) {
                lines.push(format!("--{flag} has no effect: {sampler} is not among the samplers"));
            }
        }
        if let (Some(temp), Some(note)) = (self.temp, below_zero(options)) {
            lines.push(format!("--temp {temp}: {note}"));
        }
        let orders = self.samplers.is_some() || self.sampler_seq.is_some();
        if mirostat && (orders || options.adaptive_target >= 0.0) {
            lines.push("--mirostat 2 takes the place of other samplers and their order".into());
        }
        lines
    }
}

/// A flag out of its range.
fn wrong(setting: &SamplerSetting, problem: &str, value: f64) -> engine::Error {
    let expected = setting.expected();
    debug_assert!(problem.contains(expected), "{problem}");
    engine::Error::Setting { name: setting.name, expected, found: value.to_string() }
}

/// `15043+2`, `15043-1.5`, `15043-inf`.
fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let problem = || {
        format!("expected a token id and what is added, as 15043+2 or 15043-inf, found `{text}`")
    };
    let at = text.find(['+', '-']).ok_or_else(problem)?;
    let (token, bias) = text.split_at(at);
    let token = token.trim().parse().map_err(|_| problem())?;
    let bias: f32 = bias.trim().parse().map_err(|_| problem())?;
    if bias.is_nan() { Err(problem()) } else { Ok((token, bias)) }
}

/// Returns the sampler options that a file recommends. Warns about those out of their range.
pub(crate) fn recommended(metadata: &Metadata) -> SamplerOptions {
    let (options, problems) = recommended_sampler(metadata);
    problems.iter().for_each(|problem| ui::warn(problem));
    options
}

/// Names that [`set`] knows, in the order of [`list`].
pub(crate) fn names() -> Vec<String> {
    let numbers = SAMPLER_SETTINGS.iter().map(|setting| setting.name.replace('-', "_"));
    numbers.chain(["samplers", "seed"].map(str::to_owned)).collect()
}

/// Set one option by the name it has in [`names`].
///
/// # Errors
/// One line that says what is wrong.
pub(crate) fn set(options: &mut SamplerOptions, name: &str, value: &str) -> Result<(), String> {
    fn parse<T: std::str::FromStr>(value: &str) -> Result<T, String> {
        value.parse().map_err(|_| format!("expected a number, found `{value}`"))
    }
    match name {
        "seed" => options.seed = u64::try_from(parse::<i64>(value)?).ok(),
        "samplers" => {
            let order = SamplerOrder::from_names(value);
            options.samplers = order.map_err(|error| error.to_string())?;
        }
        name => {
            let setting = SamplerSetting::find(name);
            let setting = setting.ok_or_else(|| format!("there is no parameter {name}"))?;
            setting.set(options, parse(value)?)?;
        }
    }
    Ok(())
}

/// Returns what the option of this name may be, in words.
pub(crate) fn expected(name: &str) -> &'static str {
    match name {
        "seed" => "a whole number, -1 for another every time",
        "samplers" => {
            "names, each once, of penalties dry top_n_sigma top_k typ_p top_p min_p xtc temperature infill adaptive_p"
        }
        "temperature" => "a finite number, the likeliest token at 0 or less",
        name => SamplerSetting::find(name).map_or("a value", SamplerSetting::expected),
    }
}

/// Returns what a temperature below 0 means; `None` for other temperatures, and where the temperature varies around it.
pub(crate) fn below_zero(options: &SamplerOptions) -> Option<&'static str> {
    let is_below = options.temperature < 0.0 && options.dynatemp_range <= 0.0;
    is_below.then_some("the likeliest token is chosen, as at 0")
}

/// The options, one per line, by the names that [`set`] takes.
pub(crate) fn list(options: &SamplerOptions) -> String {
    let seed = options.seed.map_or_else(|| "-1".to_owned(), |seed| seed.to_string());
    let numbers = SAMPLER_SETTINGS.iter().map(|setting| setting.show(options));
    let values = numbers.chain([options.samplers.to_string(), seed]);
    names().iter().zip(values).map(|(name, value)| format!("{name:18} {value}\n")).collect()
}

/// When a reply ends.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct LengthArgs {
    /// Most tokens to generate, -1 for no limit [-1]
    #[arg(short = 'n', long, value_name = "N", alias = "n-predict", value_parser = counts::predict)]
    predict: Option<ReplyLength>,
    /// Stop where this text appears; may be repeated
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    reverse_prompt: Vec<String>,
    /// Never end a reply before the context or -n does: the tokens that end one are not chosen
    #[arg(long)]
    ignore_eos: bool,
}

impl LengthArgs {
    /// Whether a number of tokens was asked for, be it none.
    pub(crate) fn given(&self) -> bool {
        self.predict.is_some()
    }
}

/// Everything a reply depends on besides its prompt.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How tokens are chosen.
    pub(crate) sampler: SamplerOptions,
    /// Most tokens of a reply.
    pub(crate) max_tokens: Option<usize>,
    /// Texts that end it.
    pub(crate) stop: Vec<String>,
    /// Never choose a token that ends a reply.
    pub(crate) ignore_eog: bool,
    /// What the template is told about thinking.
    pub(crate) reasoning: Reasoning,
    /// Print thoughts, dimmed, on stderr.
    pub(crate) show_thoughts: bool,
    /// Amount of statistics printed below a reply.
    pub(crate) statistics: Statistics,
    /// What a full context does.
    pub(crate) full: FullContext,
    /// Break lines between words on a terminal.
    pub(crate) wrap: bool,
    /// Whether to render Markdown on a terminal.
    pub(crate) markdown: bool,
    /// So many of the likeliest tokens are told beside each chosen one.
    pub(crate) logprobs: Option<usize>,
    /// What replies must be.
    pub(crate) form: Option<Arc<Form>>,
    /// What they may call.
    pub(crate) tools: Option<Arc<ToolUse>>,
}

impl Settings {
    /// From flags.
    pub(crate) fn new(sampler: SamplerOptions, length: LengthArgs, statistics: Statistics) -> Self {
        Settings {
            sampler,
            max_tokens: length.predict.and_then(|length| length.0),
            // An empty text appears everywhere.
            stop: length.reverse_prompt.into_iter().filter(|text| !text.is_empty()).collect(),
            ignore_eog: length.ignore_eos,
            reasoning: Reasoning::Auto,
            show_thoughts: true,
            statistics,
            full: FullContext::Stop,
            wrap: true,
            markdown: true,
            logprobs: None,
            form: None,
            tools: None,
        }
    }

    /// Returns a sampler for a vocabulary. `thoughts` wraps a constraint so that reasoning may come before the constrained text.
    ///
    /// # Errors
    /// A setting out of its range.
    pub(crate) fn new_sampler(
        &self,
        vocabulary: &dyn Vocabulary,
        asks: bool,
        thoughts: &dyn Fn(Box<dyn Constraint>) -> Box<dyn Constraint>,
    ) -> engine::Result<Sampler> {
        let mut sampler = Sampler::new(self.sampler.clone())?.with_vocabulary(vocabulary);
        if let Some(n) = self.logprobs {
            sampler = sampler.with_logprobs(n);
        }
        let (form, tools) = (self.form.as_deref(), self.tools.as_deref());
        ReplyForms { form, tools, asks, begun: "" }.constrain(sampler, thoughts)
    }

    /// Returns a sampler for a reply in a chat. If the model may think, its reasoning comes before the constrained text.
    ///
    /// # Errors
    /// The errors of [`new_sampler`](Self::new_sampler); a template that fails.
    pub(crate) fn new_chat_sampler(
        &self,
        format: &dyn ChatFormat,
        asks: bool,
    ) -> engine::Result<Sampler> {
        let must = self.tools.as_ref().is_some_and(|tools| tools.must());
        let marks = match self.form.is_some() || must {
            true => ThoughtMarks::of(format),
            false => None,
        };
        // the template determines whether a prompt opens a thought or has closed one
        let prompt = match marks {
            Some(_) => {
                let options = PromptOptions { reasoning: self.reasoning, ..Default::default() };
                let spans = format.render(&[Message::new("user", "?")], &options, &Arc::default());
                spans.and_then(|spans| format.encode(&spans, true)).unwrap_or_default()
            }
            None => Vec::new(),
        };
        self.new_sampler(format, asks, &|form| match &marks {
            Some(marks) => marks.before(form, format, &prompt),
            None => form,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_the_file() {
        let mut writer = gguf::Writer::new();
        writer.set("general.sampling.temp", 0.6_f32).set("general.sampling.top_k", 20_i32);
        let file = gguf::Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
        let args = SamplerArgs { top_k: Some(5), seed: Some(-1), ..SamplerArgs::default() };
        let options = args.options(file.metadata()).unwrap();
        assert_eq!(
            (options.temperature, options.top_k, options.top_p, options.seed),
            (0.6, 5, 0.95, None)
        );
        assert!(
            SamplerArgs { top_p: Some(2.0), ..SamplerArgs::default() }
                .options(file.metadata())
                .is_err()
        );
    }

    #[test]
    fn a_flag_that_does_nothing_is_told() {
        let idle = |args: SamplerArgs| {
            let options = args.options(
                gguf::Gguf::from_bytes(gguf::Writer::new().to_bytes().unwrap()).unwrap().metadata(),
            );
            args.remarks(&options.unwrap()).join("; ")
        };
        let order = |names: &str| Some(names.to_owned());
        assert_eq!(idle(SamplerArgs { top_k: Some(3), temp: Some(1.0), ..Default::default() }), "");
        assert_eq!(
            idle(SamplerArgs {
                min_p: Some(0.1),
                temp: Some(2.0),
                samplers: order("top_k"),
                ..Default::default()
            }),
            "--temp has no effect: temperature is not among the samplers; --min-p has no effect: min_p is not among the samplers"
        );
        assert_eq!(
            idle(SamplerArgs {
                top_k: Some(3),
                temp: Some(2.0),
                mirostat: Some(2),
                ..Default::default()
            }),
            "--top-k has no effect beside --mirostat 2"
        );
        assert!(
            idle(SamplerArgs { sampler_seq: order("k"), mirostat: Some(2), ..Default::default() })
                .contains("order")
        );
        // llama.cpp, too, chooses the likeliest token at 0 and below
        let below =
            |range| SamplerArgs { temp: Some(-1.0), dynatemp_range: range, ..Default::default() };
        assert_eq!(idle(below(None)), "--temp -1: the likeliest token is chosen, as at 0");
        assert_eq!(idle(below(Some(2.0))), "");
    }

    #[test]
    fn biases_are_read_as_llama_cpp_writes_them() {
        assert_eq!(logit_bias("15043+2"), Ok((15043, 2.0)));
        assert_eq!(logit_bias("7-1.5"), Ok((7, -1.5)));
        assert_eq!(logit_bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        for wrong in ["", "7", "+1", "7+", "-7+1", "7+nan", "7+x", "99999999999+1"] {
            assert!(logit_bias(wrong).unwrap_err().contains("15043+2"), "{wrong}");
        }
    }

    #[test]
    fn every_number_is_a_flag() {
        let command = <SamplerArgs as clap::Args>::augment_args(clap::Command::new("x"));
        for setting in SAMPLER_SETTINGS {
            let known = command.get_arguments().any(|arg| {
                arg.get_long() == Some(setting.name)
                    || arg.get_all_aliases().unwrap_or_default().contains(&setting.name)
            });
            assert!(known, "{}", setting.name);
        }
    }

    #[test]
    fn parameters_are_set_by_name() {
        let mut options = SamplerOptions::default();
        set(&mut options, "temperature", "0.5").unwrap();
        set(&mut options, "seed", "7").unwrap();
        assert_eq!((options.temperature, options.seed), (0.5, Some(7)));
        assert!(set(&mut options, "top_p", "3").unwrap_err().contains("0 to 1"));
        assert!(set(&mut options, "top_q", "3").unwrap_err().contains("top_q"));
        assert_eq!(options.top_p, 0.95);
        assert!(
            list(&options).lines().map(|line| line.split_whitespace().next().unwrap()).eq(names())
        );
        assert!(list(&options).lines().all(|line| {
            let name = line.split_whitespace().next().unwrap();
            set(&mut options.clone(), name, line.split_whitespace().nth(1).unwrap()).is_ok()
        }));
    }
}
