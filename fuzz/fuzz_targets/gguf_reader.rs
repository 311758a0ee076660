//! Any bytes are read or refused in one printable line; what was read can be used.
#![no_main]

use gguf::{Gguf, OwnedValue};

libfuzzer_sys::fuzz_target!(|data: &[u8]| match Gguf::from_bytes(data.to_vec()) {
    Ok(gguf) => {
        for (key, value) in gguf.metadata().iter() {
            assert_eq!(
                OwnedValue::from(value).ty(),
                gguf.metadata().get(key).expect("listed").ty()
            );
            assert!(!value.to_string().chars().any(char::is_control));
        }
        for t in gguf.tensors() {
            assert_eq!(
                gguf.bytes(gguf.tensor(&t.name).expect("listed")).expect("in memory").len(),
                t.byte_len()
            );
        }
    }
    Err(error) => {
        let text = error.to_string();
        assert!(text.chars().count() <= 400 && !text.chars().any(char::is_control), "{text}");
    }
});
