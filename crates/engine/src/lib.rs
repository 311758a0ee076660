//! Sessions, samplers and the generate loop.
