"""All code that is generated for the replayed models, without a compiler or the machine we are on.

Each text has a key `model/target/kernel`. Targets are named ones, with the sizes of their caches as
named; the number of threads that kernels are divided for is part of the target here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.replay.models_other import models
from whence.api import prepare
from whence.backends.cpu.generator import build_program, tile_for
from whence.backends.opencl.generator import plan_opencl
from whence.backends.opencl.program import LaunchStep
from whence.building.program import Details, Program, Segment
from whence.codegen.emit import KernelUnit, emit
from whence.codegen.functions import KernelFunction
from whence.codegen.opencl.render_cl import Device
from whence.codegen.target import Target
from whence.codegen.toolchain import Toolchain
from whence.fusion import find_groups, fuse
from whence.graph import Graph
from whence.kernels.choice import candidates, kind_of, lower_choice
from whence.kernels.group import Group
from whence.kernels.tile import Tile
from whence.passes.manager import CheckLevel

TARGETS: Mapping[str, tuple[str, int]] = {
    "avx2": ("x86_64-avx2", 1),
    "avx512": ("x86_64-avx512", 4),
    "amx": ("x86_64-amx", 4),
    "neon": ("aarch64-dotprod", 1),
}
"""By short name: the target's own name, and the number of threads."""
_DEVICE = Device(doubles=True, local_bytes=32 * 1024, group_size=256)
# Every way to divide a convolution or a product, for models that have few of them.
_ALL_WAYS = ("depthwise", "large_convolutions", "large_products", "winograd")


@dataclass(frozen=True, slots=True)
class Generated:
    """A text that was generated; empty for a step that has no kernel."""

    text: str
    note: str = ""
    """What is not in the text: why a step has no kernel, or how many texts these are."""

    @property
    def summary(self) -> str:
        """One line that changes when the text does."""
        if not self.text:
            return f"none: {self.note}"
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return " ".join(filter(None, [digest, f"{self.text.count(chr(10))} lines", self.note]))


def generate(model: str) -> dict[str, Generated]:
    """The texts of one model by key."""
    found: dict[str, Generated] = {}
    graph = prepare(models()[model](), check=CheckLevel.OFF)
    graphs = {"": graph}
    for node in graph:
        for name, body in node.bodies.items():
            graphs[f".{name}"] = prepare(body.copy(), check=CheckLevel.OFF)
    for part, own in graphs.items():
        for target, (named, threads) in TARGETS.items():
            toolchain = Toolchain(Target.named(named), jobs=1)
            program = build_program(own, toolchain, threads=threads, load=False, bf16x2=True)
            found |= _kernels(f"{model}{part}/{target}", program.details)
            found[f"{model}{part}/{target}/plan"] = Generated(_plan(program))
            if model in _ALL_WAYS:
                tile = tile_for(toolchain, threads, bf16x2=True)
                found |= _candidates(f"{model}{part}/{target}", own, tile)
        planned = plan_opencl(own, _DEVICE)
        found |= _kernels(f"{model}{part}/opencl", planned.details)
        launches = [step.launch for step in planned.actions if isinstance(step, LaunchStep)]
        sizes = [f"{each.geometry} scratch {each.scratch_bytes}\n" for each in launches]
        found[f"{model}{part}/opencl/plan"] = Generated("".join(sizes))
    return found


def prelude_texts() -> dict[str, Generated]:
    """What all kernels of a language begin with."""
    build = models()["state"]
    toolchain = Toolchain(Target.named("x86_64-avx2"), jobs=1)
    program = build_program(prepare(build()), toolchain, load=False)
    ((_, header),) = {each for unit in program.details.units for each in unit.headers}
    (unit,) = plan_opencl(prepare(build()), _DEVICE).details.units
    opening = unit.source.partition(unit.functions[0].text)[0]
    return {"prelude/c": Generated(header), "prelude/opencl": Generated(opening)}


def _plan(program: Program) -> str:
    """What a run needs to know of the kernels beside their text."""
    plan = program.plan
    lines = [f"arena {plan.arena_bytes} weights {program.weights.nbytes}"]
    for action in plan.actions:
        if isinstance(action, Segment):
            steps = [action.plan.steps[number] for number in range(action.plan.n_steps)]
            lines += [f"tasks {step.tasks} grain {step.grain}" for step in steps]
            lines.append(f"scratch {action.plan.scratch_bytes}")
    return "".join(f"{line}\n" for line in lines)


def _kernels(place: str, details: Details) -> dict[str, Generated]:
    functions = {each.symbol: each.whole_text for each in _functions(details.units)}
    names = [step.name for step in details.steps if not step.residual]
    steps = [step for step in details.steps if not step.residual]
    found = {}
    for name, step in zip(_numbered(names), steps, strict=True):
        text = functions[step.symbol].replace(step.symbol, step.name) if step.symbol else ""
        found[f"{place}/{name}"] = Generated(text, step.why_reference)
    return found


def _functions(units: Sequence[KernelUnit]) -> Iterator[KernelFunction]:
    for unit in units:
        yield from unit.functions


def _candidates(place: str, graph: Graph, tile: Tile) -> dict[str, Generated]:
    """Whatever tuning would try: by kernel and algorithm, the texts one after the other."""
    texts: dict[str, list[str]] = {}
    entries = list(fuse(graph, find_groups(graph)))
    for name, entry in zip(_numbered([each.name for each in entries]), entries, strict=True):
        group = Group(graph, entry.name, entry.members, entry.inputs, entry.outputs)
        for choice in candidates(group, entry.anchor, tile):
            emitted = emit([lower_choice(group, entry.anchor, tile, choice)], [[name]])
            key = f"{place}/{name}.{kind_of(choice).replace(' ', '_')}"
            texts.setdefault(key, []).extend(
                # Which of several kernels of one name it is for is not in the symbol.
                each.whole_text.replace(each.symbol, f"{entry.name}_{each.symbol[-16:]}")
                for each in emitted.units[0].functions
                if each.symbol in emitted.symbols
            )
    return {
        key: Generated("\n".join(each), f"in {len(each)} kernels") for key, each in texts.items()
    }


def _numbered(names: Sequence[str]) -> list[str]:
    """Names told apart where several are the same: `conv`, `conv.2`, `conv.3`."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return found
