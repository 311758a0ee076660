//! What a template may take: everything that it can call is charged for what it reads and makes, before it is done.
//!
//! In a binary of its own, because an allocator counts here what is really made. Nothing is timed.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[path = "../it/common.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod common;

mod bombs;

mod table;

use std::alloc::System;
use std::sync::{Arc, LazyLock, Mutex};

use common::{CONTROL, Vocabulary};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokenizer::{ChatTemplate, Message, RenderOptions, Tokenizer, Usage};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The allocator counts for all threads: one rendering at a time.
static ALONE: Mutex<()> = Mutex::new(());

static VOCABULARY: LazyLock<Tokenizer> = LazyLock::new(|| {
    let mut v = Vocabulary::byte_level();
    v.add("<s>", CONTROL);
    v.add("<|user|>", CONTROL);
    v.build()
});

/// A rendering, and what it took.
struct Measured {
    /// The error's text if it failed.
    error: Option<String>,
    usage: Usage,
    /// Bytes allocated, all together, freed ones included.
    allocated: u64,
}

/// Renders a template with one short message; `limits`: other than its own.
fn measure(source: &str, limits: Option<Usage>) -> Measured {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let mut template = match ChatTemplate::new(source, &VOCABULARY) {
        Ok(template) => template,
        Err(e) => panic!("{source:.300}: {e}"),
    };
    if let Some(limits) = limits {
        template.set_limits(limits);
    }
    let region = Region::new(ALLOCATOR);
    let (result, usage) =
        template.measure(&[Message::new("user", "Hi")], &options, &Arc::default());
    let change = region.change();
    let allocated = (change.bytes_allocated as u64)
        .saturating_add_signed(change.bytes_reallocated.max(0) as i64);
    Measured { error: result.err().map(|e| e.to_string()), usage, allocated }
}

impl Measured {
    /// Whether it was stopped by one of the bounds, not by something else.
    fn is_bounded(&self) -> bool {
        self.error.as_deref().is_some_and(|error| {
            [
                "are allowed",
                "MiB of text",
                "million bytes",
                "steps",
                "bytes long",
                "very wide",
                "nested deeper",
            ]
            .iter()
            .any(|words| error.contains(words))
        })
    }
}
