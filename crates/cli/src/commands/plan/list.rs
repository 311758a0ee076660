//! `plan --list`: the models, types of weights and devices that are known, by the names to type.

use std::io::Write;

use planner::devices::{DEVICES, Device};
use serde_json::{Value, json};

use super::text;
use crate::units;

/// The names of each family: `qwen2.5-7b`.
fn model_names() -> Vec<Vec<String>> {
    let mut families: Vec<(&str, Vec<String>)> = Vec::new();
    for (family, name) in models::published_names() {
        let name = name.to_lowercase();
        match families.last_mut().filter(|(last, _)| *last == family) {
            Some((_, names)) => names.push(name),
            None => families.push((family, vec![name])),
        }
    }
    families.into_iter().map(|(_, names)| names).collect()
}

fn types() -> Vec<&'static str> {
    models::MIXTURES.iter().map(|mixture| mixture.name()).collect()
}

/// For people.
pub(super) fn print(out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "models")?;
    for family in model_names() {
        write!(out, "{}", wrapped(&family))?;
    }
    writeln!(out, "\nweight types (--type)")?;
    write!(out, "{}", wrapped(&types()))?;
    writeln!(out, "\ndevices (--device), TFLOP/s and FLOP per byte by type")?;
    let head =
        ["name", "memory", "bandwidth", "f32", "bf16", "f16", "int8", "f32", "bf16", "f16", "int8"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(DEVICES.iter().map(row));
    write!(out, "{}", text::aligned(&rows, 2))?;
    Ok(())
}

fn row(device: &Device) -> Vec<String> {
    let machine = &device.machine;
    let by_type = [machine.f32_macs, machine.bf16_macs, machine.f16_macs, machine.int8_macs];
    let memory = device.memory.map_or("-".into(), |bytes| format!("{:.0} GB", bytes / 1e9));
    let mut row = vec![device.name.to_owned(), memory];
    row.push(format!("{:.0} GB/s", machine.bandwidth / 1e9));
    row.extend(by_type.map(|macs| units::three_figures(2e-12 * macs)));
    row.extend(by_type.map(|macs| format!("{:.1}", 2.0 * macs / machine.bandwidth)));
    row
}

/// Words in lines of at most 100 columns.
fn wrapped<S: AsRef<str>>(words: &[S]) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in words.iter().map(AsRef::as_ref) {
        if width > 0 && width + 2 + word.len() <= 100 {
            text.push_str("  ");
            width += 2 + word.len();
        } else {
            text.push_str(if width > 0 { "\n  " } else { "  " });
            width = 2 + word.len();
        }
        text.push_str(word);
    }
    text + "\n"
}

/// The same as JSON.
pub(super) fn json() -> Value {
    let device = |device: &Device| {
        let machine = &device.machine;
        let rates = machine.rates().map(|(kind, macs)| (kind.name().to_owned(), Value::from(macs)));
        let balance = machine.balance();
        let balance = balance.map(|(kind, flop)| (kind.name().to_owned(), Value::from(flop)));
        json!({
            "name": device.name,
            "memory_bytes": device.memory,
            "bytes_per_second": machine.bandwidth,
            "macs_per_second": Value::Object(rates.into_iter().collect()),
            "flop_per_byte": Value::Object(balance.into_iter().collect()),
        })
    };
    json!({
        "models": model_names().concat(),
        "weight_types": types(),
        "devices": DEVICES.iter().map(device).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found() {
        for name in model_names().concat() {
            assert!(models::find_published(&name).is_some(), "{name}");
        }
    }

    #[test]
    fn words_are_wrapped() {
        let words = vec!["x".repeat(30); 4];
        let text = wrapped(&words);
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [96, 32]);
        assert_eq!(wrapped(&["a", "b"]), "  a  b\n");
    }
}
