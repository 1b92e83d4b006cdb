"""What the functions of a captured graph do beside computing a result: they draw random numbers,
write to tensors, or change the state of torch."""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import resolve_name
from torch.utils._python_dispatch import TorchDispatchMode


def _functions(names: str) -> set[Any]:
    homes = (torch, Tensor, torch.nn.functional, torch._C._nn)
    found = (getattr(home, name, None) for home in homes for name in names.split())
    return {function for function in found if callable(function)}


#: Functions that draw from torch's generator, but for dropout.
DRAWS = _functions("""
    rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial
    poisson normal_ uniform_ bernoulli_ random_ exponential_ geometric_ cauchy_ log_normal_
    gumbel_softmax rrelu_ binomial
""")
#: Functions that change what tensors are, or compute gradients.
WRITES = _functions("requires_grad_ backward set_ resize_ register_hook retain_grad")
WRITES |= {torch.autograd.grad, torch.autograd.backward}
#: Functions that write to running statistics among their arguments.
KEEPS_STATISTICS = _functions("batch_norm instance_norm")
#: Functions that draw numbers if their dropout, at this place among the arguments, is not zero.
_ATTENTIONS: dict[Any, int] = {
    torch.nn.functional.multi_head_attention_forward: 10,
    torch.nn.functional.scaled_dot_product_attention: 4,
}


def name_of(function: Any) -> str:
    if isinstance(function, functools.partial):
        function = function.args[0]
    known = resolve_name(function) if callable(function) else None
    return known.rsplit(".", 1)[-1] if known else getattr(function, "__name__", repr(function))


def is_state(function: Any) -> bool:
    """Returns whether a function changes or reads the state of torch."""
    words = ("autocast", "grad_enabled", "inference_mode", "functorch", "saved_tensors")
    of_functorch = "_functorch" in (getattr(function, "__module__", None) or "")
    return function is None or of_functorch or any(one in name_of(function) for one in words)


def why_refused(function: Any) -> str:
    """Returns why a function cannot be computed for other rows, or in other steps, in a clause."""
    name = name_of(function)
    if function in DRAWS:
        return f"{name} draws random numbers"
    if function in WRITES:
        return f"{name} writes to a tensor or computes gradients"
    kinds = {
        "grad_enabled": "switches gradients",
        "inference_mode": "switches gradients",
        "autocast": "enters or leaves autocast",
        "autograd_function": "calls an autograd.Function",
        "checkpoint": "uses gradient checkpointing",
    }
    return f"it {next((kinds[one] for one in kinds if one in name), f'calls {name}, which is not known')}"


class _Generators(TorchDispatchMode):
    """Watches for operators that draw from a generator."""

    draws = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.draws = self.draws or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def draws(node: torch.fx.Node) -> bool:
    """Returns whether a call draws from torch's generator; True where nobody knows."""
    if node.target in _ATTENTIONS:
        place = _ATTENTIONS[node.target]
        rate: Any = node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", 0.0)
        return bool(rate != 0.0)
    given = node.args, node.kwargs
    args, kwargs = torch.fx.node.map_arg(given, lambda one: one.meta.get("example_value"))
    target: Any = getattr(Tensor, str(node.target)) if node.op == "call_method" else node.target
    modes = (getattr(one.meta.get("example_value"), "fake_mode", None) for one in node.all_input_nodes)
    mode = next((one for one in modes if one is not None), None)
    if mode is None:
        return True
    watch = _Generators()
    try:
        with torch.no_grad(), mode, watch:
            target(*args, **kwargs)
    except Exception:
        return True
    return watch.draws


# Functions that write to their first argument ####################################################


def with_items(x: Tensor, index: Any, value: Any) -> Tensor:
    made = x.clone()
    made[index] = value
    return made


def _on_a_copy(func: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    made = x.clone()
    func(made, *args, **kwargs)
    return made


_OPERATORS = {
    getattr(operator, f"i{name.rstrip('_')}"): getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "xor", "and_", "or_", "lshift", "rshift"),
        "matmul",
    )
}
#: The place of ``inplace`` among the arguments.
_INPLACE: dict[Any, int] = {}
for _function in vars(torch.nn.functional).values():
    _code = getattr(_function, "__code__", None)
    if _code is not None and "inplace" in _code.co_varnames[: _code.co_argcount]:
        _INPLACE[_function] = _code.co_varnames.index("inplace")


def out_of_place(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any] | None:
    """Returns the function, and its arguments, that makes a new tensor where this one writes to its
    first; None if it does not write."""
    if func in _OPERATORS:
        return _OPERATORS[func], args, kwargs
    if func is operator.setitem:
        return with_items, args, kwargs
    name = name_of(func)
    if name.endswith("_") and not name.endswith("__"):
        for home in (Tensor, torch, torch.nn.functional):
            if getattr(home, name, None) is func and callable(other := getattr(home, name[:-1], None)):
                return other, args, kwargs
        return functools.partial(_on_a_copy, func), args, kwargs
    if kwargs.get("inplace"):
        return func, args, {**kwargs, "inplace": False}
    place = _INPLACE.get(func)
    if place is not None and len(args) > place and args[place]:
        return func, (*args[:place], False, *args[place + 1 :]), kwargs
    return None
