"""Objectives: one term a file, and named compositions of them (design, section 5)."""
