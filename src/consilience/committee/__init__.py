"""A committee of teachers in one frame: alignment maps, the consensus target, and how much the teachers agree."""
