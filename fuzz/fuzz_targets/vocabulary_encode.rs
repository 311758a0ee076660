//! Any vocabulary is read or refused in one printable line; what was read encodes any text, without control tokens.
#![no_main]

#[path = "../../crates/tokenizer/tests/it/harness.rs"]
#[allow(dead_code, reason = "shared with the other target")]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    harness::vocabulary_encode(data);
});
