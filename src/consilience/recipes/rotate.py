"""Rotate: a student, an exported model or a bank into another bank's or model's frame, by one orthogonal matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import is_finished, output_path, require_output
from consilience.core.errors import FrameMismatchError, InputError
from consilience.core.locks import one_job
from consilience.core.manifests import MANIFEST, read_manifest
from consilience.core.placing import require_apart
from consilience.core.progress import log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from consilience.banks.reader import Bank
    from consilience.committee.rotation import Rotation
    from consilience.core.encoder import Encoder
    from consilience.corpora.text import Corpus, CorpusSpec

PAIRS = 2_500  # cited: design, section 6
HELD_OUT = 2_500


@one_job
def rotate(
    source: str | Path | Bank,
    *,
    into: str | Path | Bank,
    out: str | Path,
    pairs: int = PAIRS,
    held_out: int = HELD_OUT,
    corpus: CorpusSpec | str | Path | None = None,
    column: str | None = None,
    where: Mapping[str, str] | None = None,
    limit: int | None = None,
    on_fault: Literal["refuse", "drop"] = "refuse",
    seed: int = 0,
    force: bool = False,
    overwrite: bool = False,
) -> Rotation:
    """Fit the rotation of one frame into another and judge it on pairs that it didn't see.

    Args:
        source: what is rotated: a student, an exported folder, any model that ``evaluate`` opens, or a bank.
        into: whose frame it shall be in, likewise.
        out: the rotation's folder.
        pairs: rows that it is fitted to.
        held_out: other rows that it is judged on.
        corpus: texts that a model embeds; needed unless both sides are banks. It is the corpus of a side that is a
            bank.
        column: the corpus's text column.
        where: keep the corpus's rows with these values.
        limit: rows of the corpus.
        on_fault: what to do with faulty rows.
        seed: of the row samples.
        force: keep a rotation that is no better than chance; its report still calls it refused.
        overwrite: replace what is there.

    Returns:
        The rotation; the one that exists when ``out`` is exactly this job, finished.

    Raises:
        AlignmentRefusedError: too few pairs, or the rotation is no better than chance.
        FrameMismatchError: a bank of another corpus.
        InputError: a side or an option isn't valid.
        ResumeError: ``out`` is something else.

    Source: design, section 6.
    """
    from consilience.committee.consensus_report import rounded_json
    from consilience.committee.rotation import (
        judge_rotation,
        load_rotation,
        refuse_at_null,
        save_rotation,
        solve_rotation,
        unit_pairs,
    )
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import open_corpus
    from consilience.frames.sampling import split_rows

    if pairs < 1 or held_out < 10:
        raise InputError(f"rotate: expected at least 1 pair and 10 held-out rows, got {pairs} and {held_out}")
    folder = output_path(out, overwrite=overwrite)
    sides = [_open_side(source), _open_side(into)]
    texts: Corpus | None = None
    if corpus is not None:
        texts = open_corpus(corpus, column=column, where=dict(where or {}), limit=limit, on_fault=on_fault)
    elif any(side.bank is None for side in sides):
        named = next(side.label for side in sides if side.bank is None)
        raise InputError(f"rotate: {named} is a model, so texts are needed for it to embed. Give --corpus")
    identity = None if texts is None else fingerprint_corpus(texts)
    rows, fingerprint = _common_rows(sides, None if identity is None else (identity.rows, identity.fingerprint))
    if sides[0].frame == sides[1].frame:
        raise InputError(
            f"rotate: {sides[0].label} and {sides[1].label} are both in frame {sides[0].frame}: there is nothing "
            "to rotate"
        )
    job = {
        "source": sides[0].id,
        "target": sides[1].id,
        "corpus": fingerprint,
        "pairs": pairs,
        "held_out": held_out,
        "seed": seed,
        "force": force,
    }
    require_apart(folder, sides[0].label, sides[1].label, corpus)
    if is_finished(folder, kind="rotation", job=job, overwrite=overwrite):
        return load_rotation(folder)

    trained = [side.label for side in sides if side.trained_on == fingerprint]
    for label in trained:
        log(f"rotate: {label} was trained on these texts; the report is better than on others")
    split = split_rows(rows, pairs, held_out, seed=seed)
    names = (sides[0].label, sides[1].label)
    needed = [*split.fit.tolist(), *split.held_out.tolist()] if any(side.bank is None for side in sides) else []
    picked = texts.take(needed) if texts is not None else {}
    fit = unit_pairs(sides[0].rows(split.fit, picked), sides[1].rows(split.fit, picked), names=names)
    held = unit_pairs(sides[0].rows(split.held_out, picked), sides[1].rows(split.held_out, picked), names=names)
    # Judged as it is stored: in fp16.
    import numpy as np

    matrix = solve_rotation(*fit).astype(np.float16).astype(np.float32)
    report = judge_rotation(matrix, fit=fit, held_out=held, seed=seed)
    if not force:
        refuse_at_null(report, source=names[0], target=names[1])
    manifest = {
        "source": sides[0].to_json(),
        "target": sides[1].to_json(),
        "corpus": {"fingerprint": fingerprint, "rows": rows},
        "rows": {"fit": len(split.fit), "held_out": len(split.held_out)},
        "trained_on_these_texts": bool(trained),
        "report": rounded_json(report.to_json()),
    }
    return save_rotation(folder, job=job, manifest=manifest, matrix=matrix, overwrite=overwrite)


def require_bank_target(
    source: str | Path, *, into: str | Path, rotation: Path, out: Path, overwrite: bool = False
) -> None:
    """Refuse, before anything is fitted, a rotated bank that :func:`rotate_bank` couldn't write.

    Args:
        source: what would be rotated.
        into: the rotation's target.
        rotation: the rotation's folder.
        out: the rotated bank's.
        overwrite: a bank that is there may be replaced.

    Raises:
        InputError: the source isn't a bank, or ``out`` is or holds one of the others.
        ConsilienceError: ``out`` can't be written, or is something else than this bank rotated.
    """
    folder = Path(source)
    if not (folder / MANIFEST).is_file() or (bank := read_manifest(folder))["kind"] != "bank":
        raise InputError(f"--bank: {source} isn't a bank, so there are no rows to write. Leave it out")
    places = (out.resolve(), rotation.resolve())
    if places[0] == places[1] or places[1] in places[0].parents or places[0] in places[1].parents:
        raise InputError(f"--bank {out}: is, holds or lies in --out {rotation}. Choose another folder")
    require_apart(out, source, into)
    output_path(out, overwrite=overwrite)
    if overwrite or not (out / MANIFEST).is_file():
        return
    there = read_manifest(out)  # which rotation it went behind is compared when there is one
    if there["kind"] != "bank" or there.get("extra", {}).get("bank") != bank["id"]:
        require_output(out, option="--bank")


def rotate_bank(
    bank: str | Path | Bank, *, rotation: str | Path | Rotation, out: str | Path, overwrite: bool = False
) -> Bank:
    """Write a bank's rows behind a rotation, streamed; killed, the same call continues.

    Args:
        bank: in the frame that the rotation leads out of.
        rotation: a rotation, or its folder.
        out: folder of the rotated bank, in the frame that the rotation leads into.
        overwrite: replace what is there.

    Returns:
        The bank; the one that exists when ``out`` is exactly this job, finished.

    Raises:
        FrameMismatchError: the bank is in another frame.
        ResumeError: ``out`` is something else.
        StorageError: the disk is full; finished shards stay.
    """
    from consilience.banks.interchange import finished_bank
    from consilience.banks.reader import Bank
    from consilience.banks.verify import verify_bank
    from consilience.banks.writer import BankWriter, bank_plan
    from consilience.committee.rotation import Rotation, load_rotation, require_frame
    from consilience.core.progress import progress_bar

    folder = output_path(out, overwrite=overwrite)
    source = bank if isinstance(bank, Bank) else verify_bank(bank)
    turn = rotation if isinstance(rotation, Rotation) else load_rotation(rotation)
    require_frame(turn, source.frame, what=str(source.path))
    job: dict[str, Any] = {
        "rows": source.rows,
        "dimensions": int(turn.matrix.shape[1]),
        "dtype": source.manifest["dtype"],
        "corpus": source.manifest["corpus"],
        "teacher": {
            "backend": "rotated",
            "name": source.teacher.get("name"),
            "of": source.teacher,
            "rotation": turn.id,
        },
        "frame": turn.target_frame,
        "shard_rows": source.manifest["shard_rows"],
        "extra": {"bank": source.id},
        "normalise": True,
    }
    require_apart(folder, source.path, turn.path)
    finished = finished_bank(folder, bank_plan(**job), overwrite=overwrite)
    if finished is not None:
        return finished
    with BankWriter(folder, **job, overwrite=overwrite) as writer:
        missing = writer.missing()
        with progress_bar("rotate", source.rows, done=source.rows - sum(b - a for a, b in missing)) as bar:
            for start, stop in missing:
                writer.write_shard(start, turn.apply(source[start:stop]))
                bar.advance(stop - start)
        return writer.finish()


@dataclass(frozen=True)
class _Side:
    """One end of a rotation: a bank, or a model that embeds the corpus."""

    label: str
    id: str
    frame: str
    dimensions: int
    bank: Bank | None
    rows: Callable[[NDArray[np.int64], Mapping[int, str]], NDArray[np.floating]]  # embeddings of corpus rows
    trained_on: str | None = None  # fingerprint of a student's corpus

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest says of it: no path of this machine."""
        label = Path(self.label).name if Path(self.label).exists() else self.label
        return {"label": label, "id": self.id, "frame": self.frame, "dimensions": self.dimensions}


