//! How far the interpreter is from the other program on its golden cases, whether they are supported or not: what to look
//! at while an architecture is being added.
//!
//! ```text
//! cargo run -p rooflight-conformance --example golden -- [MODEL...]
//! ```

#![expect(clippy::print_stdout, reason = "what it is for")]

use std::panic::catch_unwind;

use conformance::golden::{golden_case, shared_named};
use program::interpreter::Interpreter;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let cases = shared_named(None, &names).unwrap_or_else(|why| panic!("{why}"));
    std::panic::set_hook(Box::new(|_| ()));
    let mut good = 0;
    for case in &cases {
        let said = match catch_unwind(|| golden_case(&Interpreter, case)) {
            Ok(outcome) => {
                let close = outcome.nmse <= case.bound && outcome.greedy == case.greedy;
                good += usize::from(close);
                format!("{} {outcome}", if close { "ok  " } else { "FAR " })
            }
            Err(why) => format!("none {}", why.downcast_ref::<String>().map_or("", |s| s)),
        };
        println!("{:<18} {said}", case.name);
    }
    println!("{good} of {} within their bounds", cases.len());
}
