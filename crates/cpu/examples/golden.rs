//! How far the interpreter and the CPU, with each instruction set it has here, are from the other program on its golden
//! cases: a row for each, those of architectures that do not run as well. `cargo xtask golden` runs it.
//!
//! ```text
//! cargo run -p rooflight-cpu --example golden -- [FOLDER] [MODEL...]
//! ```

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::panic::catch_unwind;
use std::path::PathBuf;
use std::process::ExitCode;

use conformance::golden::{Case, golden_case, shared_named};
use cpu::{Cpu, Options};
use kernels::Isa;
use program::Executor;
use program::interpreter::Interpreter;

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let folder = names.first().map(PathBuf::from).filter(|folder| folder.is_dir());
    if folder.is_some() {
        names.remove(0);
    }
    let cases = match shared_named(folder.as_deref(), &names) {
        Ok(cases) => cases,
        Err(why) => {
            println!("no golden cases: {why}");
            return ExitCode::FAILURE;
        }
    };
    let here = Isa::NAMES.iter().filter(|(_, isa)| Isa::detect().contains(*isa));
    let cpus: Vec<(&str, Cpu)> = here
        .map(|(name, isa)| (*name, Cpu::new(&Options { isa: Some(*isa), ..Options::default() })))
        .collect();
    std::panic::set_hook(Box::new(|_| ()));
    let heads: String = cpus.iter().map(|(name, _)| format!("{name:>9}")).collect();
    println!("{:<24}{:>12}{heads}   greedy", "case", "interpreter");
    let (mut good, mut far) = (0, Vec::new());
    for case in &cases {
        let rows: Result<Vec<Row>, String> = std::iter::once(row(&Interpreter, case))
            .chain(cpus.iter().map(|(_, cpu)| row(cpu, case)))
            .collect();
        match rows {
            Err(why) => println!("{:<24}{why}", case.name),
            Ok(rows) => {
                let close = rows.iter().all(|row| row.close);
                good += usize::from(close);
                if !close {
                    far.push(case.name.clone());
                }
                let numbers = rows.iter().map(|row| format!("{:>9.1e}", row.nmse));
                let greedy: Vec<String> = rows.iter().map(|row| row.greedy.to_string()).collect();
                let numbers: String = numbers.collect();
                println!("{:<24}   {numbers}   {}", case.name, greedy.join(" "));
            }
        }
    }
    println!("{good} of {} within their bounds", cases.len());
    if far.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("too far: {}", far.join(", "));
    ExitCode::FAILURE
}

/// What an executor made of a case.
struct Row {
    nmse: f64,
    /// Leading ids that are the other program's.
    greedy: usize,
    close: bool,
}

/// The row, or why there is none.
fn row(executor: &dyn Executor, case: &Case) -> Result<Row, String> {
    let executor = std::panic::AssertUnwindSafe(executor);
    match catch_unwind(|| golden_case(*executor, case)) {
        Ok(outcome) => {
            let close = outcome.nmse <= case.bound && outcome.greedy == case.greedy;
            Ok(Row { nmse: outcome.nmse, greedy: outcome.same_greedy, close })
        }
        Err(why) => Err(why.downcast_ref::<String>().cloned().unwrap_or_default()),
    }
}