def _open_side(side: str | Path | Bank) -> _Side:
    from consilience.banks.reader import Bank, open_bank

    path = None if isinstance(side, Bank) else Path(str(side))
    if isinstance(side, Bank):
        bank: Bank | None = side
    elif path is not None and (path / MANIFEST).is_file() and read_manifest(path)["kind"] == "bank":
        bank = open_bank(path)
    else:
        bank = None
    if bank is not None:
        from consilience.banks.verify import verify_bank

        bank = verify_bank(bank)
        return _Side(str(bank.path), bank.id, bank.frame, bank.dimensions, bank, partial(_bank_rows, bank))
    from consilience.recipes.encoders import open_encoder

    encoder = open_encoder(str(side))
    read = partial(_model_rows, encoder)
    corpus = getattr(encoder, "manifest", {}).get("corpus") or {}
    trained_on = corpus.get("fingerprint")
    return _Side(str(side), _model_id(encoder), model_frame(encoder), encoder.dimensions, None, read, trained_on)


def _bank_rows(bank: Bank, rows: NDArray[np.int64], _: Mapping[int, str]) -> NDArray[np.floating]:
    return bank[rows]


def _model_rows(encoder: Encoder, rows: NDArray[np.int64], texts: Mapping[int, str]) -> NDArray[np.floating]:
    from consilience.teachers.checked import encode_checked

    return encode_checked(encoder, [texts[row] for row in rows.tolist()])


