//! Tools in use: what a model is told of them, whether it must call, and what holds it to how calls are written.

use std::sync::Arc;

use engine::{CallIds, CallParser, Constraint, EitherForm, Notes, Sampler, Toolbox};
use grammar::{CompileBudget, Form, FormSource, GrammarError, TokenTrie};
use serde_json::Value;
use tokenizer::{ChatTemplate, Message, ToolDeclarations, TrialCall, python_json};

use crate::families::DEFAULT;
use crate::family::{CallFamily, CallSyntax};
use crate::form;
use crate::written::{WrittenArgument, WrittenCall};
use crate::{CallReader, Result, Tool, ToolError, ToolList};

/// Whether a reply calls tools, in the words of OpenAI's API.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It does not know of any.
    None,
    /// It calls one or several.
    Required,
    /// It calls this one.
    Named(String),
}

/// How tools are to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOptions {
    /// Whether there must be a call.
    pub choice: ToolChoice,
    /// Whether there may be several in a reply.
    pub parallel: bool,
    /// Whether the arguments of all tools must be held to their schemas, as those of strict tools.
    pub strict: bool,
}

impl Default for ToolOptions {
    fn default() -> ToolOptions {
        ToolOptions { choice: ToolChoice::Auto, parallel: true, strict: false }
    }
}

/// Tools that a model of a certain template and vocabulary may call.
#[derive(Debug)]
pub struct ToolUse {
    tools: Arc<ToolList>,
    family: &'static CallFamily,
    /// Syntax of the family that calls are constrained to.
    syntax: &'static CallSyntax,
    options: ToolOptions,
    declared: Option<ToolDeclarations>,
    instructions: Option<String>,
    form: Option<Form>,
    notes: Notes,
}

impl ToolUse {
    /// Get tools ready for a model. A tool whose schema cannot be held to does not spoil the others: its arguments are any
    /// object, and a note says so. `budget` is the time for the forms of all tools together.
    ///
    /// # Errors
    /// [`ToolError::Unknown`] for a choice that names no tool, [`ToolError::Template`] for a template that writes calls in
    /// a way that no family has, [`ToolError::Form`] where there must be a call and none can be held to,
    /// [`ToolError::Compiler`] where forms are not compiled now.
    pub fn new(
        tools: &Arc<ToolList>,
        options: ToolOptions,
        template: &ChatTemplate,
        tokens: Option<&TokenTrie>,
        budget: &CompileBudget,
    ) -> Result<ToolUse> {
        if let ToolChoice::Named(name) = &options.choice
            && tools.get(name).is_none()
        {
            let there: Vec<_> = tools.tools().iter().map(|tool| tool.name.as_str()).collect();
            return Err(ToolError::Unknown { name: name.clone(), there: there.join(", ") });
        }
        let style = template.tool_style();
        let family = CallFamily::of_template(template.source());
        let family = match family {
            Some(family) => family,
            None if style.declares || style.writes_calls => return Err(ToolError::Template),
            None => DEFAULT,
        };
        let mut made = ToolUse {
            tools: Arc::clone(tools),
            family,
            syntax: syntax_of(family, template),
            options,
            declared: None,
            instructions: None,
            form: None,
            notes: Notes::default(),
        };
        if made.options.choice == ToolChoice::None || tools.tools().is_empty() {
            return Ok(made);
        }
        match style.declares {
            true => made.declared = ToolDeclarations::from_json(&tools.to_json()).ok(),
            false => {
                let note = "this model's template has no tool support: the system prompt describes the tools";
                made.notes.insert(note.to_owned());
                made.instructions = Some(instructions(tools, made.syntax));
            }
        }
        let form = match tokens {
            Some(tokens) => made.compile(tokens, budget)?,
            None => Err("no token ends a reply".to_owned()),
        };
        match form {
            Ok(form) => made.form = Some(form),
            Err(problem) if made.must() => return Err(ToolError::Form { problem }),
            Err(problem) => {
                made.notes.insert(format!("calls are not held to their form: {problem}"));
            }
        }
        Ok(made)
    }

    /// What the user should know.
    pub fn notes(&self) -> &Notes {
        &self.notes
    }

