//! Reasoning effort as templates support it: levels by name, a budget in tokens, or neither. Detected by trial renderings.

use super::{ChatTemplate, Message, RenderOptions, TemplateVariables};

/// Reasoning effort, with the names that OpenAI's API and chat templates use.
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
    /// All levels, in ascending order.
    pub const ALL: [Effort; 6] =
        [Effort::Minimal, Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max];

    /// Returns the name of the level.
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

    /// Returns the level with this name.
    pub fn of_name(name: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|effort| effort.name() == name)
    }

    /// Returns the number of thought tokens for templates that accept a budget. Seed-OSS was trained with these steps.
    pub fn budget(self) -> u32 {
        match self {
            Effort::Minimal => 512,
            Effort::Low => 1024,
            Effort::Medium => 4096,
            Effort::High => 8192,
            Effort::XHigh | Effort::Max => 16384,
        }
    }

    /// Returns the level for this number of thought tokens.
    pub fn of_budget(tokens: u32) -> Effort {
        match tokens {
            0..2048 => Effort::Low,
            2048..8192 => Effort::Medium,
            _ => Effort::High,
        }
    }
}

/// Support of a template for reasoning effort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EffortStyle {
    /// Supported levels, in ascending order.
    levels: Vec<Effort>,
    /// Whether the template writes any word as the level. `levels` then holds those that models are trained with.
    writes_any: bool,
    /// Whether the template accepts a budget in tokens.
    budget: bool,
    /// Whether the template has a switch that turns thinking on and off.
    switch: bool,
}

/// Names that are always switches where they occur in a template. Other switches have common words as names, so they are recognized by
/// their effect.
const SWITCHES: [&str; 4] =
    ["enable_thinking", "thinking_mode", "thinking_option", "thinking_budget"];

/// A level that no template knows, and a budget that occurs in no template.
const UNKNOWN: &str = "qzxv";
const BUDGET: u32 = 73_291;

impl EffortStyle {
    /// Detects the support of a template by trial renderings.
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
        style.switch = SWITCHES.iter().any(|name| reads(name)) || {
            let switched = |on| rendered(template, on, &TemplateVariables::default());
            switched(true) != switched(false)
        };
        style
    }

    /// Returns the supported levels, in ascending order.
    pub fn levels(&self) -> &[Effort] {
        &self.levels
    }

    /// Returns whether the template accepts a budget in tokens.
    pub fn takes_budget(&self) -> bool {
        self.budget
    }

    /// Returns whether the template has a switch that turns thinking on and off.
    pub fn switches_thinking(&self) -> bool {
        self.switch
    }

    /// Returns whether thinking can only be reduced, but not turned off.
    pub fn always_thinks(&self) -> bool {
        self.writes_any
    }

    /// Returns the supported level to use for `wanted`: the highest one that is not above it, or the lowest one if the template always
    /// writes a level. `None` means the template's default effort.
    pub fn nearest(&self, wanted: Effort) -> Option<Effort> {
        let below = self.levels.iter().rev().find(|level| **level <= wanted).copied();
        below.or_else(|| self.levels.first().copied().filter(|_| self.writes_any))
    }
}

/// Renders a prompt with thinking on.
fn prompt(template: &ChatTemplate, effort: Option<&str>, budget: Option<u32>) -> Option<String> {
    let mut variables = TemplateVariables::default();
    if let Some(effort) = effort {
        variables.set_text("reasoning_effort", effort);
    }
    if let Some(budget) = budget {
        variables.set_number("thinking_budget", budget);
    }
    rendered(template, true, &variables)
}

/// Renders a prompt with thinking turned on or off.
fn rendered(template: &ChatTemplate, on: bool, variables: &TemplateVariables) -> Option<String> {
    let options = RenderOptions {
        add_generation_prompt: true,
        enable_thinking: Some(on),
        variables: Some(variables),
        ..RenderOptions::default()
    };
    template.render_text(&[Message::new("user", "?")], &options, None)
}
