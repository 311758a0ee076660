//! The binary in a clean environment, with a tiny random model in a folder of its own.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;
use tempfile::TempDir;

/// A folder with `demo.gguf`; gone when dropped.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().expect("a temporary folder can be made") };
        place.write("demo.gguf", conformance::demo_gguf());
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("the temporary folder can be written");
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The binary, started in the folder, without the user's environment and with an empty stdin.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rooflight"));
        clean(self.dir.path(), &mut command);
        command.args(args).write_stdin("");
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary starts")
    }

    /// Stdout of a command that must succeed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Exit code and stderr of a command that must fail and say why, without a result.
    pub(crate) fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && !stderr.is_empty(), "{args:?} did not fail");
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        (output.status.code().unwrap_or(-1), stderr)
    }
}

fn clean(dir: &Path, command: &mut Command) {
    command.current_dir(dir).env_clear().env("HOME", dir);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}
