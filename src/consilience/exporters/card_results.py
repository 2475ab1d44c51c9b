"""What a model card reads of an evaluation, checked before anything of an export is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from consilience.core.errors import InputError
from consilience.core.hashing import canonical_json

_SHOWN_FAULTS = 3  # assumed: one line holds them


class _Part(BaseModel):
    """A part of the results: what the card doesn't read may be anything."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Score(_Part):
    score: float
    low: float | None = None
    high: float | None = None

    @model_validator(mode="after")
    def _both_ends(self) -> _Score:
        if (self.low is None) != (self.high is None):
            raise ValueError("low and high need each other")
        return self


class _Geometry(_Part):
    effective_rank: float | None = None
    self_cosine: float | None = None


class _Model(_Part):
    model: str
    tasks: dict[str, _Score]
    mean: float
    mean_low: float | None = None
    mean_high: float | None = None
    mean_of: list[str] = []
    geometry: _Geometry
    identity: dict[str, Any] = {}

    @model_validator(mode="after")
    def _both_ends(self) -> _Model:
        if (self.mean_low is None) != (self.mean_high is None):
            raise ValueError("mean_low and mean_high need each other")
        return self


class _Results(_Part):
    models: list[_Model] = Field(min_length=1)


def without_speed(results: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return results without what isn't the same when the same model is evaluated again; no card shows it.

    Args:
        results: as checked, or None.
    """
    if results is None:
        return None
    models = [{key: model[key] for key in model if key != "sentences_per_second"} for model in results["models"]]
    return {**results, "models": models}


def check_results(results: Any, source: str) -> Mapping[str, Any]:  # noqa: ANN401 - any JSON value
    """Return results that a card can be written from, as they came.

    Args:
        results: what should be the object of ``consilience evaluate --json``.
        source: the file that it was read from, or what else to call it.

    Raises:
        InputError: a part is missing, or of the wrong type; names up to three.

    Example:
        >>> check_results({"models": [{}]}, "results.json")
        Traceback (most recent call last):
        consilience.core.errors.InputError: results.json: the object of consilience evaluate --json expected, but ...
    """
    if not isinstance(results, Mapping):
        raise _refusal(source, f"it holds {'null' if results is None else type(results).__name__}")
    try:
        _Results.model_validate(dict(results))
        canonical_json(results)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        listed = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].lower()}" for fault in faults[:_SHOWN_FAULTS]]
        listed += [f"and {len(faults) - _SHOWN_FAULTS} more"] if len(faults) > _SHOWN_FAULTS else []
        raise _refusal(source, "; ".join(listed)) from error
    except ValueError as error:  # NaN, infinity, or half of a surrogate pair somewhere in the rest
        raise _refusal(source, f"it isn't JSON ({error})") from error
    return results


def _refusal(source: str, found: str) -> InputError:
    return InputError(
        f"{source}: the object of consilience evaluate --json expected, but {found}. "
        "Make it again: consilience evaluate STUDENT --json > FILE"
    )
