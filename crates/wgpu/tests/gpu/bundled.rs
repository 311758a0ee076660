//! The bundled model says on a device what the interpreter says, but where its two likeliest tokens are closer than what
//! rounding decides.

use std::path::Path;

use conformance::{ReplyRules, replies};
use gguf::Gguf;
use program::interpreter::Interpreter;

use crate::device;

#[test]
fn the_bundled_model_says_the_same() {
    if !crate::is_tested("replies of the bundled model") {
        return;
    }
    let Some(device) = device() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../demo-model/assets/rooflight-demo-5m-q8_0.gguf");
    let gguf = Gguf::open(&path).expect("the bundled model is in the checkout");
    // keys and values of the device are half floats
    let prompts = if testing::full("wgpu: 50 replies of the bundled model") { 50 } else { 10 };
    let rules = ReplyRules { prompts, reply: 6, most_nmse: 1e-5 };
    let found = replies(&gguf, device, &Interpreter, &rules, &mut || ()).expect("both run");
    assert!(found.agree(&rules) && found.near_ties <= 2, "{found:?}");
}
