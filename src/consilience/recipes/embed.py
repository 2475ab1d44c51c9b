"""Embed a corpus with one teacher into a bank.

The corpus is read and fingerprinted first, so that every fault in it is found before any compute is spent. Then it
is embedded shard by shard; a finished shard survives whatever happens, and the same call continues with the next.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from consilience.core.artefacts import discard_work, output_path
from consilience.core.errors import CorpusError, InputError, TeacherError
from consilience.core.files import write_json
from consilience.core.placing import require_apart
from consilience.core.progress import log, progress_bar

if TYPE_CHECKING:
    from consilience.banks.interchange import EmbeddingSource
    from consilience.banks.reader import Bank
    from consilience.banks.writer import BankWriter
    from consilience.core.encoder import Encoder
    from consilience.corpora.text import Corpus, CorpusSpec

COMMAND = "command.json"  # in a partial artefact: how to continue it
_EXISTING = ("bank", "parquet", "npy")  # backends whose embeddings are read, not computed


def embed(
    corpus: CorpusSpec | str | Path | Sequence[str],
    *,
    teacher: str | Encoder,
    out: str | Path,
    column: str | None = None,
    where: Mapping[str, str] | None = None,
    limit: int | None = None,
    prompt: str | None = None,
    max_length: int | None = None,
    dtype: Literal["fp16", "fp32"] = "fp16",
    shard_rows: int = 8192,
    device: str | None = None,
    on_fault: Literal["refuse", "drop"] = "refuse",
    max_characters: int = 50_000,
    trust_remote_code: bool = False,
    overwrite: bool = False,
    normalise: bool = True,
) -> Bank:
    """Embed a corpus with a teacher and store the vectors as a bank.

    The bank's bytes depend on the corpus's rows, the teacher's identity, ``dtype``, ``shard_rows`` and ``normalise``
    alone, not on how often the job was interrupted. The rows of ``bank:``, ``parquet:`` and ``npy:`` teachers are
    taken as they are.

    Args:
        corpus: a file, folder, data set, "-" for standard input, a spec, or the rows.
        teacher: a spec such as "st:NAME", "packaged:NAME", "npy:PATH", or an encoder.
        out: the bank's folder.
        column: column of the text, where the corpus has columns.
        where: keep rows whose columns equal these values.
        limit: use only the first rows.
        prompt: text that the teacher puts before each row; overrides the spec's.
        max_length: tokens after which the teacher cuts a row; overrides the spec's.
        dtype: stored type.
        shard_rows: rows a shard, the unit of resumption.
        device: where the teacher runs ("cpu", "cuda", ...).
        on_fault: refuse the corpus, or drop the row, when one is empty, undecodable or too long.
        max_characters: rows longer than this are faulty.
        trust_remote_code: let the teacher run code from its repository.
        overwrite: replace what is at ``out``; this job's own interrupted bank is still continued.
        normalise: L2-normalise the rows in fp32 before they are stored.

    Returns:
        The bank, open. If ``out`` already is this job's bank, it is verified and returned.

    Raises:
        CorpusError: the corpus is missing, empty or faulty, or changed while it was embedded.
        TeacherError: the teacher is unknown, or returned NaN, infinite, zero or misshapen vectors.
        InputError: an option is wrong, or existing embeddings have another number of rows.
        ResumeError: ``out`` is another job's.
        StorageError: the disk is full; what is finished stays and the same call continues.

    Source: design, sections 1 and 11 ("inspect the input first").
    """
    from consilience.corpora.fingerprint import fingerprint_corpus
    from consilience.corpora.text import open_corpus

    require_apart(Path(out), corpus, *_paths_of(teacher))
    folder = output_path(out, overwrite=overwrite)
    rows = open_corpus(
        corpus,
        column=column,
        where=dict(where or {}),
        limit=limit,
        on_fault=on_fault,
        max_characters=max_characters,
    )
    source = None
    if isinstance(teacher, str):  # a teacher that doesn't exist is noticed before a long corpus is read
        overrides = {"prompt": prompt, "max_length": max_length, "device": device}
        source = _existing_embeddings(teacher, overrides)
        if source is None:
            _require_teacher(teacher)
    identity = fingerprint_corpus(rows).to_json()
    if source is not None:
        from consilience.banks.interchange import import_embeddings

        if source.rows == identity["rows"]:
            _require_same_texts(str(teacher), column or "text", rows)
        bank = import_embeddings(
            source, folder, corpus=identity, dtype=dtype, shard_rows=shard_rows, overwrite=overwrite
        )
        log(f"{folder}: {bank.rows} rows x {bank.dimensions}, {dtype}, imported from {source.label}")
        return bank

    encoder = _encoder(teacher, prompt, max_length, device, trust_remote_code)
    job = {
        "rows": identity["rows"],
        "dimensions": encoder.dimensions,
        "dtype": dtype,
        "corpus": identity,
        "teacher": encoder.identity(),
        "frame": None,
        "shard_rows": shard_rows,
        "extra": None,
        "normalise": normalise,
    }
    from consilience.banks.interchange import finished_bank
    from consilience.banks.writer import BankWriter, bank_plan

    finished = finished_bank(folder, bank_plan(**job), overwrite=overwrite)
    if finished is not None:
        log(f"{folder}: already done: {finished.rows} rows x {finished.dimensions}, {dtype}")
        return finished
    with BankWriter(folder, **job, overwrite=overwrite) as writer:
        if isinstance(teacher, str) and isinstance(corpus, str | Path):
            options = {
                "column": column, "limit": limit, "prompt": prompt, "max-length": max_length, "dtype": dtype,
                "shard-rows": shard_rows, "device": device, "on-fault": on_fault, "max-characters": max_characters,
            }  # fmt: skip
            flags = {"trust-remote-code": trust_remote_code, "overwrite": overwrite, "raw": not normalise}
            command = _command(corpus, teacher, out, where or {}, options, flags)
            write_json(writer.work / COMMAND, {"command": command})
        _embed_missing(writer, rows, encoder, identity["fingerprint"])
        return writer.finish()


def _embed_missing(writer: BankWriter, corpus: Corpus, encoder: Encoder, fingerprint: str) -> None:
    """Embed the shards that aren't there yet, and make sure that the corpus is still the one fingerprinted."""
    from consilience.core.hashing import RowHasher
    from consilience.teachers.checked import encode_checked

    missing = set(writer.missing())
    total = writer.shards[-1][1]
    done = total - sum(stop - start for start, stop in missing)
    if done:
        log(f"{writer.out}: continuing, {done} of {total} rows are done")
    hasher = RowHasher()
    embedded = 0
    began = time.monotonic()
    batches = corpus.batches(writer.plan["shard_rows"])
    with progress_bar(f"embed {encoder.name}", total, done=done) as bar:
        # The texts of finished shards are read too: that is cheap, and the fingerprint covers them.
        for start, stop in writer.shards:
            texts = next(batches, [])
            if len(texts) != stop - start:
                raise _corpus_changed(writer, corpus.name)
            for text in texts:
                hasher.update(text)
            if (start, stop) in missing:
                try:
                    embeddings = encode_checked(encoder, texts)
                except TeacherError as error:
                    # Its row number counts from the shard's first row.
                    raise TeacherError(f"{corpus.name}, rows {start}:{stop}: {error}") from error
                writer.write_shard(start, embeddings)
                embedded += len(texts)
                bar.advance(len(texts), note=f"{embedded / (time.monotonic() - began):.0f} rows/s")
    if hasher.hexdigest() != fingerprint:
        raise _corpus_changed(writer, corpus.name)
    seconds = max(time.monotonic() - began, 1e-3)
    log(
        f"{writer.out}: {total} rows x {encoder.dimensions}, {writer.plan['dtype']}; "
        f"embedded {embedded} in {seconds:.1f} s ({embedded / seconds:.0f} rows/s)"
    )


