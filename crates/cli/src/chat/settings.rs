//! The command `/set`, and the list of `/show parameters`.

use engine::{FullContext, Reasoning};
use rooflight::fit as memory;

use super::command::{Done, split};
use super::{Chat, help};
use crate::statistics::Statistics;
use crate::{counts, executor, reasoning, sampling, units};

impl Chat {
    pub(super) fn set(&mut self, rest: &str) -> Done {
        let (what, value) = split(rest);
        let settings = &mut self.settings;
        let (name, on) = match (what, value) {
            ("parameter", value) => return self.set_parameter(value),
            ("stop", value) if !value.is_empty() => return self.set_stop(value),
            ("stats", "on" | "") | ("verbose", "off") => {
                return Ok(Some(self.set_statistics(Statistics::Line)));
            }
            ("stats", "full") | ("verbose", "on" | "") => {
                return Ok(Some(self.set_statistics(Statistics::Full)));
            }
            ("stats", "off") | ("quiet", "") => {
                return Ok(Some(self.set_statistics(Statistics::Off)));
            }
            ("system", text) if !text.is_empty() => return Ok(Some(self.set_system(text))),
            ("nothink", "") => return Ok(Some(self.think(Reasoning::Off))),
            ("think", "") => return Ok(Some(self.think(Reasoning::On))),
            ("think", value) if let Ok(reasoning) = reasoning::parse(value) => {
                return Ok(Some(self.think(reasoning)));
            }
            ("context-full", "stop") => {
                settings.full = FullContext::Stop;
                return Ok(Some("context-full stop: nothing is forgotten".into()));
            }
            ("context-full", "drop-oldest") => {
                settings.full = FullContext::DropOldest;
                return Ok(Some(
                    "context-full drop-oldest: the oldest turns make room, and replies say so"
                        .into(),
                ));
            }
            ("markdown", "on" | "") => (&mut settings.markdown, true),
            ("markdown", "off") | ("nomarkdown", "") => (&mut settings.markdown, false),
            ("wordwrap", "on" | "") => (&mut settings.wrap, true),
            ("wordwrap", "off") | ("nowordwrap", "") => (&mut settings.wrap, false),
            ("history", "on" | "") => (&mut self.history, true),
            ("history", "off") | ("nohistory", "") => (&mut self.history, false),
            (name, value) if help::parameter(name).is_some() => {
                return self.set_parameter(&format!("{name} {value}"));
            }
            (name, value) => return Err(self.wrong_setting(name, value)),
        };
        *name = on;
        let what = what.strip_prefix("no").unwrap_or(what);
        Ok(Some(format!("{what} {}", switch(on))))
    }

    fn set_statistics(&mut self, statistics: Statistics) -> String {
        self.settings.statistics = statistics;
        format!("stats {}", statistics.name())
    }

    /// Replaces the texts that end replies.
    fn set_stop(&mut self, value: &str) -> Done {
        self.settings.stop = stop_texts(value)?;
        Ok(Some(match self.settings.stop.len() {
            0 => "no stop text".into(),
            1 => format!("stop {}", gguf::escape(&self.settings.stop[0], 60)),
            n => units::counted(n, "stop text"),
        }))
    }

    /// Says what a setting may be and what it is, or which settings there are.
    fn wrong_setting(&self, name: &str, value: &str) -> String {
        let is_setting = |name: &&str| value.is_empty() && help::setting(name).is_some();
        let name = name.strip_prefix("no").filter(is_setting).unwrap_or(name);
        if let Some(usage) = help::setting(name) {
            let now = self.value_of(name).map_or(String::new(), |now| format!("; it is {now}"));
            return format!("expected {usage}{now}");
        }
        if name.is_empty() {
            return "expected /set and a setting with its value: /help set lists them".into();
        }
        format!("there is no setting {name}:{} /help set lists them", help::did_you_mean(name))
    }

