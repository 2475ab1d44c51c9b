"""Students: sizes, tokenizers, the text student and its files."""
