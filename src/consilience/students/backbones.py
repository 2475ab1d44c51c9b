"""Backbones of text students: Hugging Face encoders by architecture, and the surgery on their weights.

All are built from a configuration, without a pooler and without token types that would matter: BERT's row for "first
sentence" is added to every position instead, so that one rule (token types are zero and not trained) holds for all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import nn

TOKEN_TYPES = "embeddings.token_type_embeddings.weight"
TOKENS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
_OLD_NORM, _NORM_NAMES = re.compile(r"LayerNorm\.(gamma|beta)$"), {"gamma": "weight", "beta": "bias"}
_LAYER = re.compile(r"^((?:encoder|transformer)\.layer)\.(\d+)\.(.*)$")


@dataclass(frozen=True)
class Architecture:
    """How a Hugging Face encoder differs from the others, as far as students care.

    Attributes:
        model: name of its class in ``transformers``.
        pooler_switch: whether the class takes ``add_pooling_layer``; without it, the class has no pooler.
        first_position: row of the position table that the first token uses.
        dropouts: its configuration's keys of dropout probabilities.
    """

    model: str
    pooler_switch: bool = True
    first_position: int = 0
    dropouts: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")


# first_position: RoBERTa and MPNet number positions from the padding id + 1, and their padding id is 1.
BACKBONES = {
    "bert": Architecture("BertModel"),
    "roberta": Architecture("RobertaModel", first_position=2),
    "mpnet": Architecture("MPNetModel", first_position=2),
    "distilbert": Architecture("DistilBertModel", pooler_switch=False, dropouts=("dropout", "attention_dropout")),
}


def find_architecture(model_type: object, *, where: str) -> Architecture:
    """Return what is known of a ``model_type``.

    Args:
        model_type: as in ``config.json``.
        where: the model, for the message.

    Raises:
        InputError: students can't be of that type.
    """
    if not isinstance(model_type, str) or model_type not in BACKBONES:
        raise InputError(
            f"{where}: model_type {model_type!r} in config.json; a student's layers can be those of "
            f"{', '.join(sorted(BACKBONES))}. Choose such a model"
        )
    return BACKBONES[model_type]


def make_backbone(settings: Mapping[str, Any], *, where: str = "student") -> nn.Module:
    """Build an encoder with random weights from the content of a ``config.json``.

    Args:
        settings: ``model_type`` (absent: "bert") and the configuration's values.
        where: the model, for messages.

    Raises:
        InputError: the type isn't supported, or positions are relative to keys.
    """
    import transformers

    model_type = settings.get("model_type", "bert")
    architecture = find_architecture(model_type, where=where)
    if settings.get("position_embedding_type", "absolute") != "absolute":
        raise InputError(
            f"{where}: position_embedding_type {settings['position_embedding_type']!r}, learned absolute positions "
            "expected. Choose another model"
        )
    kind = getattr(transformers, architecture.model)
    # Not all have a fused attention (MPNet adds its bias to the scores).
    attention = "sdpa" if getattr(kind, "_supports_sdpa", False) else "eager"
    values = {key: value for key, value in settings.items() if key != "model_type"}
    config = transformers.AutoConfig.for_model(model_type, **values, attn_implementation=attention)
    switch = {"add_pooling_layer": False} if architecture.pooler_switch else {}
    backbone: nn.Module = kind(config, **switch)
    freeze_token_types(backbone)
    return backbone


def freeze_token_types(backbone: nn.Module) -> None:
    """Set an encoder's token-type embeddings to zero, for good, where it has any."""
    for name, table in backbone.named_parameters():
        if name == TOKEN_TYPES:
            table.requires_grad_(False)
            table.zero_()


def backbone_settings(backbone: nn.Module) -> dict[str, Any]:
    """Return what ``config.json`` says of an encoder, so that ``AutoModel`` builds the same one."""
    config: Any = backbone.config
    settings = {key: value for key, value in config.to_diff_dict().items() if key != "dtype"}
    return {**settings, "architectures": [type(backbone).__name__], "model_type": config.model_type}


def empty_pooler(backbone: nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights, all zero, of the pooler that ``AutoModel`` adds to such an encoder; {} where it adds none.

    Without them it would invent random ones, and few clients can be told not to.
    """
    import torch

    config: Any = backbone.config
    if not BACKBONES[config.model_type].pooler_switch:
        return {}
    width = config.hidden_size
    return {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}


def plain_names(tensors: Mapping[str, torch.Tensor], model_type: str) -> dict[str, torch.Tensor]:
    """Name an encoder's tensors as the bare model does: no prefix of a task model, no pooler, no task head.

    Checkpoints that began in TensorFlow (bert-base-uncased's own) call a LayerNorm's weight gamma and its bias beta.

    Args:
        tensors: a checkpoint's.
        model_type: its architecture; also the prefix that task models use.

    Example:
        >>> import torch
        >>> one = torch.zeros(1)
        >>> sorted(plain_names({"bert.embeddings.LayerNorm.beta": one, "bert.pooler.y": one, "cls.z": one}, "bert"))
        ['embeddings.LayerNorm.bias']
    """
    prefix = f"{model_type}."
    kept = {}
    for name, tensor in tensors.items():
        bare = _OLD_NORM.sub(lambda found: f"LayerNorm.{_NORM_NAMES[found[1]]}", name.removeprefix(prefix))
        if bare.split(".")[0] in ("embeddings", "encoder", "transformer") and not bare.endswith("position_ids"):
            kept[bare] = tensor
    return kept


def keep_layers(tensors: Mapping[str, torch.Tensor], layers: Sequence[int]) -> dict[str, torch.Tensor]:
    """Keep some of an encoder's layers and number them anew (depth pruning).

    Args:
        tensors: by plain name.
        layers: numbers of the layers to keep, in the order that they get.

    Example:
        >>> import torch
        >>> pruned = keep_layers({f"encoder.layer.{i}.w": torch.tensor(i) for i in range(6)}, (0, 2, 5))
        >>> {name: int(value) for name, value in pruned.items()}
        {'encoder.layer.0.w': 0, 'encoder.layer.1.w': 2, 'encoder.layer.2.w': 5}
    """
    kept = {name: tensor for name, tensor in tensors.items() if not _LAYER.match(name)}
    for new, old in enumerate(layers):
        for name, tensor in tensors.items():
            found = _LAYER.match(name)
            if found and int(found[2]) == old:
                kept[f"{found[1]}.{new}.{found[3]}"] = tensor
    return kept


def fold_token_types(tensors: dict[str, torch.Tensor]) -> None:
    """Add the row of token type 0 to every position and set the token types to zero: same sums, same outputs.

    Args:
        tensors: by plain name; changed in place, the given tensors aren't.
    """
    import torch

    if TOKEN_TYPES in tensors:
        tensors[POSITIONS] = tensors[POSITIONS] + tensors[TOKEN_TYPES][0]
        tensors[TOKEN_TYPES] = torch.zeros_like(tensors[TOKEN_TYPES])
