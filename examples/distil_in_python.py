"""The main job in Python: two real teachers, a student of four layers, about two minutes on two cores.

python examples/distil_in_python.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import consilience
from consilience.corpora.caption_grammar import generate_captions


def main(folder: Path) -> None:
    """Distil a student into ``folder / "model"`` and print its score beside its teachers'."""
    folder.mkdir(parents=True, exist_ok=True)
    captions = folder / "captions.txt"
    captions.write_text("".join(f"{text}\n" for text in generate_captions(2_000, seed=0)), encoding="utf-8")

    # Each teacher embeds the corpus once; the banks stay for the next experiment.
    teachers = {"minilm": "packaged:all-MiniLM-L6-v2", "paraphrase": "packaged:paraphrase-MiniLM-L3-v2"}
    banks = [consilience.embed(captions, teacher=spec, out=folder / "banks" / name) for name, spec in teachers.items()]

    # Both into MiniLM's frame, judged on rows that the map didn't see; then their agreement, row by row.
    frames = consilience.align(banks, reference=banks[0], out=folder / "frames")
    target = consilience.consensus(banks, frames=frames, out=folder / "target")

    # Nothing said of its start: the student gets the most influential of MiniLM's layers.
    consilience.distill(captions, target=target.path, steps=30, out=folder / "student")

    result = consilience.evaluate([str(folder / "student"), *teachers.values()], tasks=["grammar"])
    for model in result.models:
        print(f"{model.model}: {model.mean:.3f} [{model.mean_low:.3f}, {model.mean_high:.3f}]")

    consilience.export(folder / "student", out=folder / "model", formats=["sentence-transformers"])
    print(f"the model is in {folder / 'model'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example"))
