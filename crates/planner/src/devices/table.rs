//! The rows of the table: figures as makers publish them, or derived from published units and clocks.

use crate::Machine;

/// A published machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// Name. [`find`](super::find) accepts any unique part of it.
    pub name: &'static str,
    /// Memory for weights and cache, in bytes: the maker's GB taken as decimal, since drivers keep some of the binary
    /// ones. `None` where buyers choose it.
    pub memory: Option<f64>,
    /// Whether the processor uses the same memory: true for processors and for GPUs that are built into one.
    pub shares_memory: bool,
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

/// Memory in GB, bandwidth in GB/s. Without a size, it is the processor's memory, of which buyers choose the size.
const fn device(name: &'static str, memory: Option<f64>, gb_s: f64, rates: &Tera) -> Device {
    let machine = Machine {
        bandwidth: gb_s * 1e9,
        int8_macs: rates.int8 * 1e12 / 2.0,
        f16_macs: rates.f16 * 1e12 / 2.0,
        bf16_macs: rates.bf16 * 1e12 / 2.0,
        f32_macs: rates.f32 * 1e12 / 2.0,
        barrier: 0.0,
    };
    let shares_memory = memory.is_none();
    let memory = match memory {
        Some(gb) => Some(gb * 1e9),
        None => None,
    };
    Device { name, memory, shares_memory, machine }
}

