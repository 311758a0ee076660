//! What attention reads: cache layouts and host storage.
