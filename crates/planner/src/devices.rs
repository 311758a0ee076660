//! Machines one may plan for without having them: published figures, decimal units.
//!
//! Bandwidth and rates are peaks that no program reaches: limits from this table are further off than measured ones.
//! Arithmetic is that of the fastest units for the type at hand, matrix units where there are any, without structured
//! sparsity, which no weights here have.
//!
//! The figures and their sources are in `table.rs`.

mod table;

pub use table::{DEVICES, Device};

/// What a name matches.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceMatch {
    /// One device.
    One(&'static Device),
    /// Several: the name says too little.
    Several(Vec<&'static Device>),
    /// None.
    Nothing,
}

/// Words that people put before a name.
const MAKERS: [&str; 8] =
    ["nvidia", "geforce", "apple", "amd", "radeon", "instinct", "intel", "tesla"];

/// Finds the machine with this name, or with this part of its name if no other has it: `4090`, `a100 80 sxm`. Case, blanks
/// and punctuation do not matter.
///
/// If several names match, whole words count before parts of words (`7900 xt` is not the RX 7900 XTX). Of the names that
/// are left, one whose words are in all others is meant: `4070` is the RTX 4070, not the RTX 4070 Super.
pub fn find(name: &str) -> DeviceMatch {
    let typed: Vec<String> = words(name).filter(|word| !MAKERS.contains(&word.as_str())).collect();
    if typed.is_empty() {
        return DeviceMatch::Nothing;
    }
    let whole = typed.concat();
    let plain = |device: &Device| words(device.name).collect::<String>();
    if let Some(device) = DEVICES.iter().find(|device| plain(device) == whole) {
        return DeviceMatch::One(device);
    }
    let has_parts = |device: &&Device| {
        let name = plain(device);
        name.contains(&whole) || typed.iter().all(|word| name.contains(word.as_str()))
    };
    let mut found: Vec<&'static Device> = DEVICES.iter().filter(has_parts).collect();
    let has_words = |device: &&Device| typed.iter().all(|word| has_word(device, word));
    if found.iter().any(has_words) {
        found.retain(has_words);
    }
    let is_in = |short: &Device, long: &Device| words(short.name).all(|word| has_word(long, &word));
    match found.iter().find(|short| found.iter().all(|long| is_in(short, long))) {
        Some(device) => DeviceMatch::One(device),
        None if found.is_empty() => DeviceMatch::Nothing,
        None => DeviceMatch::Several(found),
    }
}

/// Returns the published memory, in bytes, of the card that its driver names `adapter`: `NVIDIA GeForce RTX 4090`.
///
/// Returns `None` for names that are not in the table, for GPUs that share the processor's memory, and for cards that are
/// sold with several sizes of memory, unless the driver's name contains the size as the row's does.
pub fn card_memory(adapter: &str) -> Option<f64> {
    let DeviceMatch::One(device) = find(adapter) else { return None };
    let typed: Vec<String> = words(adapter).collect();
    let is_told = |word: String| !word.ends_with("gb") || typed.contains(&word);
    device.memory.filter(|_| !device.shares_memory && words(device.name).all(is_told))
}

/// The words of a name: letters and digits, in lower case.
fn words(name: &str) -> impl Iterator<Item = String> {
    let parts = name.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
    parts.map(str::to_lowercase)
}

fn has_word(device: &Device, word: &str) -> bool {
    words(device.name).any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;

    #[test]
    fn names_are_unique_and_found() {
        for device in DEVICES {
            let typed = device.name.to_lowercase().replace(' ', "-");
            assert_eq!(find(&typed), DeviceMatch::One(device));
            assert_eq!(find(device.name), DeviceMatch::One(device));
        }
        let one = |name: &str| match find(name) {
            DeviceMatch::One(device) => device.name,
            other => panic!("{name}: {other:?}"),
        };
        for (typed, name) in [
            ("4090", "RTX 4090"),
            ("rtx4090", "RTX 4090"),
            ("NVIDIA GeForce RTX 3090", "RTX 3090"),
            ("h100-pcie", "H100 PCIe"),
            ("a100 80 sxm", "A100 80GB SXM"),
            ("h200 pcie", "H200 NVL (PCIe)"),
            ("Apple M1", "M1"),
            ("m5max", "M5 Max"),
            ("7950", "Ryzen 9 7950X"),
            ("3060", "RTX 3060 12GB"),
            ("RTX 3080", "RTX 3080 10GB"),
            ("4060 ti 16", "RTX 4060 Ti 16GB"),
            ("Radeon RX 7900 XTX", "RX 7900 XTX"),
            ("Intel Arc B580", "Arc B580"),
            ("strix halo", "Ryzen AI Max+ (Strix Halo)"),
            ("ryzen ai max", "Ryzen AI Max+ (Strix Halo)"),
            ("spark", "DGX Spark (GB10)"),
            ("NVIDIA GB10", "DGX Spark (GB10)"),
            ("agx orin", "Jetson AGX Orin 64GB"),
            ("orin-nano", "Jetson Orin Nano Super"),
            ("raspberry pi", "Raspberry Pi 5"),
            ("pi5", "Raspberry Pi 5"),
        ] {
            assert_eq!(one(typed), name);
        }
        // names that longer ones contain
        for (typed, name) in [
            ("4060", "RTX 4060"),
            ("4070", "RTX 4070"),
            ("rtx4070", "RTX 4070"),
            ("4070 ti", "RTX 4070 Ti"),
            ("4070ti", "RTX 4070 Ti"),
            ("4070 super", "RTX 4070 Super"),
            ("4070-ti-super", "RTX 4070 Ti Super"),
            ("4080", "RTX 4080"),
            ("4080 super", "RTX 4080 Super"),
            ("4080-super", "RTX 4080 Super"),
            ("4080super", "RTX 4080 Super"),
            ("NVIDIA GeForce RTX 4080 SUPER", "RTX 4080 Super"),
            ("5070", "RTX 5070"),
            ("5070 Ti", "RTX 5070 Ti"),
            ("7900 xt", "RX 7900 XT"),
            ("9070", "RX 9070"),
            ("9070xt", "RX 9070 XT"),
        ] {
            assert_eq!(one(typed), name);
        }
        for (typed, count) in [
            ("H100", 3),
            ("A100", 4),
            ("a100 40", 2),
            ("ultra", 3),
            ("4060 ti", 2),
            ("5060", 2),
            ("rx 7900", 2),
            ("super", 4),
            ("orin", 2),
            ("ryzen", 2),
        ] {
            assert!(
                matches!(find(typed), DeviceMatch::Several(all) if all.len() == count),
                "{typed}"
            );
        }
        for unknown in ["m9", "", " - ", "nvidia", "H100 40GB", "4070 laptop", "3070 ti"] {
            assert_eq!(find(unknown), DeviceMatch::Nothing, "{unknown}");
        }
    }

    /// FLOP per byte as the article gives it, S0.6: 147, 295 and 590 are cut, 41 and 82 rounded.
    #[test]
    fn balance() {
        let balance = |name, resource| {
            let DeviceMatch::One(device) = find(name) else { panic!("{name}") };
            let all = device.machine.balance();
            all.into_iter().find(|(of, _)| *of == resource).expect("a rate").1
        };
        assert_eq!(balance("Ryzen 9 7950X", Resource::F32).round(), 41.0);
        assert_eq!(balance("rtx4090", Resource::F32).round(), 82.0);
        for (resource, flop) in
            [(Resource::F32, 147.0), (Resource::Bf16, 295.0), (Resource::Int8, 590.0)]
        {
            assert_eq!(balance("H100 SXM", resource).floor(), flop);
        }
    }

    /// Published peaks a second time: units, FLOP of a unit in a cycle of f16 without sparsity, GHz; bits of the bus, and
    /// Gbit/s of each.
    #[test]
    fn peaks_follow_from_units_clocks_and_buses() {
        for (name, [units, flop, ghz], [bits, gbit]) in [
            ("H100 SXM", [132.0, 4096.0, 1.83], [5120.0, 5.23]),
            ("H100 PCIe", [114.0, 4096.0, 1.62], [5120.0, 3.186]),
            ("H100 NVL", [132.0, 4096.0, 1.545], [6144.0, 5.13]),
            ("H200 SXM", [132.0, 4096.0, 1.83], [6144.0, 6.25]),
            ("H200 NVL (PCIe)", [132.0, 4096.0, 1.545], [6144.0, 6.25]),
            ("A100 40GB PCIe", [108.0, 2048.0, 1.41], [5120.0, 2.43]),
            ("A100 80GB PCIe", [108.0, 2048.0, 1.41], [5120.0, 3.024]),
            ("A100 80GB SXM", [108.0, 2048.0, 1.41], [5120.0, 3.186]),
            ("L40S", [142.0, 1024.0, 2.52], [384.0, 18.0]),
            ("RTX 3060 12GB", [28.0, 1024.0, 1.777], [192.0, 15.0]),
            ("RTX 3070", [46.0, 1024.0, 1.725], [256.0, 14.0]),
            ("RTX 3080 10GB", [68.0, 1024.0, 1.71], [320.0, 19.0]),
            ("RTX 3090", [82.0, 1024.0, 1.695], [384.0, 19.5]),
            ("RTX 4060", [24.0, 1024.0, 2.46], [128.0, 17.0]),
            ("RTX 4060 Ti 8GB", [34.0, 1024.0, 2.535], [128.0, 18.0]),
            ("RTX 4060 Ti 16GB", [34.0, 1024.0, 2.535], [128.0, 18.0]),
            ("RTX 4070", [46.0, 1024.0, 2.475], [192.0, 21.0]),
            ("RTX 4070 Super", [56.0, 1024.0, 2.475], [192.0, 21.0]),
            ("RTX 4070 Ti", [60.0, 1024.0, 2.61], [192.0, 21.0]),
            ("RTX 4070 Ti Super", [66.0, 1024.0, 2.61], [256.0, 21.0]),
            ("RTX 4080", [76.0, 1024.0, 2.505], [256.0, 22.4]),
            ("RTX 4080 Super", [80.0, 1024.0, 2.55], [256.0, 23.0]),
            ("RTX 4090", [128.0, 1024.0, 2.52], [384.0, 21.0]),
            ("RTX 5060 Ti 8GB", [36.0, 1024.0, 2.572], [128.0, 28.0]),
            ("RTX 5060 Ti 16GB", [36.0, 1024.0, 2.572], [128.0, 28.0]),
            ("RTX 5070", [48.0, 1024.0, 2.512], [192.0, 28.0]),
            ("RTX 5070 Ti", [70.0, 1024.0, 2.452], [256.0, 28.0]),
            ("RTX 5080", [84.0, 1024.0, 2.617], [256.0, 30.0]),
            ("RTX 5090", [170.0, 1024.0, 2.407], [512.0, 28.0]),
            ("MI300X", [304.0, 2048.0, 2.1], [8192.0, 5.2]),
            ("RX 7900 XT", [84.0, 512.0, 2.4], [320.0, 20.0]),
            ("RX 7900 XTX", [96.0, 512.0, 2.5], [384.0, 20.0]),
            ("RX 9070", [56.0, 1024.0, 2.52], [256.0, 20.0]),
            ("RX 9070 XT", [64.0, 1024.0, 2.97], [256.0, 20.0]),
            ("Arc B580", [20.0, 2048.0, 2.85], [192.0, 19.0]),
            ("Ryzen AI Max+ (Strix Halo)", [40.0, 512.0, 2.9], [256.0, 8.0]),
            ("DGX Spark (GB10)", [48.0, 1024.0, 2.54], [256.0, 8.533]),
            ("Jetson AGX Orin 64GB", [16.0, 2048.0, 1.3], [256.0, 6.4]),
            ("Jetson Orin Nano Super", [8.0, 2048.0, 1.02], [128.0, 6.4]),
            ("Raspberry Pi 5", [4.0, 32.0, 2.4], [32.0, 4.267]),
            ("M1", [8.0, 256.0, 1.278], [128.0, 4.266]),
            ("M1 Max", [32.0, 256.0, 1.278], [512.0, 6.4]),
            ("M2", [10.0, 256.0, 1.398], [128.0, 6.4]),
            ("M2 Max", [38.0, 256.0, 1.398], [512.0, 6.4]),
            ("M3 Pro", [18.0, 512.0, 1.398], [192.0, 6.4]),
            ("M4", [10.0, 512.0, 1.47], [128.0, 7.5]),
            ("M4 Max", [40.0, 512.0, 1.678], [512.0, 8.533]),
            ("M5 Max", [40.0, 1024.0, 1.75], [512.0, 9.6]),
        ] {
            let DeviceMatch::One(Device { machine, .. }) = find(name) else { panic!("{name}") };
            let near = |found: f64, want: f64| {
                assert!((found / want - 1.0).abs() < 0.01, "{name}: {found} {want}");
            };
            near(2.0 * machine.f16_macs, units * flop * ghz * 1e9);
            near(machine.bandwidth, bits / 8.0 * gbit * 1e9);
        }
    }

    /// Rates in 10^12 operations per second that makers print, against those derived from units and clocks: f32, or 8 bits
    /// without sparsity.
    #[test]
    fn derived_rates_are_the_published_ones() {
        use Resource::{F32, Int8};
        for (name, resource, tera) in [
            ("RTX 3060 12GB", Int8, 101.0),
            ("RTX 3070", Int8, 163.0),
            ("RTX 3080 10GB", Int8, 238.0),
            ("RTX 4060", F32, 15.11),
            ("RTX 4060 Ti 8GB", F32, 22.06),
            ("RTX 4070", F32, 29.15),
            ("RTX 4070 Super", F32, 35.48),
            ("RTX 4070 Ti", F32, 40.09),
            ("RTX 4070 Ti Super", F32, 44.1),
            ("RTX 4080", F32, 48.74),
            ("RTX 4080 Super", F32, 52.22),
            // FP4 with sparsity is four times as fast
            ("RTX 5060 Ti 16GB", Int8, 759.0 / 4.0),
            ("RTX 5070", Int8, 988.0 / 4.0),
            ("RTX 5070 Ti", Int8, 1406.0 / 4.0),
            ("RTX 5080", Int8, 1801.0 / 4.0),
            ("DGX Spark", Int8, 1000.0 / 4.0),
            ("RX 7900 XTX", F32, 61.4),
            ("RX 9070", F32, 36.1),
            ("RX 9070 XT", F32, 48.7),
            // INT4 with sparsity is four times as fast
            ("RX 9070 XT", Int8, 1557.0 / 4.0),
            ("Arc B580", Int8, 233.0),
            ("Strix Halo", Resource::Bf16, 59.4),
            ("AGX Orin", Int8, 170.0 / 2.0),
            ("Orin Nano", Int8, 67.0 / 2.0),
        ] {
            let DeviceMatch::One(Device { machine, .. }) = find(name) else { panic!("{name}") };
            let rates = machine.rates();
            let macs = rates.into_iter().find(|(of, _)| *of == resource).expect("a rate").1;
            assert!((2e-12 * macs / tera - 1.0).abs() < 0.01, "{name}: {macs}, not {tera}");
        }
    }

    /// No narrower number is slower than a wider one, matrix units are what counts, and no figure has the wrong prefix.
    #[test]
    fn rows_are_plausible() {
        for device in DEVICES {
            let (name, m) = (device.name, device.machine);
            let rates = [m.f32_macs, m.bf16_macs.min(m.f16_macs), m.int8_macs];
            assert!(rates.is_sorted(), "{name}: {rates:?}");
            assert!(m.int8_macs >= m.f16_macs.max(m.bf16_macs), "{name}");
            assert!((10e9..10e12).contains(&m.bandwidth), "{name}: {}", m.bandwidth);
            assert!((0.05e12..2e15).contains(&m.f32_macs), "{name}: {}", m.f32_macs);
            assert!(device.memory.is_none_or(|bytes| (4e9..1e12).contains(&bytes)), "{name}");
            assert!(device.memory.is_some() || device.shares_memory, "{name}: how much memory?");
        }
        let sizes = DEVICES.iter().filter(|device| device.shares_memory);
        let sizes: Vec<_> =
            sizes.filter_map(|device| Some((device.name, device.memory?))).collect();
        let expected = [
            ("DGX Spark (GB10)", 128e9),
            ("Jetson AGX Orin 64GB", 64e9),
            ("Jetson Orin Nano Super", 8e9),
        ];
        assert_eq!(sizes, expected);
    }

    #[test]
    fn memory_of_cards_by_the_names_of_drivers() {
        for (adapter, gb) in [
            ("NVIDIA GeForce RTX 4090", Some(24.0)),
            ("NVIDIA GeForce RTX 4070", Some(12.0)),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", Some(16.0)),
            ("AMD Radeon RX 7900 XT", Some(20.0)),
            ("NVIDIA A100 80GB PCIe", Some(80.0)),
            ("NVIDIA H200 NVL", Some(141.0)),
            // sold with 8 or 12 GB, 10 or 12, 8 or 16
            ("NVIDIA GeForce RTX 3060", None),
            ("NVIDIA GeForce RTX 3080", None),
            ("NVIDIA GeForce RTX 4060 Ti", None),
            // other cards, and memory of the processor
            ("NVIDIA GeForce RTX 4070 Laptop GPU", None),
            ("NVIDIA GeForce RTX 3070 Ti", None),
            ("NVIDIA GB10", None),
            ("Apple M4 Max", None),
        ] {
            assert_eq!(card_memory(adapter), gb.map(|gb: f64| gb * 1e9), "{adapter}");
        }
    }
}
