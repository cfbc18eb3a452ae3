"""Vela's debug database beside the model that Vela compiled: which operator of the file each
command runs for, and who absorbed the others.

1. A row of `source` is the operator at position `ext_key` of its subgraph. Positions repeat between
   subgraphs, and a row does not say which it belongs to: rows of one subgraph stand together, and
   type and shape decide where that leaves a choice. A database without `ext_key` (Vela up to 3.x)
   is joined by type and shape alone.
2. A row of `queue` runs for the source of its `optimised` row.
3. An operator without a command of its own is absorbed by the one that the table `group` puts it
   with (Regor). Vela's older core keeps no such table: there the maker of its input absorbed it,
   when it is of a kind that the core fuses or turns into nothing.
4. What neither has nor shares a command runs on the CPU, was removed, or is unknown to the
   database; each is told apart.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from whence.debugdb.csv_text import is_integer
from whence.debugdb.rows import OptimisedRow, SourceOperatorRow
from whence.debugdb.tables import DebugDatabase
from whence.errors import ModelError


@dataclass(frozen=True, slots=True)
class ModelOperator:
    """An operator of the model file."""

    id: int
    """1, 2, ... in file order, subgraph after subgraph."""
    name: str
    op: str
    """Its type, as the file calls it: `CONV_2D`."""
    subgraph: int
    index: int
    """Its position in the subgraph, from 0."""
    shape: tuple[int, ...] | None = None
    """Of its first result."""
    makers: tuple[int, ...] = ()
    """The operators that make its inputs, in the order of the inputs."""


class VelaPlace(enum.Enum):
    """Where an operator of the file ended up."""

    COMMAND = "command"
    ABSORBED = "absorbed"
    CPU = "cpu"
    REMOVED = "removed"
    UNKNOWN = "unknown"


class VelaPlacement(NamedTuple):
    """What the database says of one operator of the file."""

    place: VelaPlace
    commands: tuple[int, ...] = ()
    """Positions in the queue; of the operator that absorbed it when it has none itself."""
    into: int | None = None
    """The operator that absorbed it."""
    inferred: bool = False
    """The database does not name the one that absorbed it; it follows from the model."""


class Command(NamedTuple):
    """A row of the queue."""

    operator: int | None
    """Of the file; `None` when Vela links the command to none."""
    members: tuple[str, ...]
    """The types of what runs in it, after optimisation, the command's own first."""
    absorbed: tuple[int, ...]
    """Other operators of the file in it."""
    scheduled: int | None
    """Regor's number of the operation it belongs to."""
    chained: int | None = None
    """The operator whose operation this one is chained to; Vela counts the cycles of both there."""


@dataclass(frozen=True, slots=True)
class Join:
    """By operator of the file, in file order, and by row of the queue."""

    operators: tuple[ModelOperator, ...]
    source_ids: Mapping[int, int]
    """From `source.id` to the operator's id."""
    commands: tuple[Command, ...]
    placements: Mapping[int, VelaPlacement]
    notes: tuple[str, ...] = ()


def join_model(db: DebugDatabase, operators: Sequence[ModelOperator]) -> Join:
    """Tie the database of one compilation to the operators of the model it compiled. A `ModelError`
    when it is another model's.
    """
    notes: list[str] = []
    source_ids = _match_sources(db.source, operators, notes)
    optimised = {row.id: row for row in db.optimised}
    scheduled = _scheduled_ids(db)
    groups = _Groups(db, optimised, source_ids)
    commands = []
    for position, row in enumerate(db.queue):
        made = optimised.get(row.optimised_id)
        own = source_ids.get(made.source_id) if made is not None else None
        members, absorbed = groups.inside(scheduled.get(position))
        first = made.operator if made is not None else "?"
        others = tuple(dict.fromkeys(each for each in absorbed if each != own))
        commands.append(Command(own, (first, *members), others, scheduled.get(position)))
    runs_for = {
        command.scheduled: command.operator for command in commands if command.scheduled is not None
    }
    for position, command in enumerate(commands):
        chain = runs_for.get(groups.leader.get(command.scheduled, -1))
        if chain != command.operator:
            commands[position] = command._replace(chained=chain)
    unlinked = sum(command.operator is None for command in commands)
    if unlinked:
        notes.append(
            f"{unlinked} of {len(commands)} commands are linked to no operator of the model by Vela"
        )
    placements = _locate(db, operators, source_ids, commands)
    return Join(tuple(operators), source_ids, tuple(commands), placements, tuple(notes))