def _model_id(encoder: Encoder) -> str:
    from consilience.core.hashing import content_id

    return content_id(encoder.identity(), prefix="model-")


def model_frame(encoder: Encoder) -> str:
    """Return the frame that a model's vectors are in: a student's is its target's, any other model's is its own.

    Args:
        encoder: an open model.
    """
    from consilience.banks.manifest import teacher_frame

    identity = encoder.identity()
    frame = identity.get("frame") if identity.get("backend") == "student" else None
    return str(frame) if frame else teacher_frame(identity)


def _common_rows(sides: list[_Side], corpus: tuple[int, str] | None) -> tuple[int, str]:
    """Return the rows and the fingerprint that all of it shares.

    Raises:
        FrameMismatchError: two of them are of different corpora.
    """
    found = [(side.label, side.bank.rows, side.bank.corpus_fingerprint) for side in sides if side.bank is not None]
    if corpus is not None:
        found.append(("the corpus", *corpus))
    first = found[0]
    for other in found[1:]:
        if other[1:] != first[1:]:
            raise FrameMismatchError(
                f"rotate: {first[0]} has corpus {first[2][:12]}... ({first[1]} rows), {other[0]} has "
                f"{other[2][:12]}... "
                f"({other[1]} rows). Embed the same corpus on both sides"
            )
    return first[1], first[2]
