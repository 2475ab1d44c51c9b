"""Attach a library to a live model and take it off again; the trunk's bits are checked at both ends.

Source: design, section 7.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from consilience.adapters.handle import Handle, attached, attaching, carries_hooks
from consilience.adapters.library import AnchorLibrary, load_library
from consilience.adapters.trunk import (
    TrunkIdentity,
    find_backbone,
    identify_trunk,
    require_same_bits,
    require_trunk,
    run_probe,
)
from consilience.core.errors import InputError, TrunkMismatchError


def attach_amoe(
    model: Any,  # noqa: ANN401 - a model of any library
    library: AnchorLibrary | str | Path,
    *,
    force: bool = False,
) -> Handle:
    """Attach a library to a model; all its anchors answer from now on.

    A model carries one library at a time: a second one's anchors would read a stream that they weren't trained on.
    Masks live in the calling thread or task. The library follows the model to its device.

    Args:
        model: a student, a SentenceTransformer, a transformers encoder, or a wrapper around one.
        library: a library or its folder; anchors that never met a trunk are bound to this one.
        force: attach it to a trunk that it wasn't trained on; the handle and all its reads say so.

    Returns:
        The handle; :func:`detach_amoe` finds it again by the model.

    Raises:
        InputError: no encoder with blocks in the model, or it already carries a library.
        TrunkMismatchError: the library belongs to another trunk (and ``force`` is off, or the shapes differ), or the
            trunk doesn't reproduce its own bits on a probe batch.
        BankIntegrityError: the folder is damaged.

    Source: design, section 7.
    """
    opened = library if isinstance(library, AnchorLibrary) else load_library(library)
    backbone = find_backbone(model)
    with attaching:
        if backbone in attached:
            raise InputError(
                f"adapters: the model already carries a library ({', '.join(attached[backbone].library.names)}), "
                "and two at once would read each other's outputs. Call detach_amoe(model) first, or put the anchors "
                "into one library"
            )
        if carries_hooks(backbone):
            raise InputError(
                "adapters: the model brought anchors of its own: it is a copy of one that carried a library, or an "
                "exported folder loaded with remote code. Detach before copying, or load it without remote code"
            )
        trunk = identify_trunk(model)
        forced = _check_trunk(opened, trunk, force=force)
        bare = run_probe(backbone)
        outer = model if isinstance(model, nn.Module) else getattr(model, "module", None)
        handle = Handle(backbone, opened, trunk, forced, model=outer)
        try:
            with handle.off():
                require_same_bits(bare, run_probe(backbone), trunk, when="with all anchors off")
            with handle.all():
                adapted = run_probe(backbone)
            if not bool(torch.isfinite(adapted).all()):
                raise InputError(f"adapters: the library makes trunk {trunk.describe()} return NaN. Train it again")
        except BaseException:
            handle.release()
            raise
        # Under force, too: what never met a trunk has met this one, and isn't the forced anchors' trunk's.
        opened.bind(trunk)
        opened.met = trunk
        attached[backbone] = handle
    return handle


def detach_amoe(model: Any) -> AnchorLibrary:  # noqa: ANN401 - a model of any library
    """Take the library off a model and check that the bare trunk is what it was.

    Args:
        model: what was given to :func:`attach_amoe`, or anything around the same encoder.

    Returns:
        The library.

    Raises:
        InputError: the model carries none.
        TrunkMismatchError: the trunk changed meanwhile; see :meth:`Handle.detach`.
    """
    handle = attached.get(find_backbone(model))
    if handle is None:
        raise InputError("adapters: the model carries no library. Nothing to detach")
    handle.detach()
    return handle.library


def handle_of(model: Any) -> Handle | None:  # noqa: ANN401 - a model of any library
    """Return the handle of the library that a model carries, or None: also of models that can't carry any."""
    outer = model if isinstance(model, nn.Module) else getattr(model, "module", None)
    modules = outer.modules() if isinstance(outer, nn.Module) else ()
    return next((attached[module] for module in modules if module in attached), None)


def _check_trunk(library: AnchorLibrary, trunk: TrunkIdentity, *, force: bool) -> dict[str, str] | None:
    own = library.trunk
    shape = (library.block_count, library.width)
    if shape != (trunk.blocks, trunk.width):
        described = own.describe() if own is not None else f"of {shape[0]} blocks of width {shape[1]}"
        raise TrunkMismatchError(
            f"adapters: the library is for a trunk {described} and met trunk {trunk.describe()}, a different shape, so "
            "not even force can attach it. Train a library for this trunk"
        )
    if own is None or own.matches(trunk):
        return None
    if not force:
        require_trunk(own, trunk, what=f"adapters: the library ({', '.join(library.names)})")
    return {"anchors_of": own.describe(), "attached_to": trunk.describe()}
