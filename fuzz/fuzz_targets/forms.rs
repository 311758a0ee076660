//! Any schema, expression, grammar or list of tools is refused in one printable line, or compiled in 2 s and 512 MB by a process of its
//! own: the program in `ROOFLIGHT`, or `target/debug/rooflight`.
#![no_main]

use std::ffi::OsString;
use std::sync::LazyLock;

#[path = "../../crates/cli/tests/common/forms.rs"]
mod forms;

static PROGRAM: LazyLock<OsString> =
    LazyLock::new(|| std::env::var_os("ROOFLIGHT").unwrap_or("target/debug/rooflight".into()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = forms::compile_form(&PROGRAM, data);
});
