"""Where the time of a module goes that `torch.compile` runs on whence: its graphs by line and
module, the graph breaks between them, and what PyTorch and Python take around them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from whence.attribution.merge_profiles import merge_profiles
from whence.attribution.profile import Profile
from whence.errors import InputError
from whence.interop.torch.recording import GraphRun, recording
from whence.plural import counted

OUTSIDE = "python"
"""The residual for everything that is not in a graph: Python between them, guards, AOTAutograd."""


def is_compiled_by_torch(model: Any) -> bool:
    """Is it what `torch.compile` returned?"""
    return hasattr(model, "_torchdynamo_orig_callable")


def profile_torch_compiled(
    model: Callable[..., Any],
    inputs: Any,
    profile_graph: Callable[[GraphRun], Profile],
    *,
    runs: int,
    warmup: int,
) -> Profile:
    """A profile of one call, summed over `runs` of them. `inputs` are the arguments: a tuple, one
    tensor, or a dictionary by name.
    """
    import torch

    args, kwargs = _arguments(inputs)
    with torch.no_grad():
        for _ in range(max(1, warmup)):
            model(*args, **kwargs)
        with recording() as found:
            model(*args, **kwargs)
        if not found.runs:
            raise InputError(
                "the call ran no graph of whence: the module was compiled with another backend, or"
                " PyTorch found nothing in it to compile"
            )
        parts = [_renamed(profile_graph(run), run, model) for run in found.runs]
        outside = 0
        for _ in range(runs):
            with recording(keep_inputs=False) as again:
                model(*args, **kwargs)
            outside += max(0, again.wall_ns - again.graph_ns)
    breaks = [run.ended_by for run in found.runs if run.ended_by]
    graphs = f"{counted(len(parts), 'graph')} of torch.compile"
    name = type(getattr(model, "_orig_mod", model)).__name__
    return merge_profiles(
        parts,
        model=name if hasattr(model, "_orig_mod") else getattr(model, "__name__", name),
        outside=OUTSIDE,
        outside_ns=outside,
        notes=(graphs, *(f"graph break at {each}" for each in breaks)),
    )


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is None:
        raise InputError(
            "a module of torch.compile is profiled with inputs: whence.profile(model, (x,))"
        )
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, Sequence):
        return tuple(inputs), {}
    return (inputs,), {}


def _renamed(profile: Profile, run: GraphRun, model: Any) -> Profile:
    """Modules by their path from the whole. A graph names them from the function it was cut out of,
    which may be that of a module inside, and serves every such module: its parameters tell which.
    """
    old, new = _prefixes(run, getattr(model, "_orig_mod", None))
    if old == new:
        return profile
    rows = tuple(
        dataclasses.replace(row, module=_moved(row.module, old, new)) for row in profile.sources
    )
    return dataclasses.replace(profile, sources=rows)


def _prefixes(run: GraphRun, root: Any) -> tuple[str, str]:
    """What a parameter's path begins with in the graph, and in the whole module."""
    if root is None:
        return "", ""
    paths = {
        tensor.data_ptr(): name
        for named in (root.named_parameters, root.named_buffers)
        for name, tensor in named()
    }
    for name, address in run.parameters:
        if address in paths:
            inner, outer = name.split("."), paths[address].split(".")
            while inner and outer and inner[-1] == outer[-1]:
                inner.pop()
                outer.pop()
            return ".".join(inner), ".".join(outer)
    return "", ""


def _moved(module: str, old: str, new: str) -> str:
    if old and module != old and not module.startswith(f"{old}."):
        return module
    rest = module[len(old) :].lstrip(".") if old else module
    return ".".join(part for part in (new, rest) if part)
