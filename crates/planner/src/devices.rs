//! Machines one may plan for without having them: published figures, decimal units.
//!
//! Bandwidth and rates are peaks that no program reaches: limits from this table are further off than measured ones.
//! Arithmetic is that of the fastest units for the type at hand, matrix units where there are any, without structured
//! sparsity, which no weights here have.

use crate::Machine;

/// A published machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Name; [`find`] takes part of it.
    pub name: &'static str,
    /// Memory for weights and cache, in bytes: the maker's GB taken as decimal, since drivers keep some of the binary
    /// ones. `None` where buyers choose it.
    pub memory: Option<f64>,
    /// Its peaks. Barriers are counted as free.
    pub machine: Machine,
}

/// Rates in 10^12 operations per second, of which a multiply-add is two.
struct Tera {
    /// TF32 where matrix units have it.
    f32: f64,
    f16: f64,
    bf16: f64,
    int8: f64,
}

/// Memory in GB, bandwidth in GB/s.
const fn device(name: &'static str, memory: Option<f64>, gb_s: f64, rates: &Tera) -> Device {
    let machine = Machine {
        bandwidth: gb_s * 1e9,
        int8_macs: rates.int8 * 1e12 / 2.0,
        f16_macs: rates.f16 * 1e12 / 2.0,
        bf16_macs: rates.bf16 * 1e12 / 2.0,
        f32_macs: rates.f32 * 1e12 / 2.0,
        barrier: 0.0,
    };
    let memory = match memory {
        Some(gb) => Some(gb * 1e9),
        None => None,
    };
    Device { name, memory, machine }
}

/// NVIDIA H100 Tensor Core GPU data sheet and Hopper whitepaper, table 2, column SXM5: 989.4 TFLOPS BF16, 1978.9 TOPS.
const H100_SXM: Tera = Tera { f32: 494.7, f16: 989.4, bf16: 989.4, int8: 1978.9 };
/// The same, column PCIe: TF32 756, BF16 1513, INT8 3026 with sparsity, which doubles them. Its 2,039 GB/s are "more than
/// 2,000" in the product brief PB-11133: HBM2e as in the A100 of 80 GB.
const H100_PCIE: Tera = Tera { f32: 378.0, f16: 756.5, bf16: 756.5, int8: 1513.0 };
/// H100 NVL and H200 NVL data sheets: TF32 835, BF16 1671, INT8 3341 with sparsity.
const HOPPER_NVL: Tera = Tera { f32: 417.5, f16: 835.5, bf16: 835.5, int8: 1670.5 };
/// NVIDIA A100 Tensor Core GPU data sheet, all four forms alike: TF32 156, BF16 312, INT8 624.
const A100: Tera = Tera { f32: 156.0, f16: 312.0, bf16: 312.0, int8: 624.0 };

/// A GPU of Apple's: so many TFLOPS in f32, and how many times that in half precision and in 8 bits.
const fn apple(name: &'static str, gb_s: f64, f32: f64, f16: f64, int8: f64) -> Device {
    let rates = Tera { f32, f16: f32 * f16, bf16: f32 * f16, int8: f32 * int8 };
    device(name, None, gb_s, &rates)
}

