//! CPU kernels by instruction set, and the registry that chooses among them.
