//! [`Error`]: a failed call of the driver.

use std::fmt;

use crate::api::LEAST_DRIVER;

/// A driver call that failed, or an error that was detected before the driver was called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The operation that failed.
    pub(crate) what: String,
    /// The driver's error code (`CUresult`); 0 if the driver was not called.
    pub(crate) code: u32,
    /// The driver's description of the code, or the reason why the driver was not called.
    pub(crate) why: String,
}

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`.
const UNSUPPORTED_PTX: u32 = 222;

impl Error {
    /// An error that was detected before the driver was called.
    pub(crate) fn new(what: impl Into<String>, why: impl Into<String>) -> Error {
        Error { what: what.into(), code: 0, why: why.into() }
    }

    /// Whether device or host memory was exhausted.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == OUT_OF_MEMORY
    }

    /// The driver's error code (`CUresult`); 0 if the driver was not called.
    pub fn code(&self) -> u32 {
        self.code
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        if self.code == UNSUPPORTED_PTX {
            write!(f, "; install NVIDIA driver {LEAST_DRIVER} or later")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}
