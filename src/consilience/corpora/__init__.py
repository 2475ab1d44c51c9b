"""Text corpora: reading, fingerprints, reports, and the caption grammar."""
