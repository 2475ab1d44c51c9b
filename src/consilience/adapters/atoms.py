"""The address read: every slot asks a small table of unit atoms and gets their sinh/cosh-weighted mean.

    s = slot / |slot|,  u_k = s . A_k / tau,  m = sum_k sinh(u_k) A_k / sum_k cosh(u_k)

With 16 slots and 64 atoms a token costs 1,024 exponentials a block, and a plain version stores and re-reads half a
dozen arrays of that size. :func:`read_atoms` walks over chunks that stay in the cache and keeps 15 numbers a slot:

* E = exp(u) and 1 / E are all that sinh and cosh need, and one product with a constant table sums them;
* m is the gradient of tau log sum cosh, so its Jacobian J = (sum cosh(u_k) A_k A_k' / z - m m') / tau is symmetric, and
  the same product yields it: the gradient of the slots needs no exponential at all;
* the gradient of the atoms, which only a training of this anchor asks for, recomputes E chunk by chunk.

All arrays are (values, rows) inside, so that every operation runs along the long axis.

Source: design, section 7.
"""

from __future__ import annotations

from typing import Any

import torch

SMALLEST_NORM = 1e-12  # a shorter slot has no direction: it reads zero, and passes no gradient on
# exp(+-1/tau) and the products below stay far inside float32's range up to here, so nothing need be factored out.
_PLAIN_RANGE = 40.0
_CHUNK_ELEMENTS = 1 << 16  # measured: 256 KiB of fp32 an array; three of them fit the second-level cache
_GPU_CHUNK_ELEMENTS = 1 << 26  # kernels are launched, not cached: few and large


def read_atoms_plain(slots: torch.Tensor, atoms: torch.Tensor, temperature: float) -> torch.Tensor:
    """Read the atoms, written as the formula is: the reference for :func:`read_atoms`, and for exports.

    Args:
        slots: (..., D), not normalised.
        atoms: (K, D), not normalised.
        temperature: tau, above 0.

    Returns:
        (..., D), within the convex hull of the atoms and their negatives.

    Source: design, section 7.
    """
    norms = slots.norm(dim=-1, keepdim=True)
    directions = torch.where(norms > SMALLEST_NORM, slots / norms.clamp_min(SMALLEST_NORM), torch.zeros_like(slots))
    table = torch.nn.functional.normalize(atoms, dim=-1)
    u = directions @ table.T / temperature
    largest = u.abs().amax(dim=-1, keepdim=True)
    up, down = torch.exp(u - largest), torch.exp(-u - largest)
    return ((up - down) @ table) / (up + down).sum(dim=-1, keepdim=True)


def read_atoms(slots: torch.Tensor, atoms: torch.Tensor, temperature: float) -> torch.Tensor:
    """Read the atoms in one fused pass; same values and gradients as :func:`read_atoms_plain` up to rounding.

    Args:
        slots: (..., D), not normalised; half precision is computed in fp32.
        atoms: (K, D), not normalised.
        temperature: tau, above 0.

    Returns:
        (..., D) in the precision of the computation, fp32 or fp64.

    Source: design, section 7.

    Example:
        >>> slot, atoms = torch.tensor([[2.0, 0.0]]), torch.eye(2)
        >>> [round(x, 4) for x in read_atoms(slot, atoms, 1.0)[0].tolist()]  # sinh(1) / (cosh(1) + 1)
        [0.4621, 0.0]
    """
    with torch.autocast(slots.device.type, enabled=False):
        precision = torch.float64 if torch.float64 in (slots.dtype, atoms.dtype) else torch.float32
        table = torch.nn.functional.normalize(atoms.to(precision), dim=-1)
        rows = slots.to(precision).reshape(-1, slots.shape[-1]).T
        read: torch.Tensor = _AddressRead.apply(rows, table, 1.0 / temperature)
        return read.T.reshape(slots.shape)


