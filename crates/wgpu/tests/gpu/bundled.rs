//! The bundled model says on a device what the interpreter says, but where its two likeliest tokens are closer than what
//! rounding decides.

use std::path::Path;

use conformance::replies;
use gguf::Gguf;
use program::interpreter::Interpreter;

use crate::device;

#[test]
fn the_bundled_model_says_the_same() {
    let Some(device) = device() else { return };
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/rooflight-demo-5m-q8_0.gguf");
    let gguf = Gguf::open(&path).expect("the bundled model is in the checkout");
    let found = replies(&gguf, device, &Interpreter, (50, 6), &mut || ()).expect("both run");
    // keys and values of the device are half floats
    assert!(found.nmse <= 1e-5 && found.wrong.is_empty() && found.near_ties <= 2, "{found:?}");
}
