//! Any `config.json` with any arguments, which are its first line, gives a plan or one printable line.
#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Where the file is written, in memory where the system has files there; one for each process.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("rooflight-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder to write in");
    folder
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = rooflight_cli::plan_config(&FOLDER, data);
});
