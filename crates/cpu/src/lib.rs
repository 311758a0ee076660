//! The CPU executor: lowering, thread pool, weight packing.