    /// How the model writes calls.
    pub fn family(&self) -> &'static CallFamily {
        self.family
    }

    /// The tools.
    pub fn tools(&self) -> &ToolList {
        &self.tools
    }

    /// Whether a reply must call.
    pub fn must(&self) -> bool {
        matches!(self.options.choice, ToolChoice::Required | ToolChoice::Named(_))
    }

    /// Returns whether a reply may call tools.
    pub fn may(&self) -> bool {
        self.options.choice != ToolChoice::None && !self.tools.tools().is_empty()
    }

    /// The form of calls, of which nothing has come; `None` where they are not held to one.
    pub fn begin(&self) -> Option<Box<dyn Constraint>> {
        self.form.as_ref().map(Form::begin)
    }

    /// The form of all tools, without the schemas that cannot be had; why there is none. The tools are tried one by one only where
    /// they fail together, and as long as there is time.
    ///
    /// # Errors
    /// [`ToolError::Strict`] where one of these must be had, [`ToolError::Compiler`].
    fn compile(
        &mut self,
        tokens: &TokenTrie,
        budget: &CompileBudget,
    ) -> Result<Result<Form, String>> {
        let tools = Arc::clone(&self.tools);
        let wanted = tools.tools().iter().filter(|tool| match &self.options.choice {
            ToolChoice::Named(name) => tool.name == *name,
            _ => true,
        });
        let mut held: Vec<(&Tool, bool)> = wanted.map(|tool| (tool, false)).collect();
        let all_strict = self.options.strict;
        let is_strict = |tool: &Tool| tool.strict || all_strict;
        let refused = |tool: &Tool, problem: String| {
            let (place, name) = (tool.place.clone(), tool.name.clone());
            Err(ToolError::Strict { place, name, problem })
        };
        let each: Vec<Notes> = held
            .iter()
            .map(|(tool, _)| grammar::unenforced(&Value::Object(tool.parameters.clone())))
            .collect();
        for ((tool, _), notes) in held.iter().zip(&each) {
            if let Some(problem) = notes.kept().first().filter(|_| is_strict(tool)) {
                return refused(tool, problem.clone());
            }
        }
        let form = |held: &[(&Tool, bool)]| self.form_of(held, tokens, budget);
        let mut last = match form(&held)? {
            Ok(form) => {
                let mut notes = Notes::default();
                each.iter().for_each(|own| notes.join("", own));
                if form.notes().kept().iter().any(|note| !notes.kept().contains(note)) {
                    // only the compiler knows these constraints, and not of which tool they are
                    for (tool, _) in held.iter().filter(|(tool, _)| is_strict(tool)) {
                        let alone = self.form_of(&[(tool, false)], tokens, budget)?;
                        let problem =
                            alone.ok().and_then(|form| form.notes().kept().first().cloned());
                        if let Some(problem) = problem {
                            return refused(tool, problem);
                        }
                    }
                    notes.join("", form.notes());
                }
                self.notes.join("tools: ", &notes);
                return Ok(Ok(form));
            }
            Err(problem) => problem,
        };
        let alone = held.len() == 1;
        let mut free = Vec::new();
        for place in 0..held.len() {
            let tool = held[place].0;
            let problem = match alone {
                true => Some(last.clone()),
                false => form(&[(tool, false)])?.err(),
            };
            let Some(problem) = problem else { continue };
            if is_strict(tool) {
                return refused(tool, problem);
            }
            if budget.check(TOOLS).is_err() {
                // which of those behind it could be held to is not known
                return match held[place..].iter().find(|(tool, _)| is_strict(tool)) {
                    Some((tool, _)) => refused(tool, last),
                    None => Ok(Err(last)),
                };
            }
            free.push(format!(
                "tool `{}`: its arguments are not held to its schema: {problem}",
                tool.name
            ));
            held[place].1 = true;
            last = problem;
        }
        let form = form(&held)?;
        free.into_iter().for_each(|note| self.notes.insert(note));
        for (_, own) in held.iter().zip(&each).filter(|((_, free), _)| !free) {
            self.notes.join("tools: ", own);
        }
        Ok(form)
    }

    /// The form of these tools; why there is none. Each tool comes with whether its arguments may be any object.
    ///
    /// # Errors
    /// [`ToolError::Compiler`].
    fn form_of(
        &self,
        held: &[(&Tool, bool)],
        tokens: &TokenTrie,
        budget: &CompileBudget,
    ) -> Result<Result<Form, String>> {
        let form = form::parts(self.family, self.syntax, held, self.options.parallel)
            .and_then(|parts| Form::compile(&FormSource::Parts(parts), tokens, budget));
        match form {
            Err(error @ (GrammarError::Busy | GrammarError::Cancelled)) => {
                Err(ToolError::Compiler(error))
            }
            form => Ok(form.map_err(|error| error.to_string())),
        }
    }
}

/// Constraints on one reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyForms<'a> {
    /// The form that the reply must have, unless it calls tools.
    pub form: Option<&'a Form>,
    /// The tools that the reply may call.
    pub tools: Option<&'a ToolUse>,
    /// Whether a required call must be in this reply. False for a reply that answers the results of calls.
    pub asks: bool,
    /// Text with which the reply has already begun.
    pub begun: &'a str,
}

