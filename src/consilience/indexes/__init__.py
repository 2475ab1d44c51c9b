"""Live vector indexes (npy, parquet, FAISS, LanceDB, Qdrant local, pgvector): read as they are, rewritten beside."""
