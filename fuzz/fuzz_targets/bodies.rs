//! Any bytes are the body of a request that is read, or are refused in one short line.
#![no_main]

use engine::SamplerOptions;
use server::{JsonBody, OpenAiEndpoint, OpenAiRequest};

/// Longest message of a refusal, in bytes.
const MESSAGE: usize = 600;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for endpoint in [OpenAiEndpoint::Chat, OpenAiEndpoint::Texts] {
        let read = JsonBody::parse(data)
            .and_then(|body| OpenAiRequest::of_body(endpoint, body, &SamplerOptions::default()));
        if let Err(error) = read {
            let message = error.to_string();
            assert!(message.len() < MESSAGE && !message.contains('\n'), "{message:?}");
        }
    }
});
