"""Backends of scaled products: a kernel reaches them as vectors, a scale and a scalar map."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor

from erlangen.attention import native
from erlangen.attention.backend import Backend
from erlangen.attention.biases import LogitBias
from erlangen.attention.call import Call, Needs
from erlangen.attention.kernels.form import Form


class Products(Backend):
    """A backend whose logits are scaled products of two vectors, as far as its flags say more."""

    maps: ClassVar[bool] = True
    """Whether it has scalar maps of products (`Map`)."""
    vector: ClassVar[bool] = False
    """Whether it has sums feature by feature, weighted by a vector."""
    per_edge: ClassVar[bool] = False
    """Whether it takes a bias for each edge."""

    def lacks(self, needs: Needs) -> str | None:
        """Why it does not have a kernel or a bias, or None."""
        if needs.map is None or (needs.vector and not self.vector):
            return f"does not have the kernel {needs.kernel}"
        if needs.map != "identity" and not self.maps:
            return f"does not have the kernel {needs.kernel} with a map ({needs.map}) of scores"
        if needs.bias == "per edge" and not self.per_edge:
            return "takes no bias for each edge"
        return None

    def refuses(self, call: Call) -> str | None:
        return self.lacks(call.needs)

    @abstractmethod
    def products(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        prepared: Any,
        form: Form,
        bias: LogitBias | None,
        dropout: float,
    ) -> tuple[Tensor, Tensor | None]:
        """Output and log-sum-exp, where it has one."""

    def run(
        self, prepared: Any, call: Call, q: Tensor, k: Tensor, v: Tensor, bias: LogitBias | None
    ) -> tuple[Tensor, None, Tensor | None]:
        kernel = call.kernel
        if kernel is None:
            assert call.scale is not None
            out, lse = self.products(q, k, v, prepared, Form(call.scale), bias, call.dropout)
            return out, None, lse
        form = kernel.form(q.shape[3])
        assert form is not None  # it would have been refused
        # Some kernels need more digits than half precision has.
        with torch.autocast(q.device.type, enabled=False) if kernel.full_precision else nullcontext():
            queries, keys, shift = kernel.vectors(q, k)
            values = v.to(queries.dtype)
            out, lse = self.products(queries, keys, values, prepared, form, bias, call.dropout)
            if kernel.full_precision:
                out = out.to(v.dtype)
                lse = None if lse is None else lse.to(torch.promote_types(v.dtype, torch.float32))
                shift = None if shift is None or lse is None else shift.to(lse.dtype)
        return out, None, lse if shift is None or lse is None else lse + shift


class NativeProducts(Products):
    """A backend of the extension, which runs on a CPU."""

    attend: ClassVar[Any]
    """`native.attend` with its operator."""

    def refuses(self, call: Call) -> str | None:
        if not call.on_cpu:
            return f"runs on the CPU, and the tensors lie on {call.device.partition(':')[0]}"
        if not native.available():
            return f"needs the native extension: {native.missing()}"
        return super().refuses(call)

    def prepare(self, call: Call) -> Any:
        """The packed relation; it lives as long as the bound one, or as a graph that needs it."""
        assert call.bound is not None
        return call.bound.packed

    def products(self, q, k, v, prepared, form, bias, dropout):
        options: dict[str, Any] = {}
        if form.vector is not None:
            options["vector"] = form.vector if form.vector.dim() == 2 else form.vector[None]
        if bias is not None:
            options |= {"bias": bias.values, "per_edge": bias.per_edge}
        # Which pairs are dropped is decided by a seed from torch's generator, drawn here alone.
        seed = torch.randint(2**62, ()) if dropout else None
        return self.attend(
            q, k, v, prepared, scale=form.scale, dropout=dropout, seed=seed, map=form.map, **options
        )
