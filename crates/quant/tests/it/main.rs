//! Block formats from outside.

mod fixtures;
mod properties;
