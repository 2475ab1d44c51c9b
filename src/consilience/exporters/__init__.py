"""Exporters: a student as a sentence-transformers folder, a transformers backbone and an ONNX file, with a card."""
