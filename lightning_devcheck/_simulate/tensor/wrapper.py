"""What both kinds of tensor that are not what they seem have in common."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, Self

import torch

from lightning_devcheck._simulate.arguments import Args, Kwargs
from lightning_devcheck._simulate.compat import (
    DispatchKeySet,
    Operator,
    disabled_torch_function,
    make_wrapper,
    set_conj,
    set_neg,
)
from lightning_devcheck._simulate.host_reads import note_host_read, note_stand_in, stand_in_of
from lightning_devcheck._simulate.state import running
from lightning_devcheck._witness.places import Place

# torch asks wrappers of these layouts for what only its own tensors have
NOT_WRAPPED = (torch.sparse_csc, torch.sparse_bsc)
# attributes that make a tensor one of ours or a parameter; every other one is the user's
OWN = ("_inner", "_index", "_is_param", "_place")
# where the numbers end in what torch prints
AFTER_NUMBERS = re.compile(r"$|,\s+(?=(size|dtype)=)")


def is_parameter(tensor: torch.Tensor) -> bool:
    """Whether `torch.nn.Parameter` made a tensor of ours: its class does not say so."""
    return bool(getattr(tensor, "_is_param", False))


def attributes_of(tensor: torch.Tensor) -> dict[str, Any]:
    """What the user has set on a tensor."""
    return {name: value for name, value in vars(tensor).items() if name not in OWN}


class Wrapper(torch.Tensor):
    """A tensor around another one, which holds the values or, on torch's ``meta`` device, shape and dtype only."""

    _inner: torch.Tensor
    _place: Place | None = None  # where its device was decided

    @classmethod
    def around(
        cls,
        inner: torch.Tensor,
        device: torch.device,
        requires_grad: bool = False,
        keys: DispatchKeySet | None = None,
    ) -> Self:
        """Make one.

        Args:
            inner: What to wrap.
            device: The device that C++ code sees.
            requires_grad: Whether it wants a gradient.
            keys: Dispatch keys to add.
        """
        inference = inner.is_inference()
        if inference is not torch.is_inference_mode_enabled():  # a view is what it views, whatever the mode
            with torch.inference_mode(inference):
                return cls.around(inner, device, requires_grad, keys)
        layout = inner.layout
        if layout is torch.strided and not inner.is_nested:
            self = make_wrapper(
                cls,
                inner.size(),
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                device=device,
                requires_grad=requires_grad,
                _extra_dispatch_keys=keys,
            )
        elif inner.is_nested:
            raise NotImplementedError("nested tensors on CUDA are not simulated")
        elif layout in NOT_WRAPPED:
            kind = str(layout).removeprefix("torch.")
            raise NotImplementedError(f"{kind} tensors on CUDA are not simulated")
        else:
            options: dict[str, Any] = {"device": device, "requires_grad": requires_grad}
            # C++ has no layout for wrappers of compressed rows, and asks the property below
            options["dispatch_layout"] = layout is not torch.sparse_coo
            self = make_wrapper(cls, inner.size(), dtype=inner.dtype, layout=layout, **options)
        # views that conjugate or negate lazily: code inside torch asks for the bit and resolves it
        if inner.is_conj():
            set_conj(self, True)
        if inner.is_neg():
            set_neg(self, True)
        self._inner = inner
        return self

    __torch_function__ = disabled_torch_function  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Operator, types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        """Run an operator in a thread, or a moment, where the operator mode is off."""
        return running().run(func, args, kwargs or {})

    def remade(self, inner: torch.Tensor) -> Self:
        """A leaf of the same kind in the same place, around another tensor."""
        raise NotImplementedError

    def __format__(self, spec: str) -> str:
        if self.dim() == 0:
            return str(self.item().__format__(spec))
        return object.__format__(self, spec)

    def untyped_storage(self) -> Any:
        """The storage of the values."""
        return self._inner.untyped_storage()

    def data_ptr(self) -> int:
        """The address of the values; without values, a number that is another one for each storage."""
        if self._inner.is_meta:
            start = int(self.untyped_storage()._cdata)
            return start + int(self.storage_offset()) * self.element_size()
        return int(self._inner.data_ptr())

    def tolist(self) -> Any:
        """The values as Python numbers."""
        note_host_read()
        return self._shown().tolist()

    def _shown(self) -> torch.Tensor:
        """The values, or the stand-in for each, which takes no memory."""
        if not self._inner.is_meta:
            return self._inner.detach()
        value = stand_in_of(self)
        note_stand_in(f"{value} for each value")
        return torch.full((), value, dtype=self.dtype).expand(self._inner.shape)

    def _described(self, place: str = "") -> str:
        """What ``repr`` begins with.

        Args:
            place: The device as torch names it, behind the numbers.
        """
        begin = "Parameter containing:\n" if is_parameter(self) else ""
        if self._inner.is_meta:
            dtype = "" if self.dtype is torch.get_default_dtype() else f", dtype={self.dtype}"
            return f"{begin}tensor(...{place}, size={tuple(self.shape)}{dtype}"
        text = repr(self._inner.detach())[:-1]
        if self.layout is not torch.strided:
            return begin + text + place
        return begin + AFTER_NUMBERS.sub(lambda found: place + found[0], text, count=1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if is_parameter(self):  # torch copies neither its gradient nor its attributes
            memo[id(self)] = copied = torch.nn.Parameter(self.data.clone(), self.requires_grad)
            return copied
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment.  If you were attempting to deepcopy a module, this may be because of a torch.nn.utils."
                "weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
            )
        memo[id(self)] = new = self.remade(copy.deepcopy(self._inner, memo))
        new._place = self._place
        for name, value in attributes_of(self).items():
            setattr(new, name, copy.deepcopy(value, memo))
        if self.grad is not None:
            new.grad = copy.deepcopy(self.grad, memo)
        return new