/// A GPU that shares `gb` GB of memory with the processor.
const fn shared(name: &'static str, gb: f64, gb_s: f64, rates: &Tera) -> Device {
    Device { shares_memory: true, ..device(name, Some(gb), gb_s, rates) }
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

/// A GeForce card: memory in GB, bandwidth in GB/s, CUDA cores, boost clock in GHz.
///
/// A core does one multiply-add in f32 each cycle. The matrix units do as many in TF32, twice as many in 16 bits with sums
/// in f32, which bf16 needs, four times as many in f16 with sums in f16, and eight times as many in 8 bits: the ratios that
/// NVIDIA's white papers print for the RTX 3090, 4090 and 5090, rows below.
const fn geforce(name: &'static str, gb: f64, gb_s: f64, cores: f64, ghz: f64) -> Device {
    let f32 = 2.0 * cores * ghz / 1e3;
    device(name, Some(gb), gb_s, &Tera { f32, f16: 4.0 * f32, bf16: 2.0 * f32, int8: 8.0 * f32 })
}

/// Operations of a compute unit each cycle in 16 and 8 bits, from the table in AMD's "Using the Matrix Cores of AMD RDNA 4
/// architecture GPUs" (GPUOpen).
const RDNA3: [f64; 2] = [512.0, 512.0];
const RDNA4: [f64; 2] = [1024.0, 2048.0];

/// A Radeon GPU: compute units and boost clock in GHz. In f32 a unit does 128 multiply-adds each cycle, two instructions
/// at once.
const fn radeon(units: f64, ghz: f64, [half, int8]: [f64; 2]) -> Tera {
    let per_cycle = units * ghz / 1e3;
    let half = half * per_cycle;
    Tera { f32: 256.0 * per_cycle, f16: half, bf16: half, int8: int8 * per_cycle }
}

/// The GPU of a Jetson Orin module: multiprocessors and clock in GHz. NVIDIA's Jetson AGX Orin technical brief: 170 TOPS in
/// INT8 with sparsity for 16 at 1.3 GHz, 4096 operations of each in a cycle without. Halves go at half this rate and TF32 at
/// a quarter, as in the A100. The accelerators beside the GPU (DLA, 105 TOPS with sparsity) are left out.
const fn orin(multiprocessors: f64, ghz: f64) -> Tera {
    let int8 = 4096.0 * multiprocessors * ghz / 1e3;
    Tera { f32: int8 / 4.0, f16: int8 / 2.0, bf16: int8 / 2.0, int8 }
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
    // GeForce cards sum up f16 in f16 at twice the rate of f32, which bf16 needs. Cards that are sold with several sizes
    // of memory have the size in their name.
    // NVIDIA's announcements of September 2020 and January 2021: CUDA cores, boost clock, memory; 102, 163 and 238 TFLOPS of
    // tensor cores in f16 with sparsity. Memory: 192 bits at 15 Gbit/s, 256 at 14, 320 at 19.
    geforce("RTX 3060 12GB", 12.0, 360.0, 3584.0, 1.777),
    geforce("RTX 3070", 8.0, 448.0, 5888.0, 1.725),
    geforce("RTX 3080 10GB", 10.0, 760.0, 8704.0, 1.71),
    // NVIDIA Ampere GA102 GPU architecture whitepaper, appendix A, RTX 3090.
    device("RTX 3090", Some(24.0), 936.0, &Tera { f32: 35.6, f16: 142.0, bf16: 71.0, int8: 284.0 }),
    // NVIDIA's announcements of the GeForce RTX 40 series (2022 to 2024): CUDA cores, boost clock, memory. Memory: 128 bits at
    // 17 and 18 Gbit/s, 192 at 21, 256 at 21, 22.4 and 23.
    geforce("RTX 4060", 8.0, 272.0, 3072.0, 2.46),
    geforce("RTX 4060 Ti 8GB", 8.0, 288.0, 4352.0, 2.535),
    geforce("RTX 4060 Ti 16GB", 16.0, 288.0, 4352.0, 2.535),
    geforce("RTX 4070", 12.0, 504.0, 5888.0, 2.475),
    geforce("RTX 4070 Super", 12.0, 504.0, 7168.0, 2.475),
    geforce("RTX 4070 Ti", 12.0, 504.0, 7680.0, 2.61),
    geforce("RTX 4070 Ti Super", 16.0, 672.0, 8448.0, 2.61),
    geforce("RTX 4080", 16.0, 716.8, 9728.0, 2.505),
    geforce("RTX 4080 Super", 16.0, 736.0, 10240.0, 2.55),
    // NVIDIA Ada GPU architecture whitepaper, appendix A: 24 GB, 1008 GB/s, 82.58 TFLOPS f32 and TF32.
    device(
        "RTX 4090",
        Some(24.0),
        1008.0,
        &Tera { f32: 82.58, f16: 330.3, bf16: 165.2, int8: 660.6 },
    ),
    // NVIDIA's announcements of the GeForce RTX 50 series (2025): CUDA cores, boost clock, memory; 759, 988, 1406 and 1801 TOPS
    // in FP4 with sparsity, which is four times INT8 without. Memory: 128, 192 and 256 bits at 28 Gbit/s, 256 at 30.
    geforce("RTX 5060 Ti 8GB", 8.0, 448.0, 4608.0, 2.572),
    geforce("RTX 5060 Ti 16GB", 16.0, 448.0, 4608.0, 2.572),
    geforce("RTX 5070", 12.0, 672.0, 6144.0, 2.512),
    geforce("RTX 5070 Ti", 16.0, 896.0, 8960.0, 2.452),
    geforce("RTX 5080", 16.0, 960.0, 10752.0, 2.617),
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
    // AMD's product pages: compute units, boost frequency, memory. 61.4 TFLOPS in f32 for the RX 7900 XTX, 48.7 for the RX 9070
    // XT, which does 1557 TOPS in INT4 with sparsity: four times INT8 without.
    device("RX 7900 XT", Some(20.0), 800.0, &radeon(84.0, 2.4, RDNA3)),
    device("RX 7900 XTX", Some(24.0), 960.0, &radeon(96.0, 2.5, RDNA3)),
    device("RX 9070", Some(16.0), 640.0, &radeon(56.0, 2.52, RDNA4)),
    device("RX 9070 XT", Some(16.0), 640.0, &radeon(64.0, 2.97, RDNA4)),
    // Intel's announcement of the B series: 456 GB/s, 233 TOPS in INT8, which is 20 cores at 2.85 GHz. "Xe2 and Lunar Lake GPU
    // Deep Dive" (Intel Tech Tour 2024): a core does 4096 operations in INT8 each cycle, 2048 in FP16 and BF16, 256 in f32;
    // the matrix units have no TF32.
    device(
        "Arc B580",
        Some(12.0),
        456.0,
        &Tera { f32: 14.6, f16: 116.7, bf16: 116.7, int8: 233.5 },
    ),
    // AMD's product page: 40 compute units of RDNA 3.5, 2.9 GHz, 256 bits of LPDDR5X-8000. The GPU alone, without processor
    // cores and NPU.
    device("Ryzen AI Max+ (Strix Halo)", None, 256.0, &radeon(40.0, 2.9, RDNA3)),
    // NVIDIA DGX Spark user guide, hardware overview: 273 GB/s, 1 PFLOPS in FP4 with sparsity. Half of that without, a quarter in 8 bits,
    // an eighth in 16, a sixteenth in TF32. Sums in f32 are not slower than in f16, unlike on GeForce cards:
    // CUTLASS, which sums up FP8 in f32, reaches 188 TFLOPS (NVIDIA developer forum, topic 359960).
    shared(
        "DGX Spark (GB10)",
        128.0,
        273.0,
        &Tera { f32: 62.5, f16: 125.0, bf16: 125.0, int8: 250.0 },
    ),
    // Jetson AGX Orin data sheet: 204.8 GB/s, 1.3 GHz. Jetson Orin Nano Super: 102 GB/s, 1.02 GHz, 67 TOPS with sparsity.
    shared("Jetson AGX Orin 64GB", 64.0, 204.8, &orin(16.0, 1.3)),
    shared("Jetson Orin Nano Super", 8.0, 102.4, &orin(8.0, 1.02)),
    // Raspberry Pi 5 product brief: four Cortex-A76 at 2.4 GHz (BCM2712), 32 bits of LPDDR4X-4267. A core starts two vector
    // instructions each cycle (LLVM's scheduling model of the Neoverse N1, the same design): FMLA of 4 multiply-adds in f32 or
    // 8 in f16, SDOT of 16 in 8 bits. It has no instructions for bf16, which is computed in f32.
    device(
        "Raspberry Pi 5",
        None,
        17.07,
        &Tera { f32: 0.1536, f16: 0.3072, bf16: 0.1536, int8: 0.6144 },
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
