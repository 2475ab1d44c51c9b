"""How many tokens a model holds, read from its table of positions, whatever the configuration calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consilience.core.errors import InputError
from consilience.core.progress import log

if TYPE_CHECKING:
    import torch

# Tokenizers without a limit of their own say so with a huge number.
NO_LIMIT = 1_000_000
_NAMES = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length", "max_seq_len", "seq_length")


def learned_positions(model: torch.nn.Module) -> int | None:
    """Return how many tokens the model's table of learned positions holds, or None without a table.

    RoBERTa's family counts from the padding id + 1 on, BART's and OPT's tables begin with unused rows; a model of two
    towers is measured at its text tower.
    """
    tower = getattr(model, "text_model", model) if hasattr(model, "get_text_features") else model
    limits = []
    for name, parameter in tower.named_parameters():
        path = name.removesuffix(".weight")
        last = path.rsplit(".", 1)[-1]
        if parameter.ndim != 2 or "rel" in last or "proj" in last:
            continue
        if "position" in last or last == "wpe" or last.startswith("pos_emb"):
            module: Any = tower.get_submodule(path) if name != path else None
            padding = getattr(module, "padding_idx", None)
            unused = getattr(module, "offset", None) or (0 if padding is None else padding + 1)
            limits.append(len(parameter) - int(unused))
    return min(limits, default=None)


def token_limit(declared: float | None, model: torch.nn.Module | None) -> int | None:
    """Return the most tokens that the tokenizer and the model both allow, or None without a limit.

    Args:
        declared: the tokenizer's limit, if it has one.
        model: the backbone, if there is one.
    """
    limits = [int(declared)] if declared is not None and declared < NO_LIMIT else []
    if model is None:
        return min(limits, default=None)
    config: Any = model.config
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = learned_positions(model)
    # T5's family still writes n_positions, though its relative positions have no end.
    if positions is None and not hasattr(config, "relative_attention_num_buckets"):
        values = [getattr(config, name, None) for name in _NAMES]
        positions = next((value for value in values if isinstance(value, int) and value > 0), None)
    return min([*limits, *([] if positions is None else [positions])], default=None)


def check_max_length(model: torch.nn.Module, max_length: int | None, *, special: int, teacher: str) -> None:
    """Refuse a length that a table of learned positions doesn't have, or that leaves no place for the text.

    Args:
        model: the backbone.
        max_length: as a person gave it, or None.
        special: how many tokens the tokenizer adds to every text.
        teacher: name for the message.

    Raises:
        InputError: ``max_length`` is above what the table allows.
    """
    require_room(max_length, special, teacher)
    longest = learned_positions(model)
    if max_length is not None and longest is not None and max_length > longest:
        raise InputError(
            f"teacher {teacher}: expected max_length of at most {longest}, the positions that the model has learned, "
            f"got {max_length}. Lower it"
        )


def require_room(max_length: int | None, special: int, teacher: str) -> None:
    """Refuse a length at which every text is cut to nothing but the tokens that the tokenizer adds.

    Raises:
        InputError: so short.
    """
    if max_length is not None and max_length <= special:
        raise InputError(
            f"teacher {teacher}: expected max_length of at least {special + 1}, of which {special} are the special "
            f"tokens of each text, got {max_length}. Raise it"
        )


def check_vocabulary(tokenizer: Any, model: Any, *, teacher: str) -> None:  # noqa: ANN401 - transformers objects
    """Refuse a tokenizer with more tokens than the model has rows; the first such token would fail.

    A special token that the tokenizer never inserts, such as a family's default that this model doesn't use, is said.

    Raises:
        InputError: it has.
    """
    import torch

    try:
        table = model.get_input_embeddings()
    except (AttributeError, RuntimeError):  # a model of bytes or hashes has none
        return
    if not isinstance(table, torch.nn.Embedding) or len(tokenizer) <= table.num_embeddings:
        return
    rowless = {token for token, number in tokenizer.get_vocab().items() if number >= table.num_embeddings}
    inserted = {*tokenizer.convert_ids_to_tokens(tokenizer("a")["input_ids"]), tokenizer.pad_token}
    has = f"the tokenizer has {len(tokenizer)} tokens, the model {table.num_embeddings} rows"
    if rowless <= set(tokenizer.all_special_tokens) - inserted:
        log(f"teacher {teacher}: {has}; a text that contains {' or '.join(sorted(rowless))} can't be embedded")
        return
    raise InputError(
        f"teacher {teacher}: {has}. Use the model's own tokenizer, or save the model after "
        "resize_token_embeddings(len(tokenizer))"
    )
