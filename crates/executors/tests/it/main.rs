//! Executors that are started, or say why not.

use executors::{ExecutorKind, ExecutorOptions};

#[test]
fn whoever_cannot_measure_starts_the_processor() {
    let auto = ExecutorOptions {
        kind: ExecutorKind::Auto,
        threads: Some(1),
        ..ExecutorOptions::default()
    };
    let cpu = ExecutorOptions { kind: ExecutorKind::Cpu, ..auto.clone() };
    let told = |options: &ExecutorOptions| options.start().expect("it starts").describe();
    assert_eq!((told(&auto), auto.n_threads()), (told(&cpu), 1));
}

/// Where there is a GPU or none, linked or not: what comes is a device's name or an error that says why.
#[test]
fn a_gpu_that_is_not_there_is_told_in_a_line() {
    let options = ExecutorOptions {
        kind: ExecutorKind::Wgpu,
        adapter: Some("no such adapter".into()),
        ..ExecutorOptions::default()
    };
    let why = options.start().err().expect("nothing has that name").to_string();
    assert!(why.lines().count() == 1 && why.len() > 20, "{why}");
}
