//! A binary of the house in a clean environment.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use assert_cmd::Command;
use tempfile::TempDir;

/// A folder in which a binary runs; gone when dropped.
pub struct Sandbox {
    dir: TempDir,
    binary: PathBuf,
}

impl Sandbox {
    /// An empty folder for `binary`, `env!("CARGO_BIN_EXE_name")`.
    ///
    /// # Panics
    /// If no temporary folder can be made.
    pub fn new(binary: impl Into<PathBuf>) -> Sandbox {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        Sandbox { dir, binary: binary.into() }
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Write a file.
    ///
    /// # Panics
    /// If that fails.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), content).expect("the temporary folder can be written");
    }

    /// Read a file.
    ///
    /// # Panics
    /// If that fails.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The binary, started in the folder, without the user's environment and with an empty stdin.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        clean(self.dir.path(), &mut command);
        command.args(args).write_stdin("");
        command
    }

    /// The same with a terminal of 40 columns for stdout, by `script` of util-linux; stderr is dropped.
    pub fn on_terminal(&self, args: &[&str]) -> Command {
        let quoted = |word: &str| format!("'{}'", word.replace('\'', r"'\''"));
        let binary = self.binary.to_string_lossy();
        let words = std::iter::once(&*binary).chain(args.iter().copied());
        let line = words.map(quoted).collect::<Vec<_>>().join(" ");
        let mut command = Command::new("script");
        clean(self.dir.path(), &mut command);
        command.args(["-qec", &format!("stty cols 40; exec {line} 2>/dev/null"), "/dev/null"]);
        command.env("SHELL", "/bin/sh").env("TERM", "xterm").write_stdin("");
        command
    }

    /// What a server does with these arguments: it runs until a line of stderr begins with `until`, and is asked to end
    /// then. One that ends by itself is not waited for.
    ///
    /// # Panics
    /// If it cannot be started or asked to end.
    pub fn serve(&self, args: &[&str], variables: &[(String, String)], until: &str) -> Output {
        let mut command = std::process::Command::new(&self.binary);
        command.args(args).current_dir(self.dir.path()).env_clear().env("HOME", self.dir.path());
        command.envs(device_variables());
        // no test asks a hub that is not its own
        command.env("HF_ENDPOINT", "http://127.0.0.1:9");
        command.envs(variables.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut stderr = String::new();
        let mut asked = false;
        loop {
            let start = stderr.len();
            if lines.read_line(&mut stderr).expect("stderr is UTF-8") == 0 {
                break;
            }
            if stderr[start..].starts_with(until) && !asked {
                asked = true;
                let kill = std::process::Command::new("kill").arg(child.id().to_string()).status();
                assert!(kill.is_ok_and(|status| status.success()), "it cannot be asked to end");
            }
        }
        let status = child.wait().expect("it is ours");
        Output { status, stdout: Vec::new(), stderr: stderr.into_bytes() }
    }

    /// What the binary does with these arguments.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary starts")
    }

    /// Stdout of a command that must succeed.
    ///
    /// # Panics
    /// If it does not.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Exit code and stderr of a command that must fail and say why, without a result.
    ///
    /// # Panics
    /// If it does not.
    pub fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && !stderr.is_empty(), "{args:?} did not fail");
        assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
        assert_eq!(text(&output.stdout), "", "{args:?}");
        (output.status.code().unwrap_or(-1), stderr)
    }
}

fn clean(dir: &Path, command: &mut Command) {
    command.current_dir(dir).env_clear().env("HOME", dir).envs(device_variables());
    command.env("HF_ENDPOINT", "http://127.0.0.1:9");
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
}

/// Variables of this process by which drivers of GPUs are found: a test that finds a device here finds it in a binary, too.
pub fn device_variables() -> impl Iterator<Item = (&'static str, OsString)> {
    let names = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "LD_LIBRARY_PATH"];
    names.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// Output, which is UTF-8.
///
/// # Panics
/// If it is not.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}
