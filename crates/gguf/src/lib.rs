//! GGUF files: header, metadata, tensor table, shards, naming, memory map; reader and writer.
