//! Bodies of [`CEILINGS`](super::CEILINGS): what a device is to do as fast as it can.

use std::fmt::Write as _;

/// Every lane reads its quads, round after round.
pub(crate) const READ: &str = include_str!("ceilings/read.wgsl");

/// Sums that do not wait for each other.
const SUMS: usize = 8;
/// Times that each is added to in a round: what counting rounds takes is little beside it.
const TIMES: usize = 4;

/// Arithmetic.
pub(crate) struct Body {
    /// Its text.
    pub(crate) text: String,
    /// Multiply-adds of a lane in a round.
    pub(crate) macs: f64,
}

/// Lines for each sum: what it is at first, what is added to it, and whether it is not what it must be at the end.
fn body(
    head: &str,
    width: usize,
    first: impl Fn(usize) -> String,
    next: impl Fn(usize) -> String,
    wrong: impl Fn(usize) -> String,
) -> Body {
    let mut text = head.to_owned();
    let mut line = |line: String| {
        let _ = writeln!(text, "    {line}");
    };
    (0..SUMS).for_each(|i| line(format!("var s{i} = {};", first(i))));
    line("for (var round = 0u; round < c.rounds; round++) {".into());
    (0..TIMES).flat_map(|_| 0..SUMS).for_each(|i| line(format!("    s{i} = {};", next(i))));
    line("}".into());
    let wrong: Vec<_> = (0..SUMS).map(wrong).collect();
    line(format!("let found = {};", wrong.join(" || ")));
    Body { text, macs: (SUMS * TIMES * width) as f64 }
}

/// Fused multiply-adds of f32, four numbers at once.
pub(crate) fn floats() -> Body {
    let head = "    let x = bitcast<vec4<f32>>(data[lane]);\n    let y = bitcast<vec4<f32>>(data[lane + LANES]);\n";
    // a sum is zero after a round, and what it began with if there is none
    body(
        head,
        4,
        |i| format!("x + vec4({i}.5)"),
        |i| format!("fma(s{i}, y, x)"),
        |i| format!("any(s{i} < x)"),
    )
}

/// Products of signed bytes, four added into a number of 32 bits.
pub(crate) fn bytes() -> Body {
    let head = "    let y = data[lane].x;\n";
    body(
        head,
        4,
        |i| format!("i32(data[lane + LANES].x) + {i}"),
        |i| format!("s{i} + dot4I8Packed(bitcast<u32>(s{i}), y)"),
        |i| format!("s{i} < 0"),
    )
}
