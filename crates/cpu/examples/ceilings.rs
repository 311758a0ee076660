//! Prints the machine's ceilings: `cargo run --release -p rooflight-cpu --example ceilings`.

use cpu::{Cpu, Options};
use program::Executor;

fn main() {
    let cpu = Cpu::new(&Options::default());
    let ceilings = cpu.ceilings(&mut |_| true).expect("memory for the probe");
    eprintln!("{}: {ceilings:#?}", cpu.describe());
}
