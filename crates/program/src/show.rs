//! Listing of a program.
