//! The suite runs the interpreter, and finds executors that are wrong.

mod checks;
mod compare;
mod demo;
mod generator;
mod hybrid;
mod interpreter;
mod mutants;
mod oracle;
mod replies;