# ---- sources ----

_SAME = {
    "averagepool": "avgpool",
    "concatenation": "concat",
    "concattflite": "concat",
    "logistic": "sigmoid",
    "conv2dbackpropinputswitched": "transposeconv",
    "conv2dbackpropinput": "transposeconv",
    "resizebilinear": "resize",
    "resizenearestneighbor": "resize",
    "packreshaped": "pack",
    "stridedslice": "slice",
}


def _kind(op: str) -> str:
    """What a type is called by the file and by both of Vela's cores, brought to one form."""
    plain = op.lower().replace("_", "").removesuffix("bias")
    plain = plain if plain.endswith("conv2d") else plain.removesuffix("2d")
    return _SAME.get(plain, plain)


def _fits(row: SourceOperatorRow, operator: ModelOperator) -> int:
    """How much speaks for the row being this operator."""
    score = 2 * (_kind(row.operator) == _kind(operator.op))
    if operator.shape is not None and row.ofm_d is not None:
        height, width, depth = (1, 1, 1, *operator.shape)[-3:]
        score += (row.ofm_h, row.ofm_w, row.ofm_d) == (height, width, depth)
    return score


def _match_sources(
    rows: Sequence[SourceOperatorRow], operators: Sequence[ModelOperator], notes: list[str]
) -> dict[int, int]:
    at: dict[int, list[ModelOperator]] = defaultdict(list)
    for operator in operators:
        at[operator.index].append(operator)
    free = {operator.id for operator in operators}
    found: dict[int, int] = {}
    previous, misfits = -1, 0
    for row in sorted(rows, key=lambda row: row.id):
        candidates = [
            each
            for each in (operators if row.ext_key is None else at.get(row.ext_key, []))
            if each.id in free
        ]
        if row.ext_key is None:
            candidates = [each for each in candidates if _kind(each.op) == _kind(row.operator)]
        if not candidates:
            where = f"position {row.ext_key}" if row.ext_key is not None else f"type {row.operator}"
            raise ModelError(
                f"the database is not of this model: its source {row.id} ({row.operator}) is at"
                f" {where}, where the model has no operator left"
            )
        best = max(
            candidates, key=lambda each: (_fits(row, each), each.subgraph == previous, -each.id)
        )
        misfits += _kind(best.op) != _kind(row.operator)
        previous = best.subgraph
        free.discard(best.id)
        found[row.id] = best.id
    if misfits * 2 > len(rows):
        raise ModelError(
            f"the database is not of this model: {misfits} of its {len(rows)} operators are of"
            " another type there"
        )
    if misfits:
        notes.append(
            f"{misfits} operators have another type in the database than in the model; they are"
            " joined by position"
        )
    return found


# ---- groups ----


