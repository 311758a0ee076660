//! Options of sampling and of the length of a reply: from flags, else from the model file, else llama.cpp's defaults.

use engine::{FullContext, Reasoning, SamplerOptions};
use gguf::{Metadata, Value};

use crate::counts::{self, ReplyLength};
use crate::ui;

/// How the next token is chosen. Defaults are the model's own recommendation, else the number in brackets.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplerArgs {
    /// Sharper below 1, flatter above, 0 for the likeliest token always [0.8]
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
    /// The same seed gives the same text; -1 for another one every time [-1]
    #[arg(short, long, value_name = "N")]
    seed: Option<i64>,
}

impl SamplerArgs {
    /// The options for a model with this metadata. What the file recommends out of range is left out, with a warning.
    ///
    /// # Errors
    /// A flag out of range.
    pub(crate) fn options(&self, metadata: &Metadata) -> engine::Result<SamplerOptions> {
        let (file, problems) = SamplerOptions::default()
            .with_recommended(&|key| metadata.get(key).map(|value| number(&value)));
        problems.iter().for_each(|problem| ui::warn(problem));
        let options = SamplerOptions {
            temperature: self.temp.unwrap_or(file.temperature),
            top_k: self.top_k.unwrap_or(file.top_k),
            top_p: self.top_p.unwrap_or(file.top_p),
            min_p: self.min_p.unwrap_or(file.min_p),
            repeat_penalty: self.repeat_penalty.unwrap_or(file.repeat_penalty),
            repeat_last_n: self.repeat_last_n.unwrap_or(file.repeat_last_n),
            presence_penalty: self.presence_penalty.unwrap_or(file.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(file.frequency_penalty),
            seed: self.seed.and_then(|seed| u64::try_from(seed).ok()).or(file.seed),
        };
        options.check()?;
        Ok(options)
    }
}

/// NaN for what is no number.
fn number(value: &Value<'_>) -> f64 {
    let float = value.as_f32().map(f64::from);
    float.or_else(|| value.as_integer().map(|n| n as f64)).unwrap_or(f64::NAN)
}

/// Names that [`set`] knows, in the order of [`list`].
pub(crate) const NAMES: [&str; 9] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "seed",
];

/// Set one option by the name it has in a chat (`temperature`, `top_k`, ...).
///
/// # Errors
/// One line that says what is wrong.
pub(crate) fn set(options: &mut SamplerOptions, name: &str, value: &str) -> Result<(), String> {
    fn parse<T: std::str::FromStr>(value: &str) -> Result<T, String> {
        value.parse().map_err(|_| format!("expected a number, found `{value}`"))
    }
    let mut changed = *options;
    match name.replace('-', "_").as_str() {
        "temperature" | "temp" => changed.temperature = parse(value)?,
        "top_k" => changed.top_k = parse(value)?,
        "top_p" => changed.top_p = parse(value)?,
        "min_p" => changed.min_p = parse(value)?,
        "repeat_penalty" => changed.repeat_penalty = parse(value)?,
        "repeat_last_n" => changed.repeat_last_n = parse(value)?,
        "presence_penalty" => changed.presence_penalty = parse(value)?,
        "frequency_penalty" => changed.frequency_penalty = parse(value)?,
        "seed" => changed.seed = u64::try_from(parse::<i64>(value)?).ok(),
        _ => return Err(format!("there is no parameter `{name}`: /show parameters lists them")),
    }
    changed.check().map_err(|error| error.to_string())?;
    *options = changed;
    Ok(())
}

/// The options, one per line, by the names that [`set`] takes.
pub(crate) fn list(options: &SamplerOptions) -> String {
    let seed = options.seed.map_or_else(|| "-1".to_owned(), |seed| seed.to_string());
    format!(
        "temperature        {}\ntop_k              {}\ntop_p              {}\nmin_p              {}\n\
         repeat_penalty     {}\nrepeat_last_n      {}\npresence_penalty   {}\nfrequency_penalty  {}\n\
         seed               {seed}\n",
        options.temperature,
        options.top_k,
        options.top_p,
        options.min_p,
        options.repeat_penalty,
        options.repeat_last_n,
        options.presence_penalty,
        options.frequency_penalty,
    )
}