def _corpus_changed(writer: BankWriter, name: str) -> CorpusError:
    """Discard the shards, any of which may be of the changed rows, and return the error to raise."""
    discard_work(writer.work)
    return CorpusError(f"{name}: the corpus changed while it was being embedded. Run the same command again")


def _require_same_texts(teacher: str, column: str, rows: Corpus) -> None:
    """Refuse embeddings of a parquet file whose own texts are in another order than the corpus's."""
    from consilience.corpora.arrow_rows import arrow_schema, is_text, read_arrow_rows

    backend, _, place = teacher.partition(":")
    path = Path(place.partition("#")[0])
    schema = arrow_schema(path, teacher, "parquet") if backend == "parquet" else None
    if schema is None or schema.names.count(column) != 1 or not is_text(schema.field(column).type):
        return
    texts = (text for batch in rows.batches(1024) for text in batch)
    stored = read_arrow_rows(path, teacher, "parquet", [column])
    for row, ((_, (own,)), text) in enumerate(zip(stored, texts, strict=False)):
        if own is not None and own.strip() != text.strip():
            raise InputError(
                f"{teacher}: row {row} was made of {own[:60]!r}, the corpus has {text[:60]!r} there. Give the file "
                "itself as the corpus, or bring both into one order"
            )


def _existing_embeddings(teacher: str, overrides: Mapping[str, Any]) -> EmbeddingSource | None:
    """Open a spec that names embeddings instead of a model; None for all other specs."""
    backend, _, rest = teacher.partition(":")
    if backend not in _EXISTING:
        return None
    given = [name for name, value in overrides.items() if value is not None]
    if given or not rest or "?" in rest:
        what = ", ".join(given) or "options"
        raise InputError(f"{teacher}: {what} don't apply to embeddings that exist already. Write {backend}:PATH")
    from consilience.banks import interchange

    if backend == "bank":
        return interchange.open_bank_source(Path(rest))
    if backend == "npy":
        return interchange.open_npy(Path(rest))
    path, _, column = rest.partition("#")
    return interchange.open_parquet(Path(path), column or None)


