//! A runtime for tests whose clock stands still while tasks run, and jumps to the next timer when all of them wait.

/// Runs `test` on such a runtime.
///
/// # Panics
/// If the runtime cannot be built.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test);
}
