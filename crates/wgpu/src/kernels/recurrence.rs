//! The kernels of what recurs.

use program::ScanRule;

use super::{ACTS, FINISH, STEP, Shader, ShaderKernel};

const STATES: &str = include_str!("states.wgsl");

/// Sums over each row and those before it.
pub(crate) static CONV: ShaderKernel = ShaderKernel {
    name: "conv",
    parts: &[STEP, STATES, ACTS, FINISH, include_str!("conv.wgsl")],
    reads: 2,
    writes: 2,
};

/// Recurrences over rows.
pub(crate) static SCAN: ShaderKernel = ShaderKernel {
    name: "scan",
    parts: &[STEP, STATES, include_str!("scan.wgsl")],
    reads: 1 + SCAN_BUFFERS as u32,
    writes: 2,
};

/// Buffers that the inputs of a [`SCAN`] may lie in: with what else it binds as many as every device has.
pub(crate) const SCAN_BUFFERS: usize = 4;
/// Inputs that it has at most.
pub(crate) const SCAN_INPUTS: usize = 6;
/// Columns of a matrix that one of its workgroups has.
pub(crate) const SCAN_STRIP: usize = program::ScanDims::STRIP;
/// Numbers of a row that one of its workgroups keeps.
pub(crate) const SCAN_COPIED: usize = 256;
/// Lanes that have a column.
const PARTS: usize = 4;

/// What a row does to a matrix, and what becomes of what it read.
fn rule(rule: ScanRule) -> [&'static str; 2] {
    match rule {
        ScanRule::Delta => [include_str!("scan/delta.wgsl"), include_str!("scan/delta_read.wgsl")],
        ScanRule::Linear => {
            [include_str!("scan/linear.wgsl"), include_str!("scan/linear_read.wgsl")]
        }
        ScanRule::Lightning => [include_str!("scan/lightning.wgsl"), ""],
        ScanRule::Ssd => [include_str!("scan/ssd.wgsl"), include_str!("scan/ssd_read.wgsl")],
        ScanRule::Selective => {
            [include_str!("scan/selective.wgsl"), include_str!("scan/selective_read.wgsl")]
        }
        ScanRule::Wkv6 => [include_str!("scan/wkv6.wgsl"), ""],
        ScanRule::Wkv7 => [include_str!("scan/wkv7.wgsl"), ""],
    }
}

impl Shader {
    /// Sums over each row and those before it.
    pub(crate) fn conv() -> Shader {
        Shader::new(&CONV)
    }

    /// A recurrence with keys of so many numbers; `buffers`: in which of its buffers each input lies.
    pub(crate) fn scan(kind: ScanRule, key_dim: usize, buffers: &[usize]) -> Shader {
        const NAMES: [&str; SCAN_INPUTS] = ["IN_0", "IN_1", "IN_2", "IN_3", "IN_4", "IN_5"];
        let [row, read] = rule(kind);
        let shader = Shader::new(&SCAN)
            .with("KEYS_EACH", key_dim.div_ceil(PARTS).to_string())
            .with("ROW", row)
            .with("READ", read);
        // what is never read may be called after any
        let buffers = buffers.iter().copied().chain(std::iter::repeat(0));
        NAMES
            .into_iter()
            .zip(buffers)
            .fold(shader, |shader, (name, buffer)| shader.with(name, format!("numbers_{buffer}")))
    }
}
