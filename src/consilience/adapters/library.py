"""An adapter library: anchors by name, the keys of their dispatch, and the folder that holds them (kind "adapters")."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from consilience.adapters.anchor import Anchor, AnchorConfig, mix
from consilience.adapters.dispatch import DEFAULT_TEMPERATURE, amplitudes, require_temperature
from consilience.adapters.trunk import TrunkIdentity, require_trunk
from consilience.core.artefacts import begin_artefact, finish_artefact
from consilience.core.errors import BankIntegrityError, InputError, ShapeError
from consilience.core.files import atomic_write
from consilience.core.hashing import canonical_json
from consilience.core.manifests import partial_path, verify_artefact
from consilience.core.seeds import seed_from_name

KIND = "adapters"
FILE = "adapters.safetensors"
_METADATA = "consilience"  # one entry: safetensors doesn't keep the order of several
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_RESERVED = frozenset({*dir(nn.ModuleDict), "off", "all", "solo", "dispatch", "input"})


class AnchorLibrary(nn.Module):
    """Anchors on one trunk under one dispatch.

    It isn't part of the model that it's attached to: the model's weights, parameter count and saved files stay the
    trunk's.

    Args:
        width: d, of the trunk's token states.
        blocks: number of the trunk's blocks.
        temperature: T of the dispatch; below .1 a line on standard error points at the sweep.

    Attributes:
        anchors: by name, in the order of their keys.
        keys: C, (A, d), normalised where they are used; :meth:`add` and :meth:`remove` replace the parameter.
        provenance: by anchor's name, and "keys" for the keys: how they were trained, as JSON (recipe, data fingerprint,
            seeds).
        keys_trunk: the trunk that the keys were aligned on, None before that.
        met: the trunk that the library is on, forced or not, and that a new anchor is therefore bound to; else None.

    Raises:
        InputError: a size below one, or a temperature that isn't above 0.

    Source: design, section 7.

    Example:
        >>> library = AnchorLibrary(512, 12)
        >>> for name in ("equiv", "simplify", "paraphrase"):
        ...     _ = library.add(name)
        >>> library.keys.numel(), library.parameter_count
        (1536, 4919100)
    """

    def __init__(self, width: int, blocks: int, *, temperature: float = DEFAULT_TEMPERATURE) -> None:
        super().__init__()
        if min(width, blocks) < 1:
            raise InputError(f"adapters: expected a width and blocks of at least 1, got {width} and {blocks}")
        self.width = width
        self.block_count = blocks
        self._temperature = require_temperature(temperature)
        self.anchors = nn.ModuleDict()
        self.keys = nn.Parameter(torch.empty(0, width))
        self.provenance: dict[str, dict[str, Any]] = {}
        self.keys_trunk: TrunkIdentity | None = None
        self.met: TrunkIdentity | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The anchors' names, in the order of the keys."""
        return tuple(self.anchors)

    @property
    def temperature(self) -> float:
        """T of the dispatch; setting one below .1 says so on standard error."""
        return self._temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        self._temperature = require_temperature(value)

    @property
    def trunk(self) -> TrunkIdentity | None:
        """The trunk that the anchors were trained on, None while none was attached."""
        return next((anchor.trunk for anchor in self._each() if anchor.trunk is not None), None)

    @property
    def parameter_count(self) -> int:
        """Number of parameters, the keys' included."""
        return sum(parameter.numel() for parameter in self.parameters())

    def anchor(self, name: str) -> Anchor:
        """Return an anchor.

        Raises:
            InputError: there is none of that name.
        """
        self.require_names([name])
        found = self.anchors[name]
        if not isinstance(found, Anchor):
            raise InputError(f"adapters: {name} is a {type(found).__name__}, not an anchor. Use add()")
        return found

    def require_names(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names, each once and in the library's order.

        Raises:
            InputError: an unknown name, or none.
        """
        wanted = list(names)
        unknown = [name for name in wanted if not isinstance(name, str) or name not in self.anchors]
        if unknown or not wanted:
            raise InputError(
                f"adapters: expected names among {', '.join(self.names) or 'none'}, got "
                f"{', '.join(map(str, unknown)) or 'none'}. Name anchors of this library"
            )
        return tuple(name for name in self.names if name in wanted)

    def add(
        self,
        name: str,
        anchor: Anchor | None = None,
        *,
        key: torch.Tensor | None = None,
        seed: int = 0,
        config: AnchorConfig | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Anchor:
        """Add an anchor under a key of its own. Make optimisers afterwards: the keys become a new parameter.

        Args:
            name: lower-case letters, digits, "-" and "_".
            anchor: a trained one, or None for a new one.
            key: (d,), or None for a random direction of this name and seed.
            seed: of a new anchor and a random key.
            config: shape of a new anchor.
            provenance: how it was trained, as JSON.

        Returns:
            The anchor.

        Raises:
            InputError: the name is taken or isn't one.
            ShapeError: anchor or key don't fit the trunk.
            TrunkMismatchError: the anchor was trained on another trunk than the library's.
        """
        require_name(name, taken=self.names)
        number = seed_from_name(f"anchor/{name}", seed)
        added = anchor or Anchor(self.width, self.block_count, config, seed=number)
        if (added.width, len(added.blocks)) != (self.width, self.block_count):
            raise ShapeError(
                f"adapters: expected anchors of {self.block_count} blocks of width {self.width}, got {name} with "
                f"{len(added.blocks)} of {added.width}. It belongs to another trunk"
            )
        if self.trunk is not None and added.trunk is not None:
            require_trunk(added.trunk, self.trunk, what=f"anchor {name}")
        if key is None:
            generator = torch.Generator().manual_seed(number)
            key = nn.functional.normalize(torch.randn(self.width, generator=generator), dim=0)
        if key.shape != (self.width,):
            raise ShapeError(f"adapters: expected a key of {self.width} numbers, got shape {tuple(key.shape)}")
        added.trunk = added.trunk or self.met
        added.to(self.keys.device)
        self.anchors[name] = added
        self._set_keys(torch.cat([self.keys.detach(), key.detach().to(self.keys)[None]]))
        if provenance is not None:
            self.provenance[name] = dict(provenance)
        return added

    def remove(self, name: str) -> Anchor:
        """Take an anchor and its key out and return it.

        Raises:
            InputError: there is none of that name.
        """
        anchor = self.anchor(name)
        keep = [row for row, other in enumerate(self.names) if other != name]
        del self.anchors[name]
        self._set_keys(self.keys.detach()[keep])
        self.provenance.pop(name, None)
        return anchor

    def subset(self, names: Sequence[str]) -> AnchorLibrary:
        """Return a library of some anchors, shared with this one, and copies of their keys.

        Its budget is the members' alone: an anchor that isn't in a library doesn't damp it, one that is masked does.

        Args:
            names: of this library's anchors; [] gives an empty library.
        """
        chosen = self.require_names(names) if names else ()
        part = AnchorLibrary(self.width, self.block_count)
        part._temperature = self._temperature
        part.to(self.keys)
        for name in chosen:
            key = self.keys.detach()[self.names.index(name)]
            part.add(name, self.anchor(name), key=key, provenance=self.provenance.get(name))
        if "keys" in self.provenance:
            part.provenance["keys"] = dict(self.provenance["keys"])
        part.keys_trunk = self.keys_trunk
        return part

    def parameters_of(self, name: str) -> list[nn.Parameter]:
        """Return an anchor's parameters; "keys" names the keys.

        Raises:
            InputError: there is none of that name.
        """
        return [self.keys] if name == "keys" else list(self.anchor(name).parameters())

    def trainable(self, *names: str, keys: bool = False) -> list[nn.Parameter]:
        """Let these anchors receive gradients and no others.

        Args:
            names: anchors; none of them freezes all.
            keys: whether the keys are trained, too.

        Returns:
            What is trained, for the optimiser.

        Raises:
            InputError: there is none of that name.
        """
        chosen = self.require_names(names) if names else ()
        self.requires_grad_(False)
        trained = [parameter for name in chosen for parameter in self.parameters_of(name)]
        trained += [self.keys] if keys else []
        for parameter in trained:
            parameter.requires_grad_(True)
        return trained

    def amplitudes(self, x: torch.Tensor) -> torch.Tensor:
        """Return every anchor's amplitude for every token; see :func:`consilience.adapters.dispatch.amplitudes`.

        Args:
            x: (..., d), a block's output.

        Returns:
            (..., A).
        """
        return amplitudes(x, self.keys, self._temperature)

    def dispatched(self, index: int, x: torch.Tensor, names: Sequence[str], shares: torch.Tensor) -> torch.Tensor:
        """Return what the named anchors add to a block's output under the dispatch.

        Args:
            index: number of the block.
            x: (..., d), its output.
            names: the anchors that answer.
            shares: (..., A), from :meth:`amplitudes`: of all anchors, whoever answers.
        """
        chosen = self.require_names(names)
        rows = [self.names.index(name) for name in chosen]
        return mix([self.anchor(name).block(index) for name in chosen], x, [shares[..., row] for row in rows])

    def solo(self, index: int, x: torch.Tensor, name: str) -> torch.Tensor:
        """Return what one anchor adds to a block's output on its own, undamped.

        Args:
            index: number of the block.
            x: (..., d), its output.
            name: the anchor.
        """
        return mix([self.anchor(name).block(index)], x)

    def fingerprint(self) -> str:
        """Return SHA-256 (hex) of names, temperature and weights: what decides the outputs on a given trunk."""
        shape = [self.names, self.temperature, [self.anchor(name).config.to_json() for name in self.names]]
        digest = hashlib.sha256(canonical_json(shape))
        for key, value in sorted(self.state_dict().items()):
            digest.update(
                key.encode() + value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            )
        return digest.hexdigest()

    def bind(self, trunk: TrunkIdentity) -> None:
        """Note the trunk of anchors that haven't met one."""
        for anchor in self._each():
            anchor.trunk = anchor.trunk or trunk

    def _each(self) -> list[Anchor]:
        return [self.anchor(name) for name in self.names]

    def _set_keys(self, keys: torch.Tensor) -> None:
        self.keys = nn.Parameter(keys.clone(), requires_grad=self.keys.requires_grad)


def require_name(name: str, *, taken: Sequence[str] = ()) -> None:
    """Refuse what can't be an anchor's name.

    Args:
        name: lower-case letters, digits, "-" and "_", beginning with a letter.
        taken: names that others have.

    Raises:
        InputError: names the rule and what is taken.
    """
    if not _NAME.fullmatch(name) or name in _RESERVED or name in taken:
        raise InputError(
            f"adapters: expected a new name of lower-case letters, digits, - and _ (not off, all, keys, ...), got "
            f"{name!r}; taken: {', '.join(taken) or 'none'}. Choose another name"
        )


def save_library(
    library: AnchorLibrary,
    out: str | Path,
    *,
    job: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    files: Sequence[str] = (),
) -> dict[str, Any]:
    """Write a library: complete or absent, the same bytes for the same library.

    Args:
        library: bound to its trunk (it was attached, or its anchors came from such a library).
        out: final folder.
        job: what identifies the command that made it.
        overwrite: replace an artefact that is there.
        files: more files of the artefact, already in its working folder: a log, a report.

    Returns:
        The manifest.

    Raises:
        InputError: no anchor, no trunk, or weights that aren't finite.
        ResumeError: ``out`` exists.
        StorageError: the file system refused.
    """
    from safetensors.torch import save

    trunk, folder = library.trunk, Path(out)
    if trunk is None or not library.names:
        raise InputError(
            f"{out}: expected a library with anchors that met their trunk. Add anchors and attach it first"
        )
    tensors = {key: value.detach().cpu().float().contiguous() for key, value in library.state_dict().items()}
    for anchor, name in ((library.anchor(name), name) for name in library.names):
        if anchor.trunk is not None:
            require_trunk(
                trunk, anchor.trunk, what=f"{out}: the library ({library.names[0]}), unlike its anchor {name},"
            )
    bad = [key for key, value in tensors.items() if not bool(torch.isfinite(value).all())]
    if bad:
        raise InputError(f"{out}: expected finite weights, {bad[0]} has others. The training diverged: lower its rate")
    body: dict[str, Any] = {
        "job": dict(job or {}),
        "trunk": trunk.to_json(),
        "keys_trunk": library.keys_trunk.to_json() if library.keys_trunk is not None else None,
        "width": library.width,
        "blocks": library.block_count,
        "temperature": library.temperature,
        "anchors": [
            {"name": name, "config": library.anchor(name).config.to_json(), "provenance": library.provenance.get(name)}
            for name in library.names
        ],
        "keys": library.provenance.get("keys"),
        "parameters": library.parameter_count,
    }
    begin_artefact(folder, {"kind": KIND, "job": body["job"]}, overwrite=overwrite)
    with atomic_write(partial_path(folder) / FILE) as stream:
        stream.write(save(tensors, metadata={_METADATA: canonical_json(body).decode()}))
    return finish_artefact(folder, kind=KIND, manifest=body, files=[FILE, *files])


@torch.inference_mode(False)
def load_library(path: str | Path) -> AnchorLibrary:
    """Open a library, after its checksums.

    Args:
        path: its folder.

    Raises:
        InputError: it isn't a library.
        BankIntegrityError: it's truncated or was edited: a checksum, a name, a shape, a number that isn't finite.
    """
    from safetensors import SafetensorError, safe_open

    folder = Path(path)
    manifest = verify_artefact(folder, KIND)
    weights = folder / FILE
    if FILE not in manifest["files"]:
        raise BankIntegrityError(f"{folder}: its manifest lists no {FILE}. Fetch or train it again")
    try:
        with safe_open(weights, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise BankIntegrityError(f"{weights}: isn't a safetensors file. Fetch or train it again") from error
    body = {key: value for key, value in manifest.items() if key not in ("kind", "schema_version", "files", "id")}
    if metadata.get(_METADATA) != canonical_json(body).decode():
        raise BankIntegrityError(f"{weights}: it and its manifest describe different libraries. Fetch it again")
    library = AnchorLibrary(manifest["width"], manifest["blocks"])
    library._temperature = float(manifest["temperature"])  # chosen where it was trained, and said there
    trunk = TrunkIdentity.from_json(manifest["trunk"])
    for entry in manifest["anchors"]:
        anchor = Anchor(library.width, library.block_count, AnchorConfig(**entry["config"]))
        library.add(entry["name"], anchor, provenance=entry["provenance"])
    if manifest["keys"] is not None:
        library.provenance["keys"] = manifest["keys"]
    if manifest["keys_trunk"] is not None:
        library.keys_trunk = TrunkIdentity.from_json(manifest["keys_trunk"])
    expected = {key: value.shape for key, value in library.state_dict().items()}
    found = {key: value.shape for key, value in tensors.items()}
    wrong = sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))
    wrong += [key for key, value in tensors.items() if not bool(torch.isfinite(value).all())]
    if wrong:
        raise BankIntegrityError(f"{weights}: expected the library's tensors, {wrong[0]} is damaged. Fetch it again")
    library.load_state_dict(tensors)
    library.bind(trunk)
    return library
