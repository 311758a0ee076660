//! The suite runs the interpreter, and finds executors that are wrong.

mod interpreter;
mod mutants;
