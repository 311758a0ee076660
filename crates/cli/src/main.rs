//! The `rooflight` command.
fn main() {}
