//! Any bytes are refused in one printable line, or load and step on the interpreter and the CPU alike.
#![no_main]

#[path = "../../crates/cpu/tests/first_token/harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = harness::first_token(data);
});