/// The table.
pub static DEVICES: &[Device] = &[
    device("H100 SXM", Some(80.0), 3350.0, &H100_SXM),
    device("H100 PCIe", Some(80.0), 2039.0, &H100_PCIE),
    device("H100 NVL", Some(94.0), 3938.0, &HOPPER_NVL),
    // NVIDIA H200 Tensor Core GPU data sheet: 141 GB and 4.8 TB/s in both forms, arithmetic as H100.
    device("H200 SXM", Some(141.0), 4800.0, &H100_SXM),
    device("H200 NVL (PCIe)", Some(141.0), 4800.0, &HOPPER_NVL),
    // NVIDIA A100 data sheets of 40 and 80 GB.
    device("A100 40GB PCIe", Some(40.0), 1555.0, &A100),
    device("A100 40GB SXM", Some(40.0), 1555.0, &A100),
    device("A100 80GB PCIe", Some(80.0), 1935.0, &A100),
    device("A100 80GB SXM", Some(80.0), 2039.0, &A100),
    // NVIDIA L40S data sheet: 864 GB/s; TF32 366, BF16 733, INT8 1466 with sparsity. (For BF16 without, it prints 362.05.)
    device("L40S", Some(48.0), 864.0, &Tera { f32: 183.0, f16: 366.5, bf16: 366.5, int8: 733.0 }),
    // GeForce cards sum up f16 in f16 at twice the rate of f32, which bf16 needs.
    // NVIDIA Ampere GA102 GPU architecture whitepaper, appendix A, RTX 3090.
    device("RTX 3090", Some(24.0), 936.0, &Tera { f32: 35.6, f16: 142.0, bf16: 71.0, int8: 284.0 }),
    // NVIDIA Ada GPU architecture whitepaper, appendix A: 24 GB, 1008 GB/s, 82.58 TFLOPS f32 and TF32.
    device(
        "RTX 4090",
        Some(24.0),
        1008.0,
        &Tera { f32: 82.58, f16: 330.3, bf16: 165.2, int8: 660.6 },
    ),
    // NVIDIA RTX Blackwell GPU architecture whitepaper, appendix A: 32 GB, 1792 GB/s.
    device(
        "RTX 5090",
        Some(32.0),
        1792.0,
        &Tera { f32: 104.8, f16: 419.0, bf16: 209.5, int8: 838.0 },
    ),
    // AMD Instinct MI300X data sheet: 192 GB, matrix cores without sparsity; CDNA 3 has TF32, at half the rate of BF16. Its
    // "5.3 TB/s" are 8192 bits at 5.2 Gbit/s.
    device(
        "MI300X",
        Some(192.0),
        5324.8,
        &Tera { f32: 653.7, f16: 1307.4, bf16: 1307.4, int8: 2614.9 },
    ),
    // The roofline article, section 4.2, after "LLM inference speed of light": 67 GB/s and 2735 GFLOP/s. A VNNI
    // instruction does four multiply-adds where a fused one in f32 does one, one of AVX512-BF16 two.
    device("Ryzen 9 7950X", None, 67.0, &Tera { f32: 2.735, f16: 2.735, bf16: 5.47, int8: 10.94 }),
    // Apple's announcements of bandwidth are rounded, some of them down: here it is width by rate of the memory, LPDDR4X-4266
    // of 128 bits in M1, then LPDDR5-6400 of 128, 256, 512 and 1024 bits (M3 Pro: 192), LPDDR5X from M4 on. TFLOPS are those
    // announced for the largest GPU of the M1 family and M2; those of the larger M2 are M2's 3.6 for 10 cores by their 19, 38 and 76. Halves and integers go through the same lanes; the
    // Neural Engine, which has no rate of its own published for matrices of this kind, is left out.
    apple("M1", 68.26, 2.6, 1.0, 1.0),
    apple("M1 Pro", 204.8, 5.2, 1.0, 1.0),
    apple("M1 Max", 409.6, 10.4, 1.0, 1.0),
    apple("M1 Ultra", 819.2, 21.0, 1.0, 1.0),
    apple("M2", 102.4, 3.6, 1.0, 1.0),
    apple("M2 Pro", 204.8, 6.84, 1.0, 1.0),
    apple("M2 Max", 409.6, 13.68, 1.0, 1.0),
    apple("M2 Ultra", 819.2, 27.36, 1.0, 1.0),
    // No FLOPS were announced: 128 lanes for each core of the largest GPU (10, 18, 40, 80; M4: 10, 20, 40)
    // at the clocks that system tools show, 1.398 GHz, and 1.47 GHz for M4 and M4 Pro, 1.678 GHz for M4 Max. From here on
    // lanes for halves run beside those for singles (WWDC 2023, "Explore GPU advancements in M3 and A17 Pro"): the sum.
    apple("M3", 102.4, 3.58, 2.0, 2.0),
    apple("M3 Pro", 153.6, 6.44, 2.0, 2.0),
    apple("M3 Max", 409.6, 14.32, 2.0, 2.0),
    apple("M3 Ultra", 819.2, 28.63, 2.0, 2.0),
    apple("M4", 120.0, 3.76, 2.0, 2.0),
    apple("M4 Pro", 273.1, 7.53, 2.0, 2.0),
    apple("M4 Max", 546.1, 17.18, 2.0, 2.0),
    // LPDDR5X-9600; cores 10, 20, 40. A core does 256 FLOP in f32, 1024 in f16 and
    // 2048 in int8 each cycle by "Investigating the GPU Neural Accelerators on Apple A19/M5" (T. Zakharko), at 1.75 GHz.
    apple("M5", 153.6, 4.48, 4.0, 8.0),
    apple("M5 Pro", 307.2, 8.96, 4.0, 8.0),
    apple("M5 Max", 614.4, 17.92, 4.0, 8.0),
];

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
const MAKERS: [&str; 6] = ["nvidia", "geforce", "apple", "amd", "instinct", "tesla"];

/// The machine that this is the name of, or a part of it that no other has: `4090`, `a100 80 sxm`. Case, blanks and
/// marks do not matter.
pub fn find(name: &str) -> DeviceMatch {
    let words = name.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    let words: Vec<String> =
        words.filter(|word| !word.is_empty() && !MAKERS.contains(&&**word)).collect();
    if words.is_empty() {
        return DeviceMatch::Nothing;
    }
    let whole = words.concat();
    if let Some(device) = DEVICES.iter().find(|device| plain(device.name) == whole) {
        return DeviceMatch::One(device);
    }
    let has = |device: &&Device| {
        let name = plain(device.name);
        name.contains(&whole) || words.iter().all(|word| name.contains(&**word))
    };
    let mut found: Vec<&Device> = DEVICES.iter().filter(has).collect();
    match found.len() {
        0 => DeviceMatch::Nothing,
        1 => DeviceMatch::One(found.remove(0)),
        _ => DeviceMatch::Several(found),
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
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
        ] {
            assert_eq!(one(typed), name);
        }
        for (typed, count) in [("H100", 3), ("A100", 4), ("a100 40", 2), ("ultra", 3)] {
            assert!(
                matches!(find(typed), DeviceMatch::Several(all) if all.len() == count),
                "{typed}"
            );
        }
        for unknown in ["m9", "", " - ", "nvidia", "H100 40GB"] {
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
            ("RTX 3090", [82.0, 1024.0, 1.695], [384.0, 19.5]),
            ("RTX 4090", [128.0, 1024.0, 2.52], [384.0, 21.0]),
            ("RTX 5090", [170.0, 1024.0, 2.407], [512.0, 28.0]),
            ("MI300X", [304.0, 2048.0, 2.1], [8192.0, 5.2]),
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

    /// No narrower number is slower than a wider one, and matrix units are what counts.
    #[test]
    fn narrower_numbers_are_no_slower() {
        for device in DEVICES {
            let m = device.machine;
            let rates = [m.f32_macs, m.bf16_macs.min(m.f16_macs), m.int8_macs];
            assert!(rates.is_sorted(), "{}: {rates:?}", device.name);
            assert!(m.int8_macs >= m.f16_macs.max(m.bf16_macs), "{}", device.name);
        }
    }
}