    /// Returns the present value of a setting or parameter, as `/show parameters` lists it.
    fn value_of(&self, name: &str) -> Option<String> {
        let listed = self.parameters();
        let mut lines = listed.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(known, _)| *known == name).map(|(_, value)| value.trim().to_owned())
    }

    /// Says what a parameter may be and what it is.
    fn parameter_usage(&self, name: &str) -> String {
        let range = match name {
            "num_ctx" => "a number of tokens, 0 for the model's",
            "predict" => "a number of tokens, -1 for no limit",
            "stop" => "a text, or - for none",
            name => sampling::expected(name),
        };
        let now = self.value_of(name);
        let now = now.map_or_else(|| "none is set".to_owned(), |now| format!("it is {now}"));
        format!("expected /set parameter {name} and {range}; {now}")
    }

    pub(super) fn set_parameter(&mut self, rest: &str) -> Done {
        let (given, value) = split(rest);
        if given.is_empty() {
            return Err(
                "expected /set parameter NAME VALUE; /show parameters lists the names".into()
            );
        }
        let Some(name) = help::parameter(given) else {
            let near = help::did_you_mean(given);
            return Err(format!(
                "there is no parameter {given}:{near} /show parameters lists them"
            ));
        };
        if value.is_empty() {
            return Err(self.parameter_usage(&name));
        }
        let set = match &*name {
            "num_ctx" => match counts::context(value) {
                Ok(positions) => return self.resize(positions),
                Err(problem) => Err(problem),
            },
            "stop" => return self.set_stop(value),
            "predict" => counts::predict(value).map(|length| self.settings.max_tokens = length.0),
            name => sampling::set(&mut self.settings.sampler, name, value),
        };
        if let Err(problem) = set {
            let now = self.value_of(&name).unwrap_or_default();
            return Err(format!("{name}: {problem}; it is {now}"));
        }
        self.parameters.retain(|(other, _)| *other != name);
        self.parameters.push((name.clone(), value.to_owned()));
        let note = sampling::below_zero(&self.settings.sampler).filter(|_| name == "temperature");
        let note = note.map_or(String::new(), |note| format!(": {note}"));
        Ok(Some(format!("{name} {value}{note}")))
    }

    /// Changes the context length; 0 selects the model's own.
    fn resize(&mut self, positions: usize) -> Done {
        let capacity = if positions == 0 { self.trained } else { positions };
        if let Some(most) = self.short_context
            && (capacity <= most) != (self.cache.capacity <= most)
        {
            return Err(format!(
                "this model reads contexts of up to {most} tokens otherwise than longer ones: start with -c {capacity}"
            ));
        }
        let cache = program::CacheOptions { capacity, ..self.cache };
        let kept = executor::kept(&cache, self.gpu.as_ref());
        let bytes = self.conversation.session().model().program().cache_bytes(capacity, &kept);
        if let Some(free) = memory::free(self.gpu.as_ref())
            .filter(|free| bytes.saturating_add(memory::PASS) > *free)
        {
            let [wanted, free] = [bytes, free].map(units::bytes);
            return Err(format!(
                "a context of {capacity} tokens takes {wanted} of memory, of which {free} are free"
            ));
        }
        self.conversation.set_cache(cache).map_err(|error| error.to_string())?;
        self.cache = cache;
        self.nearly_full = false;
        let beyond = match capacity > self.trained {
            true => format!(", beyond the {} this model was made for", self.trained),
            false => String::new(),
        };
        Ok(Some(format!(
            "num_ctx {capacity}{beyond}: the next message re-processes the conversation"
        )))
    }

    fn think(&mut self, reasoning: Reasoning) -> String {
        self.settings.reasoning = reasoning;
        match self.conversation.format().switch_note(reasoning) {
            Some(note) => note.to_owned(),
            None => format!("think {}", reasoning::name(reasoning)),
        }
    }

    pub(super) fn set_system(&mut self, text: &str) -> String {
        self.system = Some(text.trim_matches('"').to_owned()).filter(|text| text != "-");
        self.conversation.set_system(self.system.clone());
        let set = if self.system.is_some() { "is set" } else { "is removed" };
        format!("the system message {set}: it counts from the next message on")
    }

    pub(super) fn parameters(&self) -> String {
        let settings = &self.settings;
        let predict = settings.max_tokens.map_or_else(|| "-1".to_owned(), |n| n.to_string());
        let full = match settings.full {
            FullContext::Stop => "stop",
            FullContext::DropOldest => "drop-oldest",
        };
        let own = [
            ("predict", predict),
            ("num_ctx", self.conversation.session().capacity().to_string()),
            ("think", reasoning::name(settings.reasoning)),
            ("context-full", full.into()),
            ("stats", settings.statistics.name().into()),
            ("markdown", switch(settings.markdown).into()),
            ("wordwrap", switch(settings.wrap).into()),
            ("history", switch(self.history).into()),
        ];
        let own = own.map(|(name, value)| format!("{name:18} {value}\n"));
        let stop =
            settings.stop.iter().map(|text| format!("{:18} {}\n", "stop", gguf::escape(text, 60)));
        sampling::list(&settings.sampler) + &own.concat() + &stop.collect::<String>()
    }
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

/// Parses stop texts: `TEXT`, `"A" "B"` with JSON escapes, or `-` for none.
fn stop_texts(value: &str) -> Result<Vec<String>, String> {
    if value == "-" {
        return Ok(Vec::new());
    }
    if !value.starts_with('"') {
        return Ok(vec![value.to_owned()]);
    }
    let texts = serde_json::Deserializer::from_str(value).into_iter::<String>();
    let texts: Result<Vec<_>, _> = texts.collect();
    let texts = texts.map_err(|_| r#"expected a text, or texts in quotes: "User:" "\n""#)?;
    // an empty text would match everywhere
    match texts.iter().any(String::is_empty) {
        true => Err("expected a text that is not empty".into()),
        false => Ok(texts),
    }
}

#[cfg(test)]
mod tests {
    use super::stop_texts;

    #[test]
    fn stop_texts_are_one_or_several() {
        for (value, want) in [
            ("User:", vec!["User:"]),
            ("two words", vec!["two words"]),
            (r#""a" "b\n""#, vec!["a", "b\n"]),
            ("-", vec![]),
        ] {
            assert_eq!(stop_texts(value).unwrap(), want, "{value}");
        }
        for value in [r#""""#, r#""a" b"#, r#""a"#] {
            assert!(stop_texts(value).is_err(), "{value}");
        }
    }
}
