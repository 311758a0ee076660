//! Questions from a file.

use std::io::Write;
use std::path::PathBuf;

use engine::{Message, Recall as Scores, Session, Tally, answers};
use gguf::escape;
use serde::Deserialize;
use serde_json::json;

use super::report::score;
use super::{Asker, Recall};
use crate::args::ContextArgs;
use crate::exit::Failure;
use crate::input::TextSource;
use crate::load;
use crate::output::shown;
use crate::ui;

/// Longest reply unless told otherwise.
const REPLY_TOKENS: usize = 48;

/// One question.
#[derive(Debug, Deserialize)]
struct Item {
    kind: String,
    messages: Vec<Said>,
    answer: String,
    depth: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Said {
    role: String,
    content: String,
}

impl Recall {
    /// Ask what a file says, and tell what came of it.
    pub(super) fn of_file(&self, path: PathBuf, out: &mut dyn Write) -> anyhow::Result<()> {
        let context = self.one_context()?;
        let items = read(path)?;
        let gguf = self.open()?;
        let mut asker = Asker::new(&gguf)?;
        let cache = |config: &models::ModelConfig| {
            let trained = config.context_length;
            self.cache.options(context.capacity(trained), trained)
        };
        let loaded = self.load(&gguf, &cache)?;
        let cache = cache(&loaded.config);
        load::warn_about_context(&loaded.config, cache.capacity, &cache.policy);
        let mut session = Session::new(loaded.model, cache, loaded.chunk)?;
        drop(gguf);
        let bar = ui::count_bar("questions", items.len() as u64);
        let mut scores = Scores::default();
        asker.interrupt.begin();
        for (item, line) in items.iter().zip(1..) {
            let asked = self.ask(&mut asker, &mut session, (item, line));
            let right = asked.inspect_err(|_| bar.finish_and_clear())?;
            scores.add(&item.kind, item.depth, right);
            bar.inc(1);
        }
        asker.interrupt.end();
        bar.finish_and_clear();
        if self.json { print_json(&scores, out) } else { print(&scores, out) }
    }

    /// Texts of a file have their lengths; the session has one.
    fn one_context(&self) -> Result<ContextArgs, Failure> {
        match self.ctx_size[..] {
            [] => Ok(ContextArgs { ctx_size: None }),
            [one] => Ok(ContextArgs { ctx_size: Some(one) }),
            _ => Err(Failure::Usage(
                "several lengths by -c, and -f: questions of a file have theirs, and need one context".into(),
            )),
        }
    }

    /// Whether the reply to the question of a line is right.
    fn ask(
        &self,
        asker: &mut Asker,
        session: &mut Session,
        (item, line): (&Item, usize),
    ) -> anyhow::Result<bool> {
        let name = || format!("question {line}");
        let said = item.messages.iter();
        let messages: Vec<Message> = said.map(|m| Message::new(&*m.role, &*m.content)).collect();
        let prompt = asker.prompt(&messages);
        let prompt = prompt.map_err(|error| asker.stopped(error, &name))?;
        let most = self.n_predict.unwrap_or(REPLY_TOKENS);
        let reply = asker.ask(session, &prompt, most, &name)?;
        let right = answers(&reply.text, &item.answer);
        if self.verbose.verbose && !right {
            ui::note(format_args!(
                "{}, question {line}: wanted `{}`, got `{}`",
                escape(&item.kind, 40),
                escape(&item.answer, 100),
                escape(&reply.text, 200)
            ));
        }
        Ok(right)
    }
}

fn read(path: PathBuf) -> anyhow::Result<Vec<Item>> {
    let name = shown(&path);
    let text = TextSource::of_path(path).read()?;
    let mut items = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let item: Item = serde_json::from_str(text).map_err(|error| {
            rooflight::Error::Malformed(format!("{name} line {line}: {}", no_item(&error)))
        })?;
        items.push(item);
    }
    if items.is_empty() {
        return Err(rooflight::Error::Malformed(format!("{name} has no questions")).into());
    }
    Ok(items)
}

/// What is wrong with a line, in other words than the parser's.
fn no_item(error: &serde_json::Error) -> String {
    let wanted = r#"expected a JSON object such as {"kind": "name", "messages": [{"role": "user", "content": "..."}], "answer": "..."}"#;
    match error.classify() {
        serde_json::error::Category::Data => {
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or_default();
            format!("{what}; {wanted}")
        }
        _ => format!("{wanted}, found no JSON at column {}", error.column()),
    }
}

/// `92.5 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn print(scores: &Scores, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(["kind", "asked", "right", "share", "95 % interval"]);
    let mut row = |name: &str, score: Tally| {
        let (low, high) = score.interval();
        table.add_row([
            escape(name, 40),
            score.asked.to_string(),
            score.right.to_string(),
            percent(score.share()),
            format!("{} to {}", percent(low), percent(high)),
        ]);
    };
    scores.kinds().for_each(|(kind, score)| row(kind, score));
    row("all", scores.total());
    writeln!(out, "{table}")?;
    for (kind, depths) in scores.kinds().filter_map(|(kind, _)| Some((kind, scores.depths(kind)?)))
    {
        let shares = depths.iter().map(|score| match score.asked {
            0 => "  -".to_owned(),
            _ => format!("{:3.0}", score.share() * 100.0),
        });
        let shares: Vec<String> = shares.collect();
        writeln!(out, "{} by depth, tenths, %: {}", escape(kind, 40), shares.join(" "))?;
    }
    Ok(())
}

fn print_json(scores: &Scores, out: &mut dyn Write) -> anyhow::Result<()> {
    let kinds: serde_json::Map<String, serde_json::Value> = scores
        .kinds()
        .map(|(kind, of_kind)| {
            let mut value = score(of_kind);
            if let Some(depths) = scores.depths(kind) {
                value["by_depth"] = depths.iter().map(|depth| score(*depth)).collect();
            }
            (kind.to_owned(), value)
        })
        .collect();
    let all = json!({"kinds": kinds, "all": score(scores.total())});
    writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    Ok(())
}
