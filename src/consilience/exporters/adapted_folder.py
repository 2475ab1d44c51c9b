"""Export of a student with its adapter library: one Hugging Face folder, and ONNX with the mask baked in or an input.

The folder without remote code is the bare student: ``AutoModel`` and ``SentenceTransformer`` load stock classes. With
``trust_remote_code=True`` two small files in it (torch only) put the anchors on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.adapters.attach import attach_amoe
from consilience.adapters.library import AnchorLibrary
from consilience.adapters.masks import ALL, OFF, Mask
from consilience.core.artefacts import PLAN, begin_artefact, discard_work, finish_artefact, is_finished
from consilience.core.errors import InputError
from consilience.core.files import atomic_write, read_json, write_json
from consilience.core.hashing import content_id
from consilience.core.manifests import verify_artefact
from consilience.core.progress import log
from consilience.exporters.adapted_onnx import embed_with_adapted_onnx, write_adapted_onnx
from consilience.exporters.hub_adapters import HALVES, trunk_digest
from consilience.exporters.huggingface import write_backbone
from consilience.exporters.parity import PROBE, ParityError, compare_vectors
from consilience.exporters.sentence_transformers import write_modules
from consilience.exporters.student_parts import StudentParts, student_parts

if TYPE_CHECKING:
    import torch

    from consilience.adapters.handle import Handle
    from consilience.students.text import StudentEncoder

FORMATS = ("huggingface", "onnx")
MASK_INPUT = "input"
ADAPTERS = "adapters.safetensors"
_CODE, _ATOMS, _CLASS = "modeling_adapted.py", "consilience_atoms.py", "AdaptedModel"
_CLASS_SOURCE = '''

from transformers import {stock}  # noqa: E402


class {name}(HubAdapters, {stock}):
    """The trunk with its adapters."""
'''
_IMPORT = "from consilience.adapters.atoms import"


def export_adapted(
    student: StudentEncoder,
    library: AnchorLibrary,
    out: Path,
    *,
    formats: Sequence[str] = FORMATS,
    mask: str = MASK_INPUT,
    force: bool = False,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a student with its library as a folder that other software loads.

    Args:
        student: as loaded, without a library on it.
        library: trained on it.
        out: the folder; appears complete or not at all.
        formats: "huggingface", "onnx", or both.
        mask: of the ONNX file: "input" adds an input ``anchors`` (float, one number an anchor, 1 answers, 0 doesn't);
            "all", "off", or names separated by commas are baked in.
        force: export a library of another trunk; manifest and config say so.
        overwrite: replace an existing folder.

    Returns:
        The artefact's manifest (kind "export"); ``parity`` holds the differences found.

    Raises:
        TrunkMismatchError: the library belongs to another trunk.
        InputError: an unknown format or name.
        ParityError: the Hugging Face form isn't bit-identical, or ONNX differs by more than 1e-4.
        MissingExtraError: a library of a format isn't installed.

    Source: design, section 7; issue's ecosystem item.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise InputError(
            f"adapt export: expected formats among {', '.join(FORMATS)}, got {', '.join(unknown) or 'none'}. Change "
            "--formats"
        )
    parts = student_parts(student)
    handle = attach_amoe(student, library, force=force)
    try:
        baked = None if mask == MASK_INPUT else parse_mask(handle, mask)
        plan = {
            "recipe": "adapt export",
            "student": student.manifest.get("id"),
            "library": library.fingerprint(),
            "formats": sorted(formats),
            "mask": mask,
            "forced": handle.forced,
        }
        if is_finished(out, kind="export", job=content_id(plan), overwrite=overwrite):
            log(f"{out}: already done")
            return verify_artefact(out)
        # Deterministic and quick: a leftover is dropped, not continued.
        work, _ = begin_artefact(out, plan, overwrite=overwrite, resume=False)
        try:
            parity = _write(parts, student, handle, work, formats, baked)
            files = sorted(path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_file())
            return finish_artefact(
                out,
                kind="export",
                manifest={
                    "job": content_id(plan),
                    "student": student.manifest.get("id"),
                    "adapters": {"names": list(library.names), "mask": mask, "forced": handle.forced},
                    "parity": parity,
                },
                files=[name for name in files if name != PLAN],
            )
        except BaseException:
            discard_work(work)
            raise
    finally:
        handle.detach()


def parse_mask(handle: Handle, words: str) -> Mask:
    """Return the mask that words stand for: "all", "off", or names separated by commas.

    Raises:
        InputError: an unknown name.
    """
    if words in ("all", "off"):
        return ALL if words == "all" else OFF
    return handle.make_mask("some", *(word for word in words.split(",") if word))


def _write(
    parts: StudentParts,
    student: StudentEncoder,
    handle: Handle,
    work: Path,
    formats: Sequence[str],
    baked: Mask | None,
) -> dict[str, Any]:
    """Write the forms and compare each with the live model."""
    library = handle.library
    settings = hub_settings(library, parts, handle.forced)
    tensors = {key: value.detach().cpu().float().contiguous() for key, value in library.state_dict().items()}
    parity: dict[str, Any] = {}
    write_backbone(parts, work)
    if "huggingface" in formats:
        write_modules(parts, work)
        _write_hub_files(parts, work, settings, tensors)
        parity["huggingface"] = _check_hub(student, handle, work)
    if "onnx" in formats:
        with handle.off():
            write_adapted_onnx(parts, tensors, settings, work, None if baked is None else _names(baked, library))
        masks = handle.table_masks() if baked is None else [baked]
        found = {}
        for mask in (mask for mask in masks if mask.kind != "solo"):
            vectors = embed_with_adapted_onnx(
                work, PROBE, None if baked is not None else [float(n in _names(mask, library)) for n in library.names]
            )
            with handle.under(mask):
                found[mask.label] = compare_vectors(f"onnx, {mask.label},", student.encode(PROBE), vectors)
        parity["onnx"] = found
    if "huggingface" not in formats:  # only the tokenizer belongs to the ONNX file
        (work / "model.safetensors").unlink()
        (work / "config.json").unlink()
    return parity


def _names(mask: Mask, library: AnchorLibrary) -> tuple[str, ...]:
    return library.names if mask.kind == "all" else mask.names


def hub_settings(library: AnchorLibrary, parts: StudentParts, forced: dict[str, str] | None) -> dict[str, Any]:
    """Return what config.json says of the adapters."""
    import torch

    shapes = {}
    for name in library.names:
        config = library.anchor(name).config.to_json()
        shapes[name] = {key: config[key] for key in ("slots", "slot_width", "temperature")}
    return {
        "names": list(library.names),
        "temperature": library.temperature,
        "shapes": shapes,
        "trunk_digests": {
            str(dtype): trunk_digest(parts.backbone.state_dict(), dtype) for dtype in (torch.float32, *HALVES)
        },
        "forced": forced,
    }


def _write_hub_files(
    parts: StudentParts, work: Path, settings: dict[str, Any], tensors: dict[str, torch.Tensor]
) -> None:
    """Write the adapters, the two files of code, and the entry in config.json that leads to them."""
    from safetensors.torch import save

    from consilience.adapters import atoms
    from consilience.exporters import hub_adapters

    content = save(tensors, metadata={"format": "pt"})
    with atomic_write(work / ADAPTERS) as stream:
        stream.write(content)
    stock = type(parts.backbone).__name__
    source = Path(hub_adapters.__file__).read_text(encoding="utf-8")
    source = source.replace(_IMPORT, f"from .{Path(_ATOMS).stem} import")
    source += _CLASS_SOURCE.format(stock=stock, name=_CLASS)
    for name, text in ((_CODE, source), (_ATOMS, Path(atoms.__file__).read_text(encoding="utf-8"))):
        with atomic_write(work / name, "w") as stream:
            stream.write(text)
    config = read_json(work / "config.json")
    config["auto_map"] = {"AutoModel": f"{Path(_CODE).stem}.{_CLASS}"}
    config["consilience_adapters"] = {**settings, "sha256": hashlib.sha256(content).hexdigest()}
    write_json(work / "config.json", config)


def _check_hub(student: StudentEncoder, handle: Handle, work: Path) -> dict[str, Any]:
    """Load the folder as others do and require the same bits, with remote code and without.

    Raises:
        ParityError: a bit differs.
    """
    import torch
    from transformers import AutoModel

    encoded = student.tokenizer.encode_batch([text for text in PROBE if len(text) < 200])
    rows = [row.ids[: student.max_length] for row in encoded]
    # The only code that this runs was written into this folder a moment ago, from this package's own source.
    adapted = AutoModel.from_pretrained(work, trust_remote_code=True).eval()
    own = student.module.backbone
    bare = AutoModel.from_pretrained(work, trust_remote_code=False).eval()
    attention = own.config._attn_implementation
    for model in (adapted, bare):
        model.set_attn_implementation(attention)
    masks = [mask for mask in handle.table_masks() if mask.kind != "solo"]
    with torch.no_grad():
        for ids in (torch.tensor([row]) for row in rows):
            given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            for mask in masks:
                adapted.set_anchors(*_names(mask, handle.library))
                with handle.under(mask):
                    expected = own(**given).last_hidden_state
                _require_equal(expected, adapted(**given).last_hidden_state, mask.label)
            with handle.off():
                _require_equal(own(**given).last_hidden_state, bare(**given).last_hidden_state, "without remote code")
    return {"bit_identical": [*(mask.label for mask in masks), "without remote code"], "probe_texts": len(rows)}


def _require_equal(expected: torch.Tensor, found: torch.Tensor, label: str) -> None:
    if not np.array_equal(expected.numpy(), found.numpy()):
        difference = float((expected - found).abs().max())
        raise ParityError(
            f"adapt export: the Hugging Face folder ({label}) differs from the student by {difference:.2e}, the same "
            "bits expected. Nothing was exported; report this as a bug"
        )
