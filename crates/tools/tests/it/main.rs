//! Calls of tools, by every family that is known.

mod families;
mod forms;
