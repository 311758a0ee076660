//! One suite that every executor passes.
