"""The command line: one file a verb; each parses its options and calls a recipe."""
