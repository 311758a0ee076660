//! The CPU executor as its callers see it, beside the interpreter.

mod against_interpreter;
mod disks;
mod experts;
mod latent;
mod latent_forms;
mod peaks;
mod prefixes;
mod quantized_archs;
mod reads;
mod spilled;
mod supports;
mod windows;
