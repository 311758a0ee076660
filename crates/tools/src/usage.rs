//! Tools in use: what a model is told of them, whether it must call, and what holds it to how calls are written.

use std::sync::Arc;

use engine::{CallParser, Constraint, Sampler, Toolbox};
use grammar::{CompileBudget, Form, FormSource, GrammarError, TokenTrie};
use tokenizer::{ChatTemplate, Message, ToolDeclarations};

use crate::families::DEFAULT;
use crate::family::CallFamily;
use crate::form;
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
}

impl Default for ToolOptions {
    fn default() -> ToolOptions {
        ToolOptions { choice: ToolChoice::Auto, parallel: true }
    }
}

/// Tools that a model of a certain template and vocabulary may call.
#[derive(Debug)]
pub struct ToolUse {
    tools: Arc<ToolList>,
    family: &'static CallFamily,
    options: ToolOptions,
    declared: Option<ToolDeclarations>,
    instructions: Option<String>,
    form: Option<Form>,
    notes: Vec<String>,
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
            options,
            declared: None,
            instructions: None,
            form: None,
            notes: Vec::new(),
        };
        if made.options.choice == ToolChoice::None || tools.tools().is_empty() {
            return Ok(made);
        }
        match style.declares {
            true => made.declared = ToolDeclarations::from_json(&tools.to_json()).ok(),
            false => {
                made.notes.push(
                    "the chat template says nothing of tools: the system message describes them"
                        .to_owned(),
                );
                made.instructions = Some(instructions(tools, family));
            }
        }
        let form = match tokens {
            Some(tokens) => made.compile(tokens, budget)?,
            None => Err("no token ends a reply".to_owned()),
        };
        match form {
            Ok(form) => made.form = Some(form),
            Err(problem) if made.must() => return Err(ToolError::Form { problem }),
            Err(problem) => made.notes.push(format!("calls are not held to their form: {problem}")),
        }
        Ok(made)
    }

    /// What the user should know, one line each.
    pub fn notes(&self) -> &[String] {
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

    /// The form of calls, of which nothing has come; `None` where they are not held to one.
    pub fn begin(&self) -> Option<Box<dyn Constraint>> {
        self.form.as_ref().map(Form::begin)
    }

    /// A sampler that keeps calls to their form: from what opens the first one on, or from the start where there must be
    /// one and the reply `asks` for it, not being about the results of calls.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn constrain(&self, sampler: Sampler, asks: bool) -> engine::Result<Sampler> {
        match self.begin() {
            Some(form) if asks && self.must() => sampler.with_constraint(form),
            Some(form) => Ok(sampler.with_opened_constraint(form)),
            None => Ok(sampler),
        }
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
        let (family, several) = (self.family, self.options.parallel);
        let form = |held: &[(&Tool, bool)]| {
            let form = form::parts(family, held, several)
                .and_then(|parts| Form::compile(&FormSource::Parts(parts), tokens, budget));
            match form {
                Err(error @ (GrammarError::Busy | GrammarError::Cancelled)) => {
                    Err(ToolError::Compiler(error))
                }
                form => Ok(form.map_err(|error| error.to_string())),
            }
        };
        let mut last = match form(&held)? {
            Ok(form) => return Ok(Ok(form)),
            Err(problem) => problem,
        };
        let alone = held.len() == 1;
        for place in 0..held.len() {
            let tool = held[place].0;
            let problem = match alone {
                true => Some(last.clone()),
                false => form(&[(tool, false)])?.err(),
            };
            let Some(problem) = problem else { continue };
            if tool.strict {
                return Err(ToolError::Strict { name: tool.name.clone(), problem });
            }
            if budget.check(TOOLS).is_err() {
                // which of those behind it could be held to is not known
                return match held[place..].iter().find(|(tool, _)| tool.strict) {
                    Some((tool, _)) => {
                        Err(ToolError::Strict { name: tool.name.clone(), problem: last })
                    }
                    None => Ok(Err(last)),
                };
            }
            self.notes.push(format!(
                "tool `{}`: its arguments are not held to its schema: {problem}",
                tool.name
            ));
            held[place].1 = true;
            last = problem;
        }
        form(&held)
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
        let name = serde_json::Value::from(&*call.name);
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

    fn parser(&self, before: usize) -> Option<Box<dyn CallParser>> {
        let may = self.options.choice != ToolChoice::None && !self.tools.tools().is_empty();
        may.then(|| {
            let reader = CallReader::new(self.family, Arc::clone(&self.tools), before);
            Box::new(reader) as Box<dyn CallParser>
        })
    }
}

/// What a model is told of tools whose template says nothing of them.
fn instructions(tools: &ToolList, family: &CallFamily) -> String {
    let mut text = "These tools can be called, each described by a JSON object:\n".to_owned();
    for tool in tools.declared() {
        text += &format!("{tool}\n");
    }
    let example = family.examples[0];
    text + "Call a tool where the answer needs it, else answer. A call is written like this one of a tool `get_weather`, \
            and nothing stands behind it:\n"
        + example
}
