//! GGUF vocabularies and chat templates.
