//! Translates compute kernels from WGSL to PTX, which NVIDIA's drivers compile: one text of a kernel serves all devices.
//!
//! naga reads and checks a text; what it makes of it is executed here on values of which some are known: so constants are
//! folded, branches that are not taken are left out, short loops are written out, and variables are in registers. The rest
//! becomes instructions.

use std::fmt;

use naga::ShaderStage;
use naga::valid::{Capabilities, ValidationFlags, Validator};

mod analysis;
mod arith;
mod builder;
mod code;
mod expr;
mod flow;
mod fold;
mod layout;
mod math;
mod matrices;
mod memory;
mod passes;
mod translator;
mod unroll;
mod wide;

/// What failed in a translation, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }

    /// There is no translation of this.
    fn unsupported(what: impl fmt::Display) -> Error {
        Error(format!("not supported: {what}"))
    }

    fn within(self, name: &str) -> Error {
        Error(format!("{}, in {name}", self.0))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// A kernel translated to PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxKernel {
    /// A module of one kernel, `main`, whose parameters are its bindings in order: of the
    /// uniform one its bytes by value, of others the device address, 64 bits.
    pub text: String,
    /// Threads of a block in each direction.
    pub workgroup_size: [u32; 3],
    /// How many parameters it has: one more than the number of its last binding.
    pub n_bindings: u32,
    /// Bytes of the uniform binding, which is given by value; 0 if there is none.
    pub constant_bytes: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
}

/// Translates a WGSL text with one entry point, `main`, which is a compute shader.
///
/// All bindings are of group 0. Lanes of a subgroup are 32, as on all of NVIDIA's devices.
///
/// # Errors
///
/// If the text is no valid WGSL, or has something that is not supported, which the error names.
pub fn translate(wgsl: &str) -> Result<PtxKernel, Error> {
    let module = naga::front::wgsl::parse_str(wgsl).map_err(|error| {
        let line = error.location(wgsl).map_or(0, |location| location.line_number);
        Error::new(format!("{} at line {line}", one_line(error.message())))
    })?;
    let capabilities = Capabilities::SHADER_FLOAT16
        | Capabilities::SHADER_FLOAT16_IN_FLOAT32
        | Capabilities::SUBGROUP
        | Capabilities::COOPERATIVE_MATRIX;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    let info = validator.validate(&module).map_err(|error| {
        let line = error.location(wgsl).map_or(0, |location| location.line_number);
        Error::new(format!("{} at line {line}", one_line(&causes(error.as_inner()))))
    })?;
    let [entry] = module.entry_points.as_slice() else {
        return Err(Error::new("a kernel has one entry point"));
    };
    if entry.stage != ShaderStage::Compute || entry.name != "main" {
        return Err(Error::new(format!("{} is no compute shader named main", entry.name)));
    }
    translator::translate(&module, &info)
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
