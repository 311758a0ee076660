//! Any `config.json` with any arguments gives a plan or one printable line: what the fuzz target calls, and without a
//! fuzzer its seeds and changes to them.

use std::cell::RefCell;
use std::path::Path;

use serde_json::Value;

use crate::commands::Cli;

/// The machine that is planned for: nothing is measured.
const MACHINE: [&str; 6] = ["--memory", "64GB", "--bandwidth", "67GB/s", "--flops", "2.7T"];

thread_local! {
    /// All commands, which take longer to describe than a plan to make.
    static COMMAND: RefCell<clap::Command> = RefCell::new(crate::commands::command());
}

/// Plan for what follows the first line, with the arguments in it; `folder` is for the file.
///
/// # Errors
/// What is told where there is no plan.
///
/// # Panics
/// If what is told is not printable, or no JSON where that was asked for.
pub(crate) fn plan_config(folder: &Path, data: &[u8]) -> Result<(), String> {
    let line = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (arguments, json) = data.split_at(line);
    let arguments = String::from_utf8_lossy(arguments);
    let arguments: Vec<&str> = arguments
        .split_whitespace()
        .filter(|word| word.starts_with(['-']) || !word.starts_with(['/', '.', '~']))
        .collect();
    // What writes files, or reads others, has tests of its own.
    if let Some(word) = arguments.iter().find(|word| {
        ["--p", "-m", "--m", "-o", "--o"]
            .iter()
            .any(|flag| word.starts_with(flag) && !word.starts_with("--prompt-tokens"))
    }) {
        return Err(format!("{word} is left out"));
    }
    let path = folder.join("config.json");
    std::fs::write(&path, json.get(1..).unwrap_or_default()).expect("a folder to write in");
    let mut line: Vec<std::ffi::OsString> = vec!["rooflight".into(), "plan".into(), path.into()];
    line.extend(MACHINE.iter().map(Into::into));
    line.extend(arguments.iter().map(Into::into));
    let cli = COMMAND
        .with_borrow_mut(|command| Cli::parse_args(command, line))
        .map_err(|error| error.kind().to_string())?;
    let mut out = Vec::new();
    let result = cli.run(&mut out);
    let text = String::from_utf8(out).expect("a plan is text");
    let odd = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\u{1b}'));
    assert_eq!(odd, None, "{text}");
    if arguments.contains(&"--json") && !text.is_empty() {
        let parsed: Result<Value, _> = serde_json::from_str(&text);
        assert!(parsed.is_ok(), "{text}");
    }
    match result {
        Ok(()) => Ok(()),
        Err(error) => {
            let told = gguf::escape(format!("{error:#}"), crate::MAX_MESSAGE);
            assert!(!told.is_empty() && !told.chars().any(char::is_control), "{told:?}");
            Err(told)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Map;
    use testing::{Dice, mutations, seeds};

    use super::*;

    /// Changes to each seed.
    const MUTATIONS: u64 = 60;

    /// A value of a key that bounds stand at.
    fn other(dice: &mut Dice, value: &Value) -> Value {
        let numbers =
            [0_u64, 1, 2, 3, 7, 64, 512, 513, 4096, 65_536, 1 << 20, 1 << 24, 1 << 32, u64::MAX];
        match dice.below(9) {
            0 => Value::Null,
            1 => Value::from(-1),
            2 => Value::from(0.5),
            3 => Value::from(vec!["sliding_attention"; dice.below(30)]),
            4 => Value::from(!value.as_bool().unwrap_or(false)),
            _ => Value::from(numbers[dice.below(numbers.len())]),
        }
    }

    /// Some keys and arguments changed; now and then a byte.
    fn change(dice: &mut Dice, seed: &[u8], keys: &[String]) -> Vec<u8> {
        let text = std::str::from_utf8(seed).expect("seeds are text");
        let (line, json) = text.split_once('\n').expect("a line of arguments");
        let mut config: Map<String, Value> = serde_json::from_str(json).expect("seeds are JSON");
        for _ in 0..dice.below(4) {
            let key = &keys[dice.below(keys.len())];
            let value = config.get(key).cloned().unwrap_or(Value::Null);
            match dice.below(6) {
                0 => drop(config.remove(key)),
                _ => drop(config.insert(key.clone(), other(dice, &value))),
            }
        }
        let words = [
            "--json",
            "-v",
            "-c",
            "--type",
            "--ttft",
            "--tps",
            "--prompt-tokens",
            "-ctk",
            "-ctv",
            "-t",
            "--device",
            "0",
            "1",
            "2",
            "8k",
            "1G",
            "18446744073709551615",
            "-1",
            "1e400",
            "NaN",
            "inf",
            "500ms",
            "0s",
            "1us",
            "Q4_0",
            "IQ3_S",
            "F32",
            "f16",
            "q8_0",
            "4090",
            "H100",
            "--chunk",
            "é\u{7}",
        ];
        let mut line: Vec<&str> = line.split(' ').collect();
        for _ in 0..dice.below(3) {
            let at = dice.below(line.len() + 1);
            match dice.below(3) {
                0 if at < line.len() => drop(line.remove(at)),
                1 if at < line.len() => line[at] = words[dice.below(words.len())],
                _ => line.insert(at, words[dice.below(words.len())]),
            }
        }
        let mut data = format!("{}\n{}", line.join(" "), Value::from(config)).into_bytes();
        if dice.below(5) == 0 {
            let at = dice.below(data.len());
            data[at] = dice.bits() as u8;
        }
        data
    }

    #[test]
    fn any_config_and_arguments_give_a_plan_or_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let seeds = seeds("plan_config");
        let mut keys = BTreeSet::new();
        for (name, seed) in &seeds {
            assert_eq!(plan_config(folder.path(), seed), Ok(()), "{name}");
            let json = seed.split(|byte| *byte == b'\n').nth(1).expect("a second line");
            let config: Map<String, Value> = serde_json::from_slice(json).expect("seeds are JSON");
            keys.extend(config.into_iter().map(|(key, _)| key));
        }
        let keys: Vec<String> = keys.into_iter().collect();
        let mut dice = Dice::new(3);
        let (mut tried, mut through) = (0_u64, 0_u64);
        for (name, seed) in &seeds {
            for _ in 0..mutations(MUTATIONS) {
                let data = change(&mut dice, seed, &keys);
                let planned = std::panic::catch_unwind(|| plan_config(folder.path(), &data));
                let Ok(planned) = planned else {
                    panic!("a change of {name}: {}", String::from_utf8_lossy(&data))
                };
                (tried, through) = (tried + 1, through + u64::from(planned.is_ok()));
            }
        }
        eprintln!("plan_config: {tried} inputs, {through} planned");
        assert!(through * 20 > tried, "{through} of {tried} planned");
    }
}
