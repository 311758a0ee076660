//! Charts: [`Lines`], [`Bars`], [`Waterfall`]s, [`HeatMap`]s and [`Figure`]s of several of them, as SVG.
//!
//! A chart is described by builders, laid out into a scene of a few kinds of shapes (`scene.rs`), and written by one
//! small writer (`svg.rs`). The SVG follows the reader's light or dark theme and uses the system's font. Labels are placed where they hide neither each other nor, if
//! there is room, a line. Values that are no numbers are left out; nothing here fails.
//! No file, model or terminal is known here. Read next: `lines.rs`, then `layout.rs`.
//!
//! ```
//! use plot::{Axis, Lines, Series, Unit};
//!
//! let svg = Lines::new("Time to first token")
//!     .subtitle("7B in 16 bits on 1008 GB/s and 82.58 TFLOP/s")
//!     .x(Axis::linear("prompt length", Unit::Plain("tokens")))
//!     .y(Axis::linear("latency", Unit::Si("s")))
//!     .series(Series::new("read", [(1.0, 0.0131), (500.0, 0.0753)]))
//!     .series(Series::new("compute", [(1.0, 0.0002), (500.0, 0.0755)]))
//!     .mark_x(113.75, "inflection 113")
//!     .svg();
//! assert!(svg.starts_with("<svg"));
//! ```

#![forbid(unsafe_code)]

mod axis;
mod bars;
mod figure;
mod font;
mod heat;
mod layout;
mod lines;
mod number;
mod palette;
mod place;
mod rows;
mod scene;
mod svg;
mod waterfall;

pub use axis::{Axis, Unit};
pub use bars::Bars;
pub use figure::{Figure, Panel};
pub use heat::HeatMap;
pub use lines::{Lines, Series};
pub use number::{grouped, si};
pub use scene::Picture;
pub use waterfall::Waterfall;
