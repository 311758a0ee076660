//! Model configurations, weight binding by GGUF names, and one file per architecture.
