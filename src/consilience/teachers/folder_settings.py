"""What a sentence-transformers folder says of its vectors, for the backends that run its graph or backbone alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from consilience.core.errors import InputError
from consilience.core.files import read_json
from consilience.core.progress import log
from consilience.teachers.position_limit import NO_LIMIT
from consilience.teachers.spec import POOLINGS

_MODES = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "lasttoken": "last"}


def refuse_student_head(folder: Path | None, teacher: str) -> None:
    """Refuse a student's own folder, whose head no other library reads: its backbone alone gives other vectors.

    Raises:
        InputError: the folder has such a head.
    """
    if folder is not None and (folder / "head.safetensors").is_file() and (folder / "manifest.json").is_file():
        raise InputError(
            f"teacher {teacher}: a student's folder, whose head only consilience reads. Export it with `consilience "
            f"export {folder} --out EXPORT` and take st:EXPORT"
        )


@dataclass(frozen=True)
class FolderSettings:
    """The settings of a folder; a folder of another kind, or none, has none.

    Args:
        folder: where ``modules.json`` and the rest would lie.
        teacher: name for messages.
    """

    folder: Path | None
    teacher: str

    def prompt(self, chosen: str | None) -> str:
        """Return the chosen prompt, else the folder's default one, as sentence-transformers puts it."""
        if chosen is not None:
            return chosen
        settings = self._read("config_sentence_transformers.json")
        prompts, name = settings.get("prompts"), settings.get("default_prompt_name")
        return str(prompts.get(name) or "") if isinstance(prompts, dict) and name is not None else ""

    def lowercase(self, tokenizer: Any) -> None:  # noqa: ANN401 - tokenizers.Tokenizer
        """Make the tokenizer lower case where the folder asks for it."""
        if self._read("sentence_bert_config.json").get("do_lower_case"):
            from tokenizers import normalizers

            own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
            tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])

    def max_length(self) -> int | None:
        """Return the limit that sentence-transformers would take, in tokens; None without one."""
        declared = self._read("sentence_bert_config.json").get("max_seq_length")
        return declared if isinstance(declared, int) and 0 < declared < NO_LIMIT else None

    def pooling(self, chosen: str | None, *, prompt: str) -> str:
        """Return how token states become one vector: as chosen, else as the Pooling module says, else their mean.

        The mean is what sentence-transformers takes where nothing is said; that it was taken is said.

        Raises:
            InputError: the folder asks for a pooling, or modules after it, that aren't run here.
        """
        if chosen is not None:
            return chosen
        refuse_student_head(self.folder, self.teacher)
        bare = f"choose pool={', '.join(POOLINGS[:-1])} or {POOLINGS[-1]} of the bare token states"
        self.require_plain(("Transformer", "Pooling", "Normalize"), bare)
        place = next((path for kind, path in self._modules() if kind == "Pooling"), "1_Pooling")
        settings = self._read(f"{place}/config.json")
        if not settings:
            log(
                f"teacher {self.teacher}: nothing says how token states are pooled, so their mean is taken (pool= "
                "chooses)"
            )
            return "mean"
        modes = settings.get("pooling_mode") or [
            key.removeprefix("pooling_mode_") for key, on in settings.items() if key.startswith("pooling_mode_") and on
        ]
        modes = [modes] if isinstance(modes, str) else modes
        found = str(_MODES.get(modes[0], modes[0])) if len(modes) == 1 else ""
        left_out = bool(prompt) and not settings.get("include_prompt", True)
        if left_out or found not in POOLINGS:
            asked = "the pooling " + (" + ".join(modes) or "of nothing") + (" without the prompt" if left_out else "")
            raise self._only_st(asked, bare)
        return found

    def normalises(self) -> bool:
        """Tell whether the folder's vectors have length 1."""
        return any(kind == "Normalize" for kind, _ in self._modules())

    def require_plain(self, run: Sequence[str], otherwise: str) -> None:
        """Refuse a folder that asks for more than the backend runs.

        Args:
            run: kinds of modules that it does run.
            otherwise: what can be done instead, after "Use that, or".

        Raises:
            InputError: other modules, or vectors that are cut.
        """
        more = [kind for kind, _ in self._modules() if kind not in run]
        if more:
            raise self._only_st("the modules " + ", ".join(more), otherwise)
        if (width := self._read("config_sentence_transformers.json").get("truncate_dim")) is not None:
            raise self._only_st(f"vectors cut to {width} (truncate_dim)", otherwise)

    def _only_st(self, asked: str, otherwise: str) -> InputError:
        return InputError(
            f"teacher {self.teacher}: its folder asks for {asked}, which only st: with the folder runs. Use that, or "
            f"{otherwise}"
        )

    def _modules(self) -> list[tuple[str, str]]:
        """Return each module's kind and place in the folder."""
        listed = [item for item in self._read("modules.json") if isinstance(item, dict)]
        return [(str(item.get("type")).rsplit(".", 1)[-1], str(item.get("path") or ".")) for item in listed]

    def _read(self, name: str) -> Any:  # noqa: ANN401 - JSON
        path = None if self.folder is None else self.folder / name
        settings = read_json(path) if path is not None and path.is_file() else {}
        return settings if isinstance(settings, list if name == "modules.json" else dict) else {}
