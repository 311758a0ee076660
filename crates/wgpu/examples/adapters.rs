//! The adapters of this machine that models can run on, a line each, the one that is taken first. Exit code 1: none.

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let adapters = gpu::GpuExecutor::devices(gpu::Interface::Wgpu);
    adapters.iter().for_each(|adapter| println!("{adapter}"));
    if adapters.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
