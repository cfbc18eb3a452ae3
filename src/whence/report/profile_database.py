"""The debug database of a profile whose program is not at hand: another engine's, or one that was
read from a file. It has the operators, the kernels and the times, and so the views of any database;
what passes did is not in it.
"""

from __future__ import annotations

from whence.attribution.database_times import add_times
from whence.attribution.profile import Profile
from whence.debugdb import DebugDatabase
from whence.debugdb.rows import (
    NONE,
    WORD,
    CmdstreamRow,
    FileOperatorRow,
    MemberRow,
    OperatorRow,
    OptimisedRow,
    OriginRow,
    QueueRow,
    SourceOperatorRow,
    StepRow,
)

_NO_SHAPE = (None, None, None, None, None)


def database_of(profile: Profile) -> DebugDatabase:
    """Each kernel counts as one operator of the optimised graph, with ids after those of the file's
    operators.
    """
    db = DebugDatabase(profile.model)
    db.cmdstream.append(CmdstreamRow(0, 0))
    for row in profile.sources:
        positions = row.positions if row.positions is not None else ()
        place = next(iter(positions), None)
        db.source.append(SourceOperatorRow(row.id, row.op, *_NO_SHAPE, place))
        db.operator.append(
            OperatorRow(row.id, row.name, row.scope, row.module, row.line, "", row.fate)
        )
        db.file_operator.extend(
            FileOperatorRow(row.id, row.table_id, each) for each in (positions or (None,))
        )
    first = max((row.id for row in profile.sources), default=0) + 1
    for number, kernel in enumerate(profile.kernels):
        node = first + number
        dominant = max(kernel.origin, key=lambda part: (part.weight, -part.id), default=None)
        db.optimised.append(
            OptimisedRow(
                node,
                NONE if dominant is None else dominant.id,
                " + ".join(kernel.ops) or kernel.name,
                *_NO_SHAPE,
            )
        )
        db.origin.extend(OriginRow(node, part.id, part.weight) for part in kernel.origin)
        db.kernel.append(StepRow(kernel.id, kernel.name, "", 0, 0, kernel.why_reference))
        db.member.append(MemberRow(kernel.id, node, 0, 0, 1.0))
        db.queue.append(QueueRow(WORD * kernel.id, 0, node))
    add_times(db, profile)
    return db
