//! Calls of tools, by every family that is known.

mod families;
mod forms;
mod json;
mod list;
mod strict;
mod values;
mod written;
