//! Machines one may plan for without having them: published figures, decimal units.
//!
//! Bandwidth and rates are peaks that no program reaches: limits from this table are further off than measured ones.
//! Matrix units count for the 8-bit rate only where the maker gives one; floating point is the rate in f32.

use crate::Machine;

/// A published machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Name; [`find`] ignores its case and spaces.
    pub name: &'static str,
    /// Memory for weights and cache, in bytes: the maker's GB taken as decimal, since drivers keep some of the binary
    /// ones. `None` where buyers choose it.
    pub memory: Option<f64>,
    /// Its peaks. Barriers are counted as free.
    pub machine: Machine,
}

/// Bandwidth in GB/s, memory in GB, f32 in TFLOP/s and int8 in 10^12 operations/s, where a multiply-add is 2 of each.
const fn device(name: &'static str, memory: Option<f64>, gb_s: f64, f32: f64, int8: f64) -> Device {
    let machine = Machine {
        bandwidth: gb_s * 1e9,
        int8_macs: int8 * 1e12 / 2.0,
        f32_macs: f32 * 1e12 / 2.0,
        barrier: 0.0,
    };
    let memory = match memory {
        Some(gb) => Some(gb * 1e9),
        None => None,
    };
    Device { name, memory, machine }
}

/// The table.
pub static DEVICES: &[Device] = &[
    // NVIDIA Ada GPU architecture whitepaper, appendix A: 24 GB, 1008 GB/s, 82.6 TFLOPS f32, 660.6 TOPS int8 dense.
    device("RTX 4090", Some(24.0), 1008.0, 82.58, 660.6),
    // NVIDIA H100 data sheet, SXM: 80 GB, 3.35 TB/s, 67 TFLOPS f32, 1979 TOPS int8 dense.
    device("H100 SXM", Some(80.0), 3350.0, 67.0, 1979.0),
    // The roofline article, section 4.2, after "LLM inference speed of light": 67 GB/s and 2735 GFLOP/s. A VNNI
    // instruction does four multiply-adds where a fused one in f32 does one.
    device("Ryzen 9 7950X", None, 67.0, 2.735, 10.94),
    // Apple's announcements: unified memory bandwidth, and TFLOPS of the largest GPU for the M1 family and M2. Those of
    // the larger M2 are M2's 3.6 for 10 cores by their 19, 38 and 76. No integer rate of a GPU is given: f32's is taken.
    device("M1", None, 68.25, 2.6, 2.6),
    device("M1 Pro", None, 200.0, 5.2, 5.2),
    device("M1 Max", None, 400.0, 10.4, 10.4),
    device("M1 Ultra", None, 800.0, 21.0, 21.0),
    device("M2", None, 100.0, 3.6, 3.6),
    device("M2 Pro", None, 200.0, 6.84, 6.84),
    device("M2 Max", None, 400.0, 13.68, 13.68),
    device("M2 Ultra", None, 800.0, 27.36, 27.36),
    // Bandwidth as announced. No FLOPS were: 128 lanes for each core of the largest GPU (10, 18, 40, 80; M4: 10, 20, 40)
    // at the clocks that system tools show, 1.398 GHz, and 1.47 GHz for M4 and M4 Pro, 1.678 GHz for M4 Max.
    device("M3", None, 100.0, 3.58, 3.58),
    device("M3 Pro", None, 150.0, 6.44, 6.44),
    device("M3 Max", None, 400.0, 14.32, 14.32),
    device("M3 Ultra", None, 819.0, 28.63, 28.63),
    device("M4", None, 120.0, 3.76, 3.76),
    device("M4 Pro", None, 273.0, 7.53, 7.53),
    device("M4 Max", None, 546.0, 17.18, 17.18),
];

/// The machine with this name, ignoring case and whatever is neither letter nor digit.
pub fn find(name: &str) -> Option<&'static Device> {
    DEVICES.iter().find(|device| plain(device.name).eq(plain(name)))
}

fn plain(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for (i, device) in DEVICES.iter().enumerate() {
            assert_eq!(find(&device.name.to_lowercase().replace(' ', "-")), Some(&DEVICES[i]));
        }
        assert_eq!(find("m9"), None);
    }

    /// FLOP per byte as the article gives it, S0.6.
    #[test]
    fn balance() {
        let balance = |name| {
            let machine = find(name).unwrap().machine;
            [machine.f32_macs, machine.int8_macs]
                .map(|macs| (2.0 * macs / machine.bandwidth).round())
        };
        assert_eq!(balance("Ryzen 9 7950X")[0], 41.0);
        assert_eq!(balance("rtx4090")[0], 82.0);
        // The article prints 590, cut instead of rounded.
        assert_eq!(balance("H100 SXM")[1], 591.0);
    }
}
