//! The suite runs the interpreter, and finds executors that are wrong.

mod hybrid;
mod interpreter;
mod mutants;
mod oracle;