impl ReplyForms<'_> {
    /// Returns a sampler that enforces these constraints. A reply that must be calls or have the form is constrained from its start.
    /// Otherwise, calls are constrained from the opening mark of the first one. `thoughts` extends a form by the thoughts that may
    /// come before it.
    ///
    /// # Errors
    /// If no thread can be started, or `begun` matches none of the forms.
    pub fn constrain(
        &self,
        sampler: Sampler,
        thoughts: &dyn Fn(Box<dyn Constraint>) -> Box<dyn Constraint>,
    ) -> engine::Result<Sampler> {
        let tools = self.tools.filter(|tools| tools.may());
        let calls = tools.and_then(ToolUse::begin);
        let must = tools.is_some_and(ToolUse::must) && self.asks;
        let mut held = match (self.form.map(Form::begin), calls) {
            (_, Some(calls)) if must => calls,
            (Some(form), Some(calls)) => Box::new(EitherForm::new(vec![calls, form])),
            (Some(form), None) => form,
            (None, Some(calls)) => return Ok(sampler.with_opened_constraint(calls)),
            (None, None) => return Ok(sampler),
        };
        if !self.begun.is_empty() {
            held.take_text(self.begun)?;
            return sampler.with_constraint(held);
        }
        sampler.with_constraint(thoughts(held))
    }
}

/// What is compiled, for errors.
const TOOLS: &str = "tools";

/// A message with its calls as the model of this template is told to write them, where the template writes none: what
/// [`Message::written`] is for.
pub fn with_calls_written(message: Message, template: &ChatTemplate) -> Message {
    if message.tool_calls.is_empty() || message.written.is_some() {
        return message;
    }
    if template.tool_style().writes_calls {
        return message;
    }
    let mut written = message.content.clone();
    for call in &message.tool_calls {
        if !written.is_empty() {
            written.push('\n');
        }
        let name = Value::from(&*call.name);
        let arguments = &call.arguments;
        written +=
            &format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>");
    }
    Message { written: Some(written), ..message }
}

impl Toolbox for ToolUse {
    fn declared(&self) -> Option<&ToolDeclarations> {
        self.declared.as_ref()
    }

    fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    fn parser(&self, ids: CallIds) -> Option<Box<dyn CallParser>> {
        self.may().then(|| {
            let reader = CallReader::new(self.family, Arc::clone(&self.tools), ids);
            Box::new(reader) as Box<dyn CallParser>
        })
    }
}

/// Returns the syntax of the family in which a template writes calls, or the first one if it writes none of them.
fn syntax_of(family: &'static CallFamily, template: &ChatTemplate) -> &'static CallSyntax {
    let first = &family.syntaxes[0];
    if family.syntaxes.len() == 1 || !template.tool_style().writes_calls {
        return first;
    }
    let text = template.trial_call_prompt();
    let argument = WrittenArgument {
        key: TrialCall::KEY.to_owned(),
        text: TrialCall::VALUE.to_owned(),
        json: format!("\"{}\"", TrialCall::VALUE),
    };
    let writes = |syntax: &&CallSyntax| {
        // white space does not distinguish syntaxes
        let head = WrittenCall::new(syntax, TrialCall::NAME, std::slice::from_ref(&argument)).head;
        let gap = syntax.gap.trim_start_matches('\n');
        text.contains(&head) || !gap.is_empty() && text.contains(&head.replacen(gap, "", 1))
    };
    family.syntaxes.iter().find(writes).unwrap_or(first)
}

/// Maximum number of parameters in the example call.
const EXAMPLE_PARAMETERS: usize = 4;

/// Returns the description of tools for a model whose template has no tool support. The wording is that of Hermes and its
/// followers, which models know. The example is a call of the first tool, with a placeholder for each value, so that a model has no
/// value to copy.
fn instructions(tools: &ToolList, syntax: &CallSyntax) -> String {
    let mut text = "You may call functions to help with the user query. Their signatures are within <tools></tools> XML tags:\n<tools>\n"
        .to_owned();
    for tool in tools.declared() {
        text += &python_json(tool);
        text.push('\n');
    }
    text += "</tools>\n\nFor each function call, return the function name and arguments in this form:\n";
    if let Some(tool) = tools.tools().first() {
        let WrittenCall { head, close } = WrittenCall::new(syntax, &tool.name, &placeholders(tool));
        text += &head;
        text += &close;
    }
    text + "\nIf no function is needed, answer the user directly."
}

/// Returns the required parameters of this tool, or its first ones if none is required, each with its name in place of a value.
fn placeholders(tool: &Tool) -> Vec<WrittenArgument> {
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let is_required = |key: &str| required.is_some_and(|all| all.iter().any(|name| name == key));
    let keys = || properties.into_iter().flatten().map(|(key, _)| key.as_str());
    let mut chosen: Vec<&str> = keys().filter(|key| is_required(key)).collect();
    if chosen.is_empty() {
        chosen.extend(keys());
    }
    let placeholder = |key: &&str| {
        let value = format!("<{key}>");
        WrittenArgument { key: (*key).to_owned(), text: value.clone(), json: value }
    };
    chosen.iter().take(EXAMPLE_PARAMETERS).map(placeholder).collect()
}
