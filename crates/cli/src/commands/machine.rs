//! `rooflight machine`: what this machine can do at most.

use std::io::Write;

use anyhow::Context as _;

use crate::args::{ExecutorArgs, ThreadArgs};
use crate::ceilings;
use crate::executors::ExecutorOptions;

/// Measure what this machine can do at most
///
/// Read bandwidth, arithmetic and the cost of a barrier: the roof that speeds are compared with: `83 % of limit` after a reply means 83 % of what they allow.
/// They are measured once, in about a second, and kept in the user's cache folder.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  rooflight machine\n  rooflight machine --refresh --json\n  rooflight machine -t 1"
)]
pub(crate) struct Machine {
    /// Measure again although figures were kept
    #[arg(long)]
    refresh: bool,
    /// Print JSON: bytes, seconds and multiply-adds per second
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    executor: ExecutorArgs,
}

impl Machine {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        let ExecutorArgs { executor: kind, isa, mla, .. } = self.executor;
        let threads = self.threads.threads;
        let executor = ExecutorOptions { kind, threads, isa, mla }.start();
        let kept = if self.refresh { None } else { ceilings::kept(&*executor) };
        let kept = match kept {
            Some(kept) => kept,
            None => ceilings::measure(&*executor).context("measuring this machine")?,
        };
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&kept)?)?;
        } else {
            writeln!(out, "{kept}")?;
        }
        Ok(())
    }
}