class _AddressRead(torch.autograd.Function):
    """(D, n) slots and (K, D) unit atoms to (D, n)."""

    @staticmethod
    def forward(ctx: Any, slots: torch.Tensor, atoms: torch.Tensor, inverse: float) -> torch.Tensor:  # noqa: ANN401
        width = len(slots)
        norms = slots.norm(dim=0)
        scale = torch.where(norms > SMALLEST_NORM, norms.clamp_min(SMALLEST_NORM).reciprocal(), torch.zeros_like(norms))
        directions = slots * scale
        # Rows of the tables: 1, the D atoms, and the upper triangle of A_k A_k' where a gradient will need it.
        even, odd = [torch.ones_like(atoms[:, :1]).T], [atoms.T]
        if ctx.needs_input_grad[0]:
            first, second = torch.triu_indices(width, width, device=atoms.device).unbind()
            even.append(atoms.T[first] * atoms.T[second])
        plus = torch.cat([even[0], *odd, *even[1:]])
        signs = torch.ones_like(plus[:, :1])
        signs[1 : 1 + width] = -1
        minus = plus * signs
        sums = slots.new_empty(len(plus), slots.shape[1])
        for start, stop, up, down in _exponentials(directions, atoms, inverse):
            part = sums[:, start:stop]
            torch.mm(plus, up, out=part)
            part.addmm_(minus, down)
        sums[1:] /= sums[0]  # z, m, and the mean of A A' under cosh
        ctx.save_for_backward(directions, scale, atoms, sums)
        ctx.inverse = inverse
        return sums[1 : 1 + width].clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:  # noqa: ANN401
        directions, scale, atoms, sums = ctx.saved_tensors
        width, inverse = len(directions), ctx.inverse
        read = sums[1 : 1 + width]
        along = (read * gradient).sum(dim=0)
        slots_gradient = atoms_gradient = None
        if ctx.needs_input_grad[0]:
            moved = -read * along
            number = 1 + width
            for i in range(width):
                for j in range(i, width):
                    moved[i].addcmul_(sums[number], gradient[j])
                    if j != i:
                        moved[j].addcmul_(sums[number], gradient[i])
                    number += 1
            moved *= inverse
            moved -= directions * (directions * moved).sum(dim=0)  # a slot's length has no effect
            slots_gradient = moved * scale
        if ctx.needs_input_grad[1]:
            atoms_gradient = _atoms_gradient(directions, atoms, gradient / sums[0], along / sums[0], inverse)
        return slots_gradient, atoms_gradient, None


def _atoms_gradient(
    directions: torch.Tensor, atoms: torch.Tensor, gradient: torch.Tensor, along: torch.Tensor, inverse: float
) -> torch.Tensor:
    """Sum over rows of w_k (g - (m.g) s / tau) + c_k (A_k . g) s / tau, where g and m.g are divided by z."""
    width = len(directions)
    factors = torch.empty(
        (width + width * width, directions.shape[1]), dtype=directions.dtype, device=directions.device
    )
    factors[:width] = gradient - directions * (along * inverse)
    torch.mul(gradient[:, None], (directions * inverse)[None], out=factors[width:].view(width, width, -1))
    ups, downs = atoms.new_zeros(len(atoms), len(factors)), atoms.new_zeros(len(atoms), len(factors))
    for start, stop, up, down in _exponentials(directions, atoms, inverse):
        part = factors[:, start:stop].T
        # Where a maximum was factored out, z (in the gradient) carries the same one: same numbers, same maximum.
        ups.addmm_(up, part)
        downs.addmm_(down, part)
    sinh_part, cosh_part = ups - downs, ups + downs
    outer = cosh_part[:, width:].reshape(len(atoms), width, width)
    return sinh_part[:, :width] + (outer * atoms[:, :, None]).sum(dim=1)


def _exponentials(directions: torch.Tensor, atoms: torch.Tensor, inverse: float) -> Any:  # noqa: ANN401 - an iterator
    """Yield (start, stop, exp(u), exp(-u)) over chunks of rows; the arrays (K, chunk) are overwritten by the next."""
    count, rows = len(atoms), directions.shape[1]
    elements = _CHUNK_ELEMENTS if directions.device.type == "cpu" else _GPU_CHUNK_ELEMENTS
    chunk = max(1, min(rows, elements // count))
    first, second = atoms.new_empty(count, chunk), atoms.new_empty(count, chunk)
    scaled = atoms * inverse
    for start in range(0, rows, chunk):
        stop = min(rows, start + chunk)
        if stop - start < chunk:
            first, second = atoms.new_empty(count, stop - start), atoms.new_empty(count, stop - start)
        torch.mm(scaled, directions[:, start:stop], out=first)
        if inverse <= _PLAIN_RANGE:
            first.exp_()
            torch.reciprocal(first, out=second)
        else:  # |u| may overflow exp: its maximum over the atoms cancels in every ratio
            largest = first.abs().amax(dim=0)
            torch.neg(first, out=second)
            first.sub_(largest).exp_()
            second.sub_(largest).exp_()
        yield start, stop, first, second
