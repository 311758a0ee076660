//! What can go wrong: little.

/// A picture that could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bitmap is larger than can be allocated or written.
    #[error("picture of {width} x {height} pixels: too large for a bitmap")]
    TooLarge {
        /// In pixels.
        width: f64,
        /// In pixels.
        height: f64,
    },
    /// The bitmap could not be encoded as PNG.
    #[error("writing PNG: {0}")]
    Png(String),
}

/// What making a bitmap returns.
pub type Result<T> = std::result::Result<T, Error>;
