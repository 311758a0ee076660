use std::collections::VecDeque;
use std::sync::Arc;

use engine::{SamplerOptions, Session};
use program::{CacheOptions, CacheType};

use super::*;
use crate::sampling::LengthArgs;
use crate::session::Opened;
use executors::{ExecutorKind, ExecutorOptions};

/// Lines given in advance.
#[derive(Default)]
struct Script {
    inputs: VecDeque<Input>,
    remembered: Vec<String>,
    drafts: Vec<String>,
}

impl Script {
    fn new(lines: &[&str]) -> Self {
        let inputs = lines.iter().map(|line| match *line {
            "^C" => Input::Interrupted,
            line => Input::Line(line.to_owned()),
        });
        Script { inputs: inputs.collect(), ..Script::default() }
    }
}

impl LineReader for Script {
    fn read(&mut self, _prompt: &str, draft: Option<&str>) -> anyhow::Result<Input> {
        self.drafts.extend(draft.map(str::to_owned));
        Ok(self.inputs.pop_front().unwrap_or(Input::End))
    }

    fn forget_typed(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn remember(&mut self, entry: &str) {
        self.remembered.push(entry.to_owned());
    }
}

fn chat() -> Chat {
    let gguf = gguf::Gguf::from_bytes(conformance::demo_gguf()).unwrap();
    let loaded = models::load(&gguf).unwrap();
    let executor =
        ExecutorOptions { kind: ExecutorKind::Interpreter, ..ExecutorOptions::default() };
    let executor = executor.start().unwrap();
    let model = executor.load(loaded.program, &models::GgufWeights(&gguf), &mut |_| ()).unwrap();
    let cache = CacheOptions::new(CacheType::F32, CacheType::F32, 512);
    let session = Session::new(model.into(), cache, 0).unwrap();
    let mut settings = Settings::new(
        SamplerOptions { seed: Some(1), ..SamplerOptions::default() },
        LengthArgs::default(),
        Statistics::Line,
    );
    settings.max_tokens = Some(8);
    let opened = Opened {
        session,
        limits: None,
        trained: 512,
        short_context: None,
        cache,
        drafters: None,
        executor: executor.describe(),
        gpu: None,
    };
    Chat::new(NewChat {
        opened,
        format: crate::load::chat_format(&gguf).unwrap(),
        settings,
        interrupt: Interrupt::default(),
        model: ("Demo".into(), "demo.gguf".into()),
        info: "demo\n".into(),
        template: None,
    })
}

/// The demo model has random weights: a call must be asked for.
#[test]
fn results_of_calls_are_asked_for() {
    let list = "[{\"name\": \"ok\", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"boolean\"}}, \"required\": [\"a\"]}}]";
    let list = Arc::new(tools::ToolList::read(list).unwrap());
    let with_tools = || {
        let mut chat = chat();
        let cache = CacheOptions::new(CacheType::F32, CacheType::F32, 2048);
        chat.conversation.set_cache(cache).unwrap();
        let gguf = gguf::Gguf::from_bytes(conformance::demo_gguf()).unwrap();
        let format = crate::load::chat_format(&gguf).unwrap();
        let trie = grammar::TokenTrie::new(Arc::clone(format.tokenizer())).unwrap();
        let options = tools::ToolOptions {
            choice: tools::ToolChoice::Required,
            parallel: false,
            strict: false,
        };
        let tools = {
            let budget = grammar::CompileBudget::default();
            tools::ToolUse::new(&list, options, format.template(), Some(&trie), &budget).unwrap()
        };
        let tools = Arc::new(tools);
        chat.conversation.set_tools(Some(Arc::clone(&tools) as Arc<dyn engine::Toolbox>));
        chat.settings.tools = Some(tools);
        chat.settings.max_tokens = Some(100);
        chat
    };
    let told = |lines: &[&str]| {
        let (mut chat, mut out) = (with_tools(), Vec::new());
        chat.run(&mut Script::new(lines), &mut out).unwrap();
        (chat, String::from_utf8(out).unwrap())
    };
    let (chat, out) = told(&["hello", "\"\"\"two", "lines\"\"\"", "/bye"]);
    let call = out.lines().next().unwrap();
    assert!(call == "ok {\"a\": true}" || call == "ok {\"a\": false}", "{out}");
    assert_eq!(roles(&chat)[..4], ["user", "assistant", "tool", "assistant"]);
    assert_eq!(chat.conversation.messages()[2].content, "two\nlines");
    // without a result the next message goes on, and the end of the input ends the chat
    let (chat, _) = told(&["hello", "^C", "/bye"]);
    assert_eq!((roles(&chat).len(), chat.conversation.open_calls().len()), (2, 1));
    let (chat, _) = told(&["hello"]);
    assert_eq!(chat.conversation.open_calls().len(), 1);
}

/// Run the lines; the chat and what it printed.
fn run(lines: &[&str]) -> (Chat, String) {
    let mut chat = chat();
    let mut out = Vec::new();
    chat.run(&mut Script::new(lines), &mut out).unwrap();
    (chat, String::from_utf8(out).unwrap())
}

fn roles(chat: &Chat) -> Vec<&str> {
    chat.conversation.messages().iter().map(|m| m.role.as_str()).collect()
}

#[test]
fn messages_are_answered_and_remembered() {
    let (chat, out) = run(&["hello", "", "again"]);
    assert_eq!(roles(&chat), ["user", "assistant", "user", "assistant"]);
    let replies: String =
        [1, 3].map(|i| chat.conversation.messages()[i].content.clone() + "\n").concat();
    assert_eq!(out, replies);
}

#[test]
fn three_quotes_hold_many_lines() {
    let mut script = Script::new(&["\"\"\"first", "second", "third\"\"\"", "\"\"\"one\"\"\""]);
    assert_eq!(
        read_message(&mut script, (PROMPT, None), true).unwrap(),
        Input::Block("first\nsecond\nthird".into())
    );
    assert_eq!(
        read_message(&mut script, (PROMPT, None), true).unwrap(),
        Input::Block("one".into())
    );
    assert_eq!(script.remembered, ["\"\"\"first\nsecond\nthird\"\"\"", "\"\"\"one\"\"\""]);
    let mut script = Script::new(&["\"\"\"", "text", "^C", "next"]);
    assert_eq!(
        read_message(&mut script, (PROMPT, None), true).unwrap(),
        Input::Line(String::new())
    );
    assert_eq!(
        read_message(&mut script, (PROMPT, None), true).unwrap(),
        Input::Line("next".into())
    );
    let (chat, _) = run(&["\"\"\"/bye\"\"\"", "/bye"]);
    assert_eq!(roles(&chat), ["user", "assistant"], "what is quoted is no command");
}

#[test]
fn clear_regen_and_system() {
    let (chat, _) = run(&["/system Be brief.", "hello", "/regen"]);
    assert_eq!(roles(&chat), ["system", "user", "assistant"]);
    let (chat, _) = run(&["/system Be brief.", "hello", "/clear"]);
    assert_eq!(roles(&chat), ["system"]);
    assert!(chat.conversation.session().is_empty());
    let (chat, _) = run(&["/system Be brief.", "/system -"]);
    assert_eq!((roles(&chat).len(), chat.system), (0, None));
}

#[test]
fn settings_are_set_and_shown() {
    let lines = [
        "/set parameter temperature 0.5",
        "/set parameter predict 3",
        "/set think off",
        "/show parameters",
    ];
    let (chat, out) = run(&lines);
    assert_eq!((chat.settings.sampler.temperature, chat.settings.max_tokens), (0.5, Some(3)));
    assert_eq!(chat.settings.reasoning, engine::Reasoning::Off);
    assert!(
        out.contains("temperature        0.5\n") && out.contains("predict            3\n"),
        "{out}"
    );
    let (chat, out) = run(&[
        "/set parameter top_p 7",
        "/set parameter nothing 1",
        "/set",
        "/nonsense",
        "/show x",
    ]);
    assert_eq!((chat.settings.sampler.top_p, out.as_str()), (0.95, ""));
    let (_, out) = run(&["/help", "/show info", "/show template", "/show system"]);
    for word in ["/regen", "demo", "ChatML", "no system message"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

/// A parameter is set with or without the word `parameter`, by any of its names. What is wrong says the range and the present
/// value, or the nearest name.
#[test]
fn wrong_settings_say_what_may_be_and_what_is() {
    for (line, told) in [
        ("temp 0", "temperature 0"),
        ("parameter temp 0.25", "temperature 0.25"),
        ("parameter --top-k 5", "top_k 5"),
        ("temperature -1", "temperature -1: the likeliest token is chosen, as at 0"),
        ("num_predict 7", "predict 7"),
        ("think 700", "think 700"),
    ] {
        let mut chat = chat();
        let set = chat.set(line);
        assert!(
            set == Ok(Some(told.to_owned())) || line == "think 700" && set.is_ok(),
            "{line}: {set:?}"
        );
        assert!(
            chat.parameters.len() < 2 && chat.parameters.iter().all(|(name, _)| name != "temp")
        );
    }
    for (line, parts) in [
        ("temp", &["/set parameter temperature", "0 or less", "it is 0.8"][..]),
        ("parameter temperature", &["/set parameter temperature", "it is 0.8"]),
        ("parameter top_p", &["0 to 1", "it is 0.95"]),
        ("top_p 7", &["top_p: expected 0 to 1, found 7", "it is 0.95"]),
        ("top_k some", &["top_k: expected a number, found `some`", "it is 40"]),
        ("predict", &["-1 for no limit", "it is 8"]),
        ("num_ctx many", &["num_ctx", "it is 512"]),
        ("parameter stop", &["a text", "none is set"]),
        ("think maybe", &["/set think on|off|auto", "it is auto"]),
        ("context-full", &["stop|drop-oldest", "it is stop"]),
        ("stats maybe", &["on|off|full", "it is on"]),
        ("foo 1", &["no setting foo", "/help set"]),
        ("tempratur 1", &["no setting tempratur", "did you mean temperature?"]),
        ("parameter topk 1", &["no parameter topk", "did you mean top_k?", "/show parameters"]),
        ("", &["/help set"]),
    ] {
        let problem = chat().set(line).unwrap_err();
        assert!(parts.iter().all(|part| problem.contains(part)), "{line}: {problem}");
    }
}

#[test]
fn commands_without_arguments_take_none() {
    let lines = ["/undo", "/clear", "/stats", "/regen", "/edit", "/bye", "/quit", "/help"];
    let lines = lines.map(|line| format!("{line} x"));
    let lines: Vec<&str> = std::iter::once("one").chain(lines.iter().map(|line| &**line)).collect();
    let (chat, out) = run(&[&lines[..], &["two"]].concat());
    assert_eq!(roles(&chat), ["user", "assistant", "user", "assistant"]);
    let replies: String =
        [1, 3].map(|i| chat.conversation.messages()[i].content.clone() + "\n").concat();
    assert_eq!(out, replies);
    for word in ["/undo", "/bye", "/quit"] {
        assert!(help::is_alone(word), "{word}");
    }
    for word in ["/model", "/set", "/help", "/save", "/nonsense"] {
        assert!(!help::is_alone(word), "{word}");
    }
}

#[test]
fn a_file_goes_before_the_next_message_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("notes.txt");
    std::fs::write(&file, "\u{feff}one\ntwo\n\n").unwrap();
    let read = format!("/read {}", file.display());
    let said = |lines: &[&str]| {
        let (chat, _) = run(lines);
        let said = chat.conversation.messages().iter().filter(|m| m.role == "user");
        said.map(|m| m.content.clone()).collect::<Vec<_>>()
    };
    assert_eq!(said(&[&read, "what is it?", "and now?"]), ["one\ntwo\n\nwhat is it?", "and now?"]);
    assert_eq!(said(&[&read, &read, "both?"]), ["one\ntwo\n\none\ntwo\n\nboth?"]);
    assert_eq!(said(&[&read, "/clear", "gone?"]), ["gone?"]);
    assert_eq!(said(&["/read no such file", "/read", "nothing?"]), ["nothing?"]);
}

#[test]
fn leaving() {
    for word in ["/bye", "/exit"] {
        let (chat, _) = run(&[word, "not sent"]);
        assert!(chat.conversation.messages().is_empty(), "{word}");
    }
    let mut out = Vec::new();
    let error = chat()
        .run(&mut Script::new(&["^C", "/show system", "^C", "^C", "no"]), &mut out)
        .unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(Failure::Interrupted)), "{error}");
}

