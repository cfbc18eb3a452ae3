"""A program for an OpenCL device: launches of its kernels, steps of the host between them, and
copies from one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from whence.building.location import Location
from whence.building.packed_weights import PackedWeights
from whence.building.program import Details, Plan, Program
from whence.codegen.opencl.render_cl import Launch
from whence.graph import Ref
from whence.graph.guards import Guards

TRANSFERS = "transfers"
"""What copies between host and device are called in a profile: no operator's time."""


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """A kernel to start, and where its operands lie."""

    number: int
    launch: Launch
    places: tuple[Location, ...]
    reads: tuple[Ref, ...]
    """The values it reads, which are on the device before it starts."""
    guards: Guards
    """What must hold for it to run."""


@dataclass(frozen=True, slots=True)
class HostStep:
    """A step that the reference implementation of its operator does, on the host."""

    number: int
    node: int
    guards: Guards


class OpenClProgram(Program):
    """A program whose steps run on a device. Shared by all runs, never changed by one."""

    __slots__ = (
        "built",
        "checks",
        "device_weights",
        "launches",
        "read_by_device",
        "sequence",
        "to_device",
        "to_host",
    )

    def __init__(
        self,
        plan: Plan,
        details: Details,
        built: Any,
        initial: np.ndarray,
        device_weights: Any,
        actions: tuple[LaunchStep | HostStep, ...],
    ) -> None:
        super().__init__(plan, PackedWeights.of(initial), None, details)
        self.built = built
        """pyopencl's program; `None` when nothing runs on the device."""
        self.device_weights = device_weights
        self.sequence = actions
        """Launches and steps of the host, in order."""
        self.launches = [action for action in actions if isinstance(action, LaunchStep)]
        self.checks = any(step.launch.checks for step in self.launches)
        """Do kernels note indices outside their axis?"""
        self.read_by_device = frozenset(
            details.layout.owner(ref) for step in self.launches for ref in step.reads
        )
        self.to_device, self.to_host = len(details.steps) - 2, len(details.steps) - 1
        """The numbers that copies have in a profile."""