class _Groups:
    """Regor's table of what was chained or fused into what."""

    def __init__(
        self,
        db: DebugDatabase,
        optimised: Mapping[int, OptimisedRow],
        source_ids: Mapping[int, int],
    ) -> None:
        self._members: dict[int | None, list[tuple[str, int | None]]] = defaultdict(list)
        self.leader: dict[int | None, int] = {}
        performed = {row["id"]: row for row in numbered_rows(db, "perf")}
        queued = set(_scheduled_ids(db).values())
        for row in numbered_rows(db, "group", "id", "group_id"):
            inner, outer = row["id"], row["group_id"]
            self.leader[inner] = outer
            made = optimised.get((performed.get(inner) or {}).get("optimised_id", -1))
            if inner not in queued:
                operator = source_ids.get(made.source_id) if made is not None else None
                self._members[outer].append((made.operator if made is not None else "?", operator))

    def inside(self, scheduled: int | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Types and operators of what an operation absorbed."""
        found = self._members.get(scheduled, [])
        operators = (operator for _, operator in found if operator is not None)
        return tuple(kind for kind, _ in found), tuple(operators)


def numbered_rows(db: DebugDatabase, name: str, *needed: str) -> list[dict[str, int]]:
    """The rows of another writer's table that have these columns, and `id` unless any are named;
    those of their cells that are whole numbers.
    """
    extra = db.extra(name)
    if extra is None:
        return []
    rows = (
        {
            column: int(cell)
            for column, cell in zip(extra.columns, cells, strict=True)
            if is_integer(cell)
        }
        for cells in extra.rows
    )
    return [row for row in rows if row.keys() >= set(needed or ("id",))]


def _scheduled_ids(db: DebugDatabase) -> dict[int, int]:
    """From the position of a queue row to Regor's number of its operation."""
    extra = db.extra("queue_extra")
    label = extra.columns[0] if extra is not None else ""
    rows = numbered_rows(db, "queue_extra", label, "scheduled_id")
    return {row[label]: row["scheduled_id"] for row in rows}


# ---- operators without a command ----

_FUSED = frozenset(
    {
        "relu",
        "relu6",
        "relun1to1",
        "relu0to1",
        "leakyrelu",
        "prelu",
        "tanh",
        "sigmoid",
        "hardswish",
        "elu",
        "gelu",
        "quantize",
        "clamp",
    }
)
_VIEWS = frozenset({"reshape", "squeeze", "expanddims", "identity", "memcpy"})


def _locate(
    db: DebugDatabase,
    operators: Sequence[ModelOperator],
    source_ids: Mapping[int, int],
    commands: Sequence[Command],
) -> dict[int, VelaPlacement]:
    own: dict[int, list[int]] = defaultdict(list)
    absorbed: dict[int, list[int]] = defaultdict(list)
    for position, command in enumerate(commands):
        if command.operator is not None:
            own[command.operator].append(position)
        for each in command.absorbed:
            absorbed[each].append(position)
    rows = {source_ids[row.id]: row for row in db.source if row.id in source_ids}
    made_types: dict[int, set[str]] = defaultdict(set)
    for made in db.optimised:
        if made.source_id in source_ids:
            made_types[source_ids[made.source_id]].add(made.operator)
    by_id = {operator.id: operator for operator in operators}
    on_cpu = {source_ids[each] for each in _passed_through(db) if each in source_ids}
    found: dict[int, VelaPlacement] = {}
    for operator in operators:
        if operator.id in own:
            found[operator.id] = VelaPlacement(VelaPlace.COMMAND, tuple(own[operator.id]))
        elif operator.id in absorbed:
            positions = tuple(absorbed[operator.id])
            found[operator.id] = VelaPlacement(
                VelaPlace.ABSORBED, positions, commands[positions[0]].operator
            )
        elif operator.id not in rows:
            found[operator.id] = VelaPlacement(VelaPlace.UNKNOWN)
        elif operator.id in on_cpu:
            found[operator.id] = VelaPlacement(VelaPlace.CPU)
        else:
            found[operator.id] = _without_command(
                operator,
                rows[operator.id],
                made_types[operator.id],
                by_id,
                own,
                regor=db.extra("perf") is not None,
            )
    return found


def _passed_through(db: DebugDatabase) -> set[int]:
    """Sources that Regor leaves to the CPU."""
    perf = db.extra("perf")
    if perf is None or "operator" not in perf.columns or "source_id" not in perf.columns:
        return set()
    kind, source = perf.columns.index("operator"), perf.columns.index("source_id")
    return {
        int(row[source])
        for row in perf.rows
        if row[kind] == "Passthrough" and is_integer(row[source])
    }


def _without_command(
    operator: ModelOperator,
    row: SourceOperatorRow,
    made_types: set[str],
    by_id: Mapping[int, ModelOperator],
    own: Mapping[int, list[int]],
    *,
    regor: bool,
) -> VelaPlacement:
    kind = _kind(row.operator)
    if regor and not made_types:
        return VelaPlacement(VelaPlace.REMOVED)
    # What became something else was lowered for the NPU, so it cannot run on the CPU.
    lowered = bool(made_types) and row.operator not in made_types
    if kind not in _FUSED | _VIEWS and not lowered:
        return VelaPlacement(VelaPlace.CPU) if made_types else VelaPlacement(VelaPlace.REMOVED)
    maker = operator
    for _ in range(len(by_id)):
        makers = [by_id[each] for each in maker.makers if each in by_id]
        if not makers:
            break
        maker = makers[0]
        if maker.id in own:
            return VelaPlacement(VelaPlace.ABSORBED, tuple(own[maker.id]), maker.id, inferred=True)
        if _kind(maker.op) not in _FUSED | _VIEWS:
            break
    return VelaPlacement(VelaPlace.REMOVED)
