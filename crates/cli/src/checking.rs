//! `rooflight check-form`, which no help lists: compiles a form within limits of memory and time that this process sets for itself.
//! `serve` and `batch` start it for doubtful forms, before they compile them themselves.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use grammar::FormChecker;

use crate::exit::code;

/// The command's name.
pub(crate) const COMMAND: &str = "check-form";
/// Longest request, in bytes: a form of tools, with what JSON adds to it.
const REQUEST: u64 = 32 << 20;

/// Returns the checker of doubtful forms, which starts this program again. `None` if the path of this program is unknown.
pub(crate) fn form_checker() -> Option<Arc<FormChecker>> {
    // it works after the file has been replaced too
    let program = match cfg!(target_os = "linux") {
        true => OsString::from("/proc/self/exe"),
        false => std::env::current_exe().ok()?.into_os_string(),
    };
    Some(Arc::new(FormChecker::new(vec![program, COMMAND.into()])))
}

/// Does what a request on standard input says; `args` are those behind the command's name: `--memory BYTES --seconds N`.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let number = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.to_str()?.parse::<u64>().ok()
    };
    let (Some(memory), Some(seconds)) = (number("--memory"), number("--seconds")) else {
        return ExitCode::from(code::USAGE);
    };
    limit(memory, seconds);
    let mut request = String::new();
    if std::io::stdin().take(REQUEST).read_to_string(&mut request).is_err() {
        return ExitCode::from(code::FAILURE);
    }
    let mut answer = grammar::check_request(&request);
    answer.push('\n');
    match std::io::stdout().write_all(answer.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(code::FAILURE),
    }
}

/// Sets the limits of address space, in bytes, and processor time, in seconds; a process that exceeds them leaves no core file.
#[cfg(unix)]
fn limit(memory: u64, seconds: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    for (resource, most) in [(Resource::As, memory), (Resource::Cpu, seconds), (Resource::Core, 0)]
    {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // where the system refuses one, the wall-clock limit of the parent process remains
        let _ = setrlimit(resource, limit);
    }
}

/// The wall-clock limit of the parent process is the only one here.
#[cfg(not(unix))]
fn limit(_: u64, _: u64) {}
