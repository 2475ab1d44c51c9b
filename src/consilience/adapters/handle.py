"""The handle of an attached library: who answers, what it reads, how it comes off; and the hooks that do the work.

The anchors work in forward hooks on the blocks' outputs. Nothing of the model is copied, replaced or saved: with all
anchors off a hook hands the block's own output through, and ``save_pretrained`` writes the bare trunk.

Source: design, section 7.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from consilience.adapters.library import AnchorLibrary
from consilience.adapters.masks import ALL, OFF, Mask, Switch, current_mask, current_recorder, new_owner
from consilience.adapters.reads import AmplitudeRecorder
from consilience.adapters.trunk import (
    TrunkIdentity,
    evaluation_mode,
    find_blocks,
    identify_trunk,
    require_same_bits,
    run_probe,
)
from consilience.core.errors import InputError, TrunkMismatchError

attached: weakref.WeakKeyDictionary[nn.Module, Handle] = weakref.WeakKeyDictionary()  # by encoder
attaching = threading.RLock()
_MARK = "consilience_adapters"  # on our hooks, to know them again on a copied model


class Handle:
    """A library on a live model: who answers, what it reads, how to take it off.

    Made by :func:`~consilience.adapters.attach.attach_amoe`. Every mask method holds from the call on, in this thread
    or task only; used in a ``with`` statement it holds inside. Without a mask all anchors answer.

    Attributes:
        library: the library; anchors may be added to and removed from it while it is attached.
        trunk: identity of the model's trunk.
        forced: {"anchors_of", "attached_to"} when the library was forced onto a foreign trunk, else None.
    """

    def __init__(
        self,
        backbone: nn.Module,
        library: AnchorLibrary,
        trunk: TrunkIdentity,
        forced: dict[str, str] | None,
        *,
        model: nn.Module | None = None,
    ) -> None:
        self.library = library
        self.trunk = trunk
        self.forced = forced
        self._backbone = weakref.ref(backbone)
        self._model = weakref.ref(model if model is not None else backbone)
        self._owner = new_owner()
        self.turns = threading.Lock()  # of a library's own ``encode``, whose tokenizer each call switches
        self._hooks: list[RemovableHandle] = [
            block.register_forward_hook(self._block_hook(index)) for index, block in enumerate(find_blocks(backbone))
        ]
        self._hooks.append(backbone.register_forward_pre_hook(self._mask_hook(backbone), with_kwargs=True))

    @property
    def attached(self) -> bool:
        """Whether it still is on the model."""
        return bool(self._hooks)

    @property
    def mask_here(self) -> Mask:
        """What holds in this thread or task."""
        return current_mask.get(self._owner) or ALL

    def all(self) -> Switch:
        """Let all anchors answer under the dispatch."""
        return self._switch(ALL)

    def off(self) -> Switch:
        """Let none answer: the bare trunk, bit for bit."""
        return self._switch(OFF)

    def only(self, name: str) -> Switch:
        """Let one anchor answer under the dispatch of all: a damped member. See :meth:`solo`.

        Raises:
            InputError: there is none of that name.
        """
        return self.mask(name)

    def mask(self, *names: str) -> Switch:
        """Let these anchors answer under the dispatch of all; no budget is handed on, so they read damped.

        Raises:
            InputError: an unknown name, or none.

        Source: design, section 7.
        """
        return self._switch(self.make_mask("some", *names))

    def solo(self, name: str) -> Switch:
        """Let one anchor answer alone, without dispatch: how it is trained, and what margins are quoted against.

        Raises:
            InputError: there is none of that name.
        """
        return self._switch(self.make_mask("solo", name))

    def under(self, mask: Mask) -> Switch:
        """Let a mask made by :meth:`make_mask` hold."""
        return self._switch(mask)

    def make_mask(self, kind: Literal["all", "some", "solo", "off"], *names: str) -> Mask:
        """Return a mask without switching to it, for :meth:`under` and for rows of a table.

        Args:
            kind: as in :class:`~consilience.adapters.masks.Mask`.
            names: the anchors, for "some" (at least one) and "solo" (exactly one).

        Raises:
            InputError: an unknown name, or a number of names that doesn't fit the kind.
        """
        if kind in ("all", "off"):
            if names:
                raise InputError(f"adapters: a mask {kind} takes no names, got {', '.join(names)}. Leave them out")
            return ALL if kind == "all" else OFF
        chosen = self.library.require_names(names)
        if kind == "solo" and len(chosen) != 1:
            raise InputError(f"adapters: expected one name for solo, got {', '.join(names)}. Run each on its own")
        return Mask(kind, chosen, len(self.library.names))

    def table_masks(self) -> list[Mask]:
        """Return the rows of a mask table: off, each member damped, each member alone, all."""
        names = self.library.names
        damped = [self.make_mask("some", name) for name in names]
        return [OFF, *damped, *(self.make_mask("solo", name) for name in names), ALL]

    @contextmanager
    def record(self) -> Iterator[AmplitudeRecorder]:
        """Read the amplitudes of what this thread encodes inside the block; ``.result()`` returns the means.

        With ``off()`` the trunk stays bare and its states are still compared with the keys. A solo anchor has no
        dispatch, and isn't recorded.

        Raises:
            InputError: the library has no anchor, or was taken off.
        """
        self._require_attached()
        if not self.library.names:
            raise InputError("reads: expected a library with anchors, got an empty one. Add an anchor")
        recorder = AmplitudeRecorder(self.library.names, self.library.block_count, forced=self.forced)
        before = current_recorder.get(self._owner)
        current_recorder.put(self._owner, recorder)
        try:
            yield recorder
        finally:
            current_recorder.put(self._owner, before)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Freeze the model, head included, and switch its dropout off while the block runs; both are put back.

        Gradients flow through the trunk to the anchors of earlier blocks, and none reach its weights.
        """
        self._require_attached()
        model = self._model() or self._require_backbone()
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            parameter.requires_grad_(False)
        try:
            with evaluation_mode(model):
                yield
        finally:
            for parameter in trained:
                parameter.requires_grad_(True)

    def describe(self, mask: Mask | None = None) -> dict[str, Any]:
        """Return, as JSON, what decides the adapted vectors beside the model: for identities, manifests and tables.

        Args:
            mask: who answers; None for what holds here.
        """
        chosen = mask or self.mask_here
        if chosen.kind == "off":
            return {"mask": chosen.to_json()}
        return {
            "mask": chosen.to_json(),
            "library": self.library.fingerprint(),
            "names": list(self.library.names),
            "forced": self.forced,
        }

    def detach(self) -> None:
        """Take the library off and check that the bare trunk is what it was.

        Raises:
            TrunkMismatchError: the trunk's weights changed while the library was attached, or its outputs differ from
                those with all anchors off. The library is off in either case.
        """
        if not self._hooks:
            return
        backbone = self._require_backbone()
        with attaching:
            with self.off():
                masked = run_probe(backbone)
            self.release()
            attached.pop(backbone, None)
        require_same_bits(masked, run_probe(backbone), self.trunk, when="after it was detached")
        found = identify_trunk(backbone, name=self.trunk.name)
        if not self.trunk.matches(found):
            raise TrunkMismatchError(
                f"adapters: trunk {self.trunk.describe()} changed while the library was attached; it now is "
                f"{found.describe()}. The library is off. Train adapters under handle.training(): it freezes the trunk"
            )

    def release(self) -> None:
        """Take the hooks off, unchecked; see :meth:`detach`."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.library.met = None

    def _switch(self, mask: Mask) -> Switch:
        self._require_attached()
        return Switch(self._owner, mask)

    def _require_attached(self) -> None:
        if not self._hooks:
            raise InputError("adapters: this library was detached, so a mask would do nothing. Attach it again")

    def _require_backbone(self) -> nn.Module:
        backbone = self._backbone()
        if backbone is None:
            raise InputError("adapters: the model of this handle is gone. Attach the library to a live model")
        return backbone

    def _block_hook(self, index: int) -> Callable[[nn.Module, Any, Any], Any]:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:  # noqa: ANN401
            mask = self.mask_here
            recorder = current_recorder.get(self._owner)
            if not self.library.names or (mask.kind == "off" and recorder is None):
                return None  # the block's own output, untouched
            x = output[0] if isinstance(output, tuple) else output
            if not isinstance(x, torch.Tensor) or x.shape[-1] != self.library.width:
                found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
                raise InputError(
                    f"adapters: expected token states of width {self.library.width} from a {type(module).__name__}, "
                    f"got {found}. This encoder can't be adapted"
                )
            _refuse_recomputation()
            added = self._added(index, x, mask, recorder)
            if added is None:
                return None
            adapted = x + added.to(x.dtype)
            return (adapted, *output[1:]) if isinstance(output, tuple) else adapted

        hook.__dict__[_MARK] = True
        return hook

    def _added(
        self, index: int, x: torch.Tensor, mask: Mask, recorder: AmplitudeRecorder | None
    ) -> torch.Tensor | None:
        """Return what the anchors add to a block's output, or None."""
        library = self.library
        if library.keys.device != x.device:  # the model moved (accelerate, .to): its library follows
            with attaching, torch.inference_mode(False):  # its weights are to be trained later, perhaps
                library.to(x.device)
        same = x.dtype == library.keys.dtype or torch.is_autocast_enabled(x.device.type)
        states = x if same else x.to(library.keys.dtype)
        if mask.kind == "solo":
            return library.solo(index, states, mask.names[0])
        shares = library.amplitudes(states)
        if recorder is not None:
            recorder.add(index, shares, mask)
        if mask.kind == "off":
            return None
        return library.dispatched(index, states, mask.names or library.names, shares)

    def _mask_hook(self, backbone: nn.Module) -> Callable[[nn.Module, Any, Any], None]:
        names = [name for name in inspect.signature(type(backbone).forward).parameters if name != "self"]
        place = names.index("attention_mask") if "attention_mask" in names else None

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            recorder = current_recorder.get(self._owner)
            if recorder is None:
                return
            given = kwargs.get("attention_mask")
            if given is None and place is not None and place < len(args):
                given = args[place]
            recorder.in_flight.real = given if isinstance(given, torch.Tensor) else None

        return hook


def carries_hooks(backbone: nn.Module) -> bool:
    """Tell whether hooks of a library are on an encoder, its own or those of the model that it was copied from."""
    hooks = find_blocks(backbone)[0]._forward_hooks.values()
    return any(_MARK in getattr(hook, "__dict__", {}) for hook in hooks)


def _refuse_recomputation() -> None:
    """Refuse gradient checkpointing that replays hooks: in the backward pass the mask may be another one by then."""
    if torch._C._current_graph_task_id() != -1:
        raise InputError(
            "adapters: gradient checkpointing replays the anchors in the backward pass, where masks don't hold. Switch "
            "it off (model.gradient_checkpointing_disable())"
        )