#[test]
fn a_full_context_ends_the_reply_and_not_the_chat() {
    let long = "word ".repeat(200);
    let (chat, _) = run(&[&long, &long, &long, "/clear", "short"]);
    assert_eq!(roles(&chat), ["user", "assistant"]);
}

#[test]
fn help_fits_a_screen_and_every_command_is_obeyed() {
    for (line, words) in [("/help", "/undo"), ("/help set", "context-full"), ("/?", "/model NAME")]
    {
        let (_, help) = run(&[line]);
        assert!(help.contains(words), "{line}: {help}");
        assert!(help.lines().count() <= 22, "{line}: {help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
    let words: Vec<&str> =
        help::commands().map(|command| command.split(' ').next().unwrap()).collect();
    assert!(words.len() > 10);
    for word in words {
        let mut out = Vec::new();
        let next = chat().obey(word, &mut out).unwrap();
        assert!(next.is_some(), "{word}");
    }
    // every setting accepts each of its values
    for (command, _) in help::SETTINGS.iter().filter(|(command, _)| command.contains('|')) {
        let (head, values) = command.rsplit_once(' ').unwrap();
        for value in values.split('|') {
            let told = chat().set(&format!("{} {value}", head.strip_prefix("/set ").unwrap()));
            assert!(told.is_ok(), "{command} {value}: {told:?}");
        }
    }
}

#[test]
fn a_message_is_taken_back_with_its_reply() {
    let (chat, _) = run(&["/system Be brief.", "one", "two", "/undo"]);
    assert_eq!(roles(&chat), ["system", "user", "assistant"]);
    assert_eq!(chat.conversation.messages()[1].content, "one");
    let (chat, _) = run(&["one", "/undo", "/undo", "two"]);
    assert_eq!(chat.conversation.messages()[0].content, "two");
    assert_eq!(roles(&chat), ["user", "assistant"]);
}

#[test]
fn an_edited_message_takes_the_place_of_the_last_one() {
    let mut script = Script::new(&["one", "two", "/edit", "three"]);
    let mut edited = chat();
    edited.run(&mut script, &mut Vec::new()).unwrap();
    assert_eq!(script.drafts, ["two"]);
    let said = |chat: &Chat| {
        let said = chat.conversation.messages().iter().filter(|m| m.role == "user");
        said.map(|m| m.content.clone()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(said(&edited), "one three");
    // an edit that is not sent changes nothing
    for left in ["", "^C", "/show system"] {
        let (mut chat, mut script) = (chat(), Script::new(&["one", "/edit", left]));
        chat.run(&mut script, &mut Vec::new()).unwrap();
        assert_eq!(said(&chat), "one", "{left}");
    }
    for left in ["", "/show system"] {
        let (chat, _) = run(&["one", "/edit", left, "two"]);
        assert_eq!(said(&chat), "one two", "{left:?} leaves the message");
    }
    for message in ["/bye is a word", "//", "/a\nb", "plain"] {
        let typed = typed_form(message);
        assert_eq!(unslashed(typed.clone()), message);
        assert!(message == "plain" || typed.starts_with("//") || typed.contains('\n'));
    }
    // a message that does not fit keeps the old one
    let (chat, _) = run(&["one", "/edit", &"word ".repeat(600)]);
    assert_eq!((said(&chat), roles(&chat).len()), ("one".into(), 2));
}

#[test]
fn another_model_ends_the_loop_and_takes_the_conversation() {
    let (mut first, mut second) = (chat(), chat());
    let lines = [
        "/model",
        "/set parameter temperature 0.5",
        "/set stop x",
        "hello",
        "/model other:1b",
        "lost",
    ];
    let (mut script, mut out) = (Script::new(&lines), Vec::new());
    let left = first.run(&mut script, &mut out).unwrap();
    assert_eq!(left, Left::Model("other:1b".into()));
    assert!(String::from_utf8(out).unwrap().starts_with("Demo (demo.gguf)\n"));
    second.keep(first.take_kept());
    assert_eq!(second.conversation.messages(), first.conversation.messages());
    assert_eq!((second.settings.sampler.temperature, second.settings.stop.len()), (0.5, 1));
}

#[test]
fn statistics_are_set_and_shown() {
    let (mut chat, mut out) = (chat(), Vec::new());
    chat.settings.ignore_eog = true;
    chat.run(&mut Script::new(&["/stats", "hello", "/stats"]), &mut out).unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with("no reply yet\n"), "{out}");
    let told = &out[out.find("prompt  ").unwrap()..];
    for part in ["first token  ", "8 tokens", "of 512 tokens", "stopped at -n"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(chat.settings.statistics, Statistics::Line);
    for (line, want) in [
        ("/set stats off", Statistics::Off),
        ("/set quiet", Statistics::Off),
        ("/set verbose", Statistics::Full),
        ("/set stats full", Statistics::Full),
        ("/set verbose off", Statistics::Line),
    ] {
        assert_eq!(run(&[line]).0.settings.statistics, want, "{line}");
    }
}

#[test]
fn a_context_is_warned_about_when_it_is_nearly_full() {
    // a real case: 1143 of 2048 tokens, all from one turn
    assert!(!is_nearly_full(1143, 2048, 1143));
    assert!(is_nearly_full(1600, 2048, 500) && !is_nearly_full(1600, 2048, 400));
    assert!(is_nearly_full(1844, 2048, 1) && !is_nearly_full(1800, 2048, 1));
}

#[test]
fn commands_are_completed_word_by_word() {
    let complete = |line: &str| help::completions(line).join("|");
    assert_eq!(complete("/re"), "/regen|/read ");
    assert_eq!(complete("/reg"), "/regen");
    assert_eq!(complete("/sav"), "/save ");
    assert_eq!(
        complete("/set "),
        "/set parameter |/set stop |/set system |/set think |/set context-full |/set stats |/set verbose |/set markdown |/set wordwrap |/set history "
    );
    assert_eq!(complete("/set context-full d"), "/set context-full drop-oldest");
    assert_eq!(complete("/set parameter num"), "/set parameter num_ctx ");
    assert_eq!(complete("/show t"), "/show template");
    assert_eq!(complete("/mod"), "/model ");
    assert_eq!(complete("/help "), "/help set");
    assert_eq!(complete("/nothing"), "");
}

/// A model that was loaded for short contexts is no model for long ones, nor the other way round.
#[test]
fn a_context_stays_on_its_side_of_the_rotation() {
    for (short, line, capacity) in
        [(300, "200", 512), (300, "400", 400), (600, "700", 512), (600, "100", 100)]
    {
        let mut chat = chat();
        chat.short_context = Some(short);
        let line = format!("/set parameter num_ctx {line}");
        chat.run(&mut Script::new(&[&line]), &mut Vec::new()).unwrap();
        assert_eq!(chat.cache.capacity, capacity, "{line} beside {short}");
    }
}

#[test]
fn what_only_looks_like_a_command_is_a_message() {
    let (chat, _) = run(&["/etc/passwd is what?", "//bye is a word", "say /bye"]);
    let said: Vec<&str> =
        chat.conversation.messages().iter().step_by(2).map(|m| &*m.content).collect();
    assert_eq!(said, ["/etc/passwd is what?", "/bye is a word", "say /bye"]);
    for word in ["exit", "quit", "/quit"] {
        assert!(run(&[word, "not sent"]).0.conversation.messages().is_empty(), "{word}");
    }
}

#[test]
fn a_backslash_and_an_open_quote_go_on() {
    let mut script = Script::new(&["one\\", "two\\", "three", "four\\", "^C", "\"\"\"five", "six"]);
    let mut next = || read_message(&mut script, (PROMPT, None), false).unwrap();
    assert_eq!(next(), Input::Line("one\ntwo\nthree".into()));
    assert_eq!(next(), Input::Line(String::new()), "Ctrl-C leaves the message");
    assert_eq!(next(), Input::Block("five\nsix".into()), "the end of input does not lose it");
    assert_eq!(next(), Input::End);
    assert!(script.remembered.is_empty(), "no history, if it is off");
}
