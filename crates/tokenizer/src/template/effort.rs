//! How much a model is to think, as templates know it: levels by name, a budget in tokens, or neither. Found by trying.

use super::{ChatTemplate, Message, RenderOptions, TemplateVariables};

/// How much a model is to think, in the words of OpenAI's API and of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// `minimal`.
    Minimal,
    /// `low`.
    Low,
    /// `medium`.
    Medium,
    /// `high`.
    High,
    /// `xhigh`.
    XHigh,
    /// `max`.
    Max,
}

impl Effort {
    /// All of them, the least first.
    pub const ALL: [Effort; 6] =
        [Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::XHigh => "xhigh",
            Effort::Max => "max",
        }
    }

    /// The one of this name.
    pub fn of_name(name: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|effort| effort.name() == name)
    }

    /// Tokens of thought for templates that take a budget: steps that Seed-OSS was trained with.
    pub fn budget(self) -> u32 {
        match self {
            Effort::Minimal => 512,
            Effort::Low => 1024,
            Effort::Medium => 4096,
            Effort::High => 8192,
            Effort::XHigh | Effort::Max => 16384,
        }
    }

    /// The level for so many tokens of thought.
    pub fn of_budget(tokens: u32) -> Effort {
        match tokens {
            0..2048 => Effort::Low,
            2048..8192 => Effort::Medium,
            _ => Effort::High,
        }
    }
}

/// What a template knows of how much to think.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffortStyle {
    /// The levels that it knows, the least first.
    levels: Vec<Effort>,
    /// It writes any word: the levels are those that models are trained with.
    writes_any: bool,
    /// Whether it takes a budget in tokens.
    budget: bool,
}

/// A level that no template knows, and a budget that stands in none.
const UNKNOWN: &str = "qzxv";
const BUDGET: u32 = 73_291;

impl EffortStyle {
    /// Try a template.
    pub(super) fn of(template: &ChatTemplate) -> EffortStyle {
        let reads = |name: &str| template.source().contains(name);
        let mut style = EffortStyle::default();
        if reads("reasoning_effort") {
            let other = prompt(template, Some(UNKNOWN), None);
            style.writes_any = other.as_ref().is_some_and(|text| text.contains(UNKNOWN));
            style.levels = match style.writes_any {
                true => vec![Effort::Low, Effort::Medium, Effort::High],
                false => {
                    let differs = |effort: &Effort| {
                        let text = prompt(template, Some(effort.name()), None);
                        text.is_some() && text != other
                    };
                    Effort::ALL.into_iter().filter(differs).collect()
                }
            };
        }
        if reads("thinking_budget") {
            let text = prompt(template, None, Some(BUDGET));
            style.budget = text.is_some_and(|text| text.contains(&BUDGET.to_string()));
        }
        style
    }

    /// The levels that it knows, the least first.
    pub fn levels(&self) -> &[Effort] {
        &self.levels
    }

    /// Whether it takes a budget in tokens.
    pub fn takes_budget(&self) -> bool {
        self.budget
    }

    /// Whether thinking cannot be turned off, only down.
    pub fn always_thinks(&self) -> bool {
        self.writes_any
    }

    /// Of the levels that it knows the one to use for this one: the next one below, or the least of a template that always writes
    /// one; `None`: the template's usual effort.
    pub fn nearest(&self, wanted: Effort) -> Option<Effort> {
        let below = self.levels.iter().rev().find(|level| **level <= wanted).copied();
        below.or_else(|| self.levels.first().copied().filter(|_| self.writes_any))
    }
}

/// A prompt with thinking on, as a template writes it.
fn prompt(template: &ChatTemplate, effort: Option<&str>, budget: Option<u32>) -> Option<String> {
    let mut variables = TemplateVariables::default();
    if let Some(effort) = effort {
        variables.set_text("reasoning_effort", effort);
    }
    if let Some(budget) = budget {
        variables.set_number("thinking_budget", budget);
    }
    let options = RenderOptions {
        add_generation_prompt: true,
        enable_thinking: Some(true),
        variables: Some(&variables),
        ..RenderOptions::default()
    };
    let spans = template.render(&[Message::new("user", "?")], &options, &Default::default());
    Some(spans.ok()?.iter().map(|span| span.text.as_str()).collect())
}
