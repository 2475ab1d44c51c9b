"""The optimisers of a training: Adam over everything, or a sparse Adam over the token table and Adam over the rest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from consilience.core.errors import InputError
from consilience.objectives.names import OptimizerSettings


class Optimizers:
    """One step of all trained parameters, with state that a checkpoint reads and restores by parameter name.

    A batch touches a few hundred of a token table's 30,000 rows. With sparse gradients only those rows and their
    moments are read and written. That's another optimiser, not only a faster one: the moments of a row that isn't in
    the batch stand still, where Adam's would decay ("lazy" Adam).

    Args:
        parameters: what is trained, by name.
        sparse: names of those whose gradients are sparse (tables of ``nn.Embedding(sparse=True)``).
        settings: kind, weight decay and clipping, which the objective decides.
        lr: learning rate until :meth:`set_lr`.

    Raises:
        InputError: sparse gradients with weight decay or clipping, which need every row.

    Source: Kingma and Ba 2015, arXiv:1412.6980; Loshchilov and Hutter 2019, arXiv:1711.05101 (AdamW).
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        sparse: Collection[str] = (),
        settings: OptimizerSettings | None = None,
        lr: float = 1e-3,
    ) -> None:
        self.parameters = dict(parameters)
        self.settings = settings or OptimizerSettings()
        if sparse:
            require_sparse_fit(self.settings)
        dense = [parameter for name, parameter in self.parameters.items() if name not in sparse]
        tables = [self.parameters[name] for name in sparse]
        kind = torch.optim.AdamW if self.settings.kind == "adamw" else torch.optim.Adam
        self._optimizers: list[torch.optim.Optimizer] = []
        if dense:
            fused = all(parameter.device.type in ("cpu", "cuda") for parameter in dense)
            self._optimizers.append(kind(dense, lr=lr, weight_decay=self.settings.weight_decay, fused=fused))
        if tables:
            self._optimizers.append(torch.optim.SparseAdam(tables, lr=lr))
        self._owner = {
            id(parameter): optimizer
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr

    def step(self) -> None:
        """Clip the gradient if the settings say so, and take a step."""
        if self.settings.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.settings.clip_norm)
        for optimizer in self._optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def state(self, name: str) -> dict[str, torch.Tensor]:
        """Return a parameter's moments and step count; empty before the first step."""
        parameter = self.parameters[name]
        state = self._owner[id(parameter)].state.get(parameter, {})
        return {key: torch.as_tensor(value) for key, value in state.items()}

    def restore(self, name: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set a parameter's moments and step count, each where its optimiser wants it."""
        parameter = self.parameters[name]
        owner = self._owner[id(parameter)]
        state: dict[str, Any] = {key: value.to(parameter.device) for key, value in tensors.items()}
        if isinstance(owner, torch.optim.SparseAdam):
            state["step"] = int(tensors["step"])
        owner.state[parameter] = state


def require_sparse_fit(settings: OptimizerSettings) -> None:
    """Refuse sparse gradients where the objective's optimiser touches every row.

    Raises:
        InputError: it asks for weight decay or clipping.
    """
    if settings.weight_decay or settings.clip_norm is not None:
        raise InputError(
            "distill: sparse gradients of the token table can't be combined with an objective that asks for weight "
            f"decay ({settings.weight_decay:g}) or clipping ({settings.clip_norm}): both touch every row. Leave "
            "--sparse-embeddings out"
        )


def make_tables_sparse(student: nn.Module) -> list[str]:
    """Let a student's trained token tables have sparse gradients.

    Position and token-type tables are short and used whole: they stay dense.

    Args:
        student: changed in place.

    Returns:
        Names of their weights.
    """
    names = []
    for name, module in student.named_modules():
        if isinstance(module, nn.Embedding) and module.weight.requires_grad and _is_token_table(name):
            module.sparse = True
            names.append(f"{name}.weight" if name else "weight")
    return names


def _is_token_table(name: str) -> bool:
    return not any(part in name for part in ("position", "token_type"))
