"""Banks: one teacher's embeddings of one corpus, in checksummed shards that are memory-mapped."""
