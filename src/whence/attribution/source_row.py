"""The row of an operator of the file, from what it has of kernels."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from whence.attribution.modules import Module
from whence.attribution.noise import block_lows
from whence.attribution.profile import band_of
from whence.attribution.rows import KernelParts, KernelRow, Part, SourceRow, distribution_of
from whence.ops.definition import Cost
from whence.provenance import Outcome, SourceOp


def parts_by_source(kernels: Iterable[KernelRow]) -> Mapping[int, KernelParts]:
    """Of every operator that is in a kernel."""
    found: dict[int, list[tuple[KernelRow, Part]]] = defaultdict(list)
    for kernel in kernels:
        for part in kernel.origin:
            found[part.id].append((kernel, part))
    return found


def source_row(
    source: SourceOp,
    module: Module | None,
    fate: Outcome,
    became: str,
    own: KernelParts,
    *,
    wall_ns: int,
    run_ns: np.ndarray,
    work: Cost | None = None,
) -> SourceRow:
    """`run_ns` is what it took in single runs (`run_times`), `work` what the file asks for."""
    time = sum(part.time_ns for _, part in own)
    runs = [round(value) for value in run_ns]
    errors = (kernel.error * kernel.time_ns for kernel, part in own if part.weight)
    return SourceRow(
        id=source.id,
        name=source.name,
        op=source.op,
        fate=fate.value,
        time_ns=time,
        share=time / wall_ns if wall_ns else 0.0,
        kernels=tuple(kernel.id for kernel, _ in own),
        module=source.module if module is None else module.path,
        module_from="" if module is None else module.evidence.value,
        line=source.line,
        scope=source.scope,
        positions=source.positions,
        table_id=source.table_id,
        became=became,
        inserted_ns=sum(part.inserted_ns for _, part in own),
        band=band_of(runs),
        distribution=distribution_of(runs),
        blocks=block_lows(runs),
        flops=0 if work is None else work.flops,
        bytes=0 if work is None else work.bytes,
        of_peak=_mean_of_peak(own),
        bound=max(own, key=lambda each: each[1].time_ns)[0].bound if time else "",
        error_ns=round(math.hypot(*errors)),
    )


def run_times(per_run_ns: np.ndarray, own: KernelParts) -> np.ndarray:
    """What an operator took in each run, of times by run and kernel."""
    found = np.zeros(len(per_run_ns))
    for kernel, part in own:
        found += per_run_ns[:, kernel.id] * part.weight
    return found


def _mean_of_peak(own: KernelParts) -> float:
    """Of the kernels that an operator is in, each by its time there."""
    known = [(kernel.of_peak, part.time_ns) for kernel, part in own if kernel.of_peak]
    time = sum(spent for _, spent in known)
    return sum(each * spent for each, spent in known) / time if time else 0.0
