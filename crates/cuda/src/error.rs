//! What goes wrong with a device.

use std::fmt;

/// An error of the driver, or that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What was asked for.
    pub(crate) what: String,
    /// The driver's code; 0 where it was not asked.
    pub(crate) code: u32,
    /// What the driver says of the code, or why it was not asked.
    pub(crate) why: String,
}

/// The driver's code for memory that is not there.
const OUT_OF_MEMORY: u32 = 2;
/// Its code for PTX of a version that it does not know.
const UNSUPPORTED_PTX: u32 = 222;

impl Error {
    /// Of something that did not come to the driver.
    pub(crate) fn own(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error { what: what.into(), code: 0, why: why.into() }
    }

    /// Whether there is no memory for what was asked.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    /// The driver's code, of `CUresult`; 0 where the driver was not asked.
    pub fn code(&self) -> u32 {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        if self.code == UNSUPPORTED_PTX {
            write!(f, "; a newer driver is needed (410 or later)")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
