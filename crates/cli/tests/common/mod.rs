//! The binary in a clean environment, with a tiny random model in a folder of its own.

#![allow(dead_code, unused_imports, reason = "every test file uses a part of it")]

use std::ops::Deref;

use testing::Sandbox;
pub(crate) use testing::text;

/// A folder with `demo.gguf`; gone when dropped.
pub(crate) struct Place(Sandbox);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(Sandbox::new(env!("CARGO_BIN_EXE_rooflight")));
        place.write("demo.gguf", conformance::demo_gguf());
        place
    }
}

impl Deref for Place {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}
