//! Any schema, expression, grammar or list of tools is refused in one printable line, or compiled in 2 s and 512 MB. Each case runs in a
//! fork of this process, which limits itself. Doubtful forms of tools are compiled by the program in `ROOFLIGHT`, or
//! `target/debug/rooflight`, as a server does it.
#![no_main]

use std::ffi::OsString;
use std::sync::LazyLock;

#[path = "../../crates/cli/tests/common/forms.rs"]
mod forms;

use forms::{FormCase, MEMORY, N_TOKENS, SECONDS, TRIE, is_form, tools_form};

static PROGRAM: LazyLock<OsString> =
    LazyLock::new(|| std::env::var_os("ROOFLIGHT").unwrap_or("target/debug/rooflight".into()));

/// Makes the compiler's tables, which the next forms of the same vocabulary use.
static COMPILER: LazyLock<()> = LazyLock::new(|| {
    let small = serde_json::json!({ "kind": "regex", "text": "a", "n_tokens": N_TOKENS });
    let answer = grammar::check_request(&small.to_string());
    assert_eq!(answer, r#"{"ok":true}"#);
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // built once before forking: forks share them
    LazyLock::force(&TRIE);
    LazyLock::force(&COMPILER);
    // chosen before forking: the fuzzer sees the coverage of this process, not that of its forks
    let case = FormCase::chosen(data);
    // SAFETY: the fork is a copy of this process with this thread only; glibc keeps its allocator usable in it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        limit();
        match case {
            FormCase::Request(request) => {
                is_form(grammar::check_request(&request.to_string()).as_bytes())
            }
            FormCase::Tools(choices) => tools_form(&PROGRAM, choices),
        };
        // SAFETY: ends the fork without running the exit handlers of the fuzzer.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    let mut status = 0;
    let ended = loop {
        // SAFETY: the pointer is to an integer of this stack frame, which the call may write.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        // the fuzzer's timer may interrupt the call
        let why = std::io::Error::last_os_error();
        if ended != -1 || why.kind() != std::io::ErrorKind::Interrupted {
            break ended;
        }
    };
    assert_eq!((ended, status), (child, 0), "the case ended its process");
});

/// Limits this process to [`MEMORY`] more bytes of address space than it has, and [`SECONDS`] of processor time.
fn limit() {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    for (resource, most) in [
        (libc::RLIMIT_AS, pages * 4096 + MEMORY),
        (libc::RLIMIT_CPU, SECONDS),
        (libc::RLIMIT_CORE, 0),
    ] {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the pointer is to a value of this stack frame, which is only read.
        let set = unsafe { libc::setrlimit(resource, &raw const limit) };
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}