/// When a reply ends.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct LengthArgs {
    /// Most tokens to generate, -1 for no limit but the context [-1]
    #[arg(short = 'n', long, value_name = "N", alias = "n-predict", value_parser = counts::predict)]
    predict: Option<ReplyLength>,
    /// Stop where this text appears; may be given several times
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
    /// Print the footer although stderr is no terminal.
    pub(crate) verbose: bool,
    /// What a full context does.
    pub(crate) full: FullContext,
    /// Break lines between words on a terminal.
    pub(crate) wrap: bool,
}

impl Settings {
    /// From flags.
    pub(crate) fn new(sampler: SamplerOptions, length: LengthArgs, verbose: bool) -> Self {
        Settings {
            sampler,
            max_tokens: length.predict.and_then(|length| length.0),
            // An empty text appears everywhere.
            stop: length.reverse_prompt.into_iter().filter(|text| !text.is_empty()).collect(),
            ignore_eog: length.ignore_eos,
            reasoning: Reasoning::Auto,
            show_thoughts: true,
            verbose,
            full: FullContext::Stop,
            wrap: true,
        }
    }
}

/// Whether a model that can think does.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Think {
    /// It is asked to.
    On,
    /// It is asked not to.
    Off,
    /// As its template does by itself.
    #[default]
    Auto,
}

impl From<Think> for Reasoning {
    fn from(think: Think) -> Self {
        match think {
            Think::On => Reasoning::On,
            Think::Off => Reasoning::Off,
            Think::Auto => Reasoning::Auto,
        }
    }
}

/// Said where thinking is turned on or off and the template, `None` for ChatML, has no switch for it.
pub(crate) fn thinks_anyway(reasoning: Reasoning, template: Option<&str>) -> Option<&'static str> {
    let switches = [
        "enable_thinking",
        "thinking_mode",
        "thinking_option",
        "thinking_budget",
        "if not thinking",
        "if thinking",
    ];
    let knows = template.is_some_and(|text| switches.iter().any(|switch| text.contains(switch)));
    match reasoning {
        Reasoning::Off if !knows => {
            Some("thinking cannot be turned off: the chat template does not know enable_thinking")
        }
        Reasoning::On if !knows => {
            Some("thinking cannot be turned on: the chat template does not know enable_thinking")
        }
        _ => None,
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
    fn numbers_of_any_type_count_and_a_text_is_none() {
        assert_eq!(number(&Value::I64(-1)), -1.0);
        assert_eq!(number(&Value::U8(20)), 20.0);
        assert_eq!(number(&Value::F64(0.5)), 0.5);
        assert!(number(&Value::Bool(true)).is_nan() && number(&Value::String(b"0.5")).is_nan());
    }

    #[test]
    fn only_a_template_with_the_switch_turns_thinking_on_or_off() {
        assert!(thinks_anyway(Reasoning::Off, Some("{%- elif thinking %}")).is_none());
        assert!(thinks_anyway(Reasoning::Off, Some("{{ message.thinking }}")).is_some());
        let knows = Some("{% if enable_thinking is false %}<think></think>{% endif %}");
        for (reasoning, template, told) in [
            (Reasoning::Off, Some("{{ messages }}"), true),
            (Reasoning::Off, None, true),
            (Reasoning::Off, knows, false),
            (Reasoning::Auto, None, false),
            (Reasoning::On, None, true),
            (Reasoning::On, knows, false),
        ] {
            assert_eq!(thinks_anyway(reasoning, template).is_some(), told, "{reasoning:?}");
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
            list(&options).lines().map(|line| line.split_whitespace().next().unwrap()).eq(NAMES)
        );
        assert!(list(&options).lines().all(|line| {
            let name = line.split_whitespace().next().unwrap();
            set(&mut { options }, name, line.split_whitespace().nth(1).unwrap()).is_ok()
        }));
    }
}