def _paths_of(teacher: object) -> list[str]:
    """Return the path that a spec names, if it names one."""
    if not isinstance(teacher, str):
        return []
    name = teacher.partition(":")[2]
    return [name, name.partition("?")[0].partition("#")[0]]


def _require_teacher(teacher: str) -> None:
    """Refuse a malformed spec and an unknown packaged model, without loading anything."""
    from consilience.teachers.packaged import find_packaged
    from consilience.teachers.spec import parse_teacher_spec

    spec = parse_teacher_spec(teacher)
    if spec.backend == "packaged":
        find_packaged(spec.name)


def _encoder(
    teacher: str | Encoder, prompt: str | None, max_length: int | None, device: str | None, trust_remote_code: bool
) -> Encoder:
    overrides: dict[str, Any] = {"prompt": prompt, "max_length": max_length, "device": device}
    given = {name: value for name, value in overrides.items() if value is not None}
    if isinstance(teacher, str):
        from consilience.teachers.registry import load_teacher
        from consilience.teachers.spec import parse_teacher_spec

        return load_teacher(parse_teacher_spec(teacher, **given), trust_remote_code=trust_remote_code)
    if given:
        raise TeacherError(f"{', '.join(given)} can't be set on an encoder that is loaded already. Set it when loading")
    return teacher


def _command(
    corpus: str | Path,
    teacher: str,
    out: str | Path,
    where: Mapping[str, str],
    options: Mapping[str, Any],
    flags: Mapping[str, bool],
) -> str:
    """Return the command line that continues the job."""
    words = ["consilience", "embed", str(corpus), "--teacher", teacher, "--out", str(out)]
    for name, value in where.items():
        words += ["--where", f"{name}={value}"]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    words += [f"--{name}" for name, value in flags.items() if value]
    return shlex.join(words)
