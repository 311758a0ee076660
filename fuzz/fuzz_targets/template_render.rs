//! Any template renders any conversation or fails in one printable line, within its budget; no content becomes a
//! control token.
#![no_main]

#[path = "../../crates/tokenizer/tests/it/harness.rs"]
#[allow(dead_code, reason = "shared with the other target")]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    harness::template_render(data);
});
