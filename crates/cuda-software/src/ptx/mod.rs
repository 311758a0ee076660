//! Reads PTX text and decodes it, once, into compact instructions with register numbers.
//!
//! `lex` splits the text, `parse` reads directives and statements, `decode` and its parts check
//! each statement as `ptxas` would and emit instructions. What they mean is in `exec`.

mod convert;
mod decode;
mod flow;
mod instr;
mod lex;
mod memory;
mod module;
mod numeric;
mod operand;
mod operands;
mod parse;
mod slots;

pub(crate) use flow::contains;
pub(crate) use instr::{
    Cmp, Instr, Int, Kernel, MemExt, NO_GUARD, Op, Rounding, Shuffle, Space, Tile, TileRole, Vote,
    WINDOW_SHIFT, Window, special,
};
pub(crate) use module::load;

/// Why a module cannot be loaded, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// Line of the text, counted from 1; 0 where no line is to blame.
    pub(crate) line: u32,
    /// Reason, in lower case.
    pub(crate) reason: String,
    /// The `.version` is newer than this library.
    pub(crate) unsupported_version: bool,
}

impl SyntaxError {
    pub(crate) fn new(line: u32, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into(), unsupported_version: false }
    }
}

impl std::fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}
