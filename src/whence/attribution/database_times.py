"""The times of a profile in the tables of a debug database."""

from __future__ import annotations

from collections.abc import Mapping

from whence.attribution.profile import Profile
from whence.debugdb import DebugDatabase
from whence.debugdb.rows import AttributedRow, MeasuredRow, ResidualRow


def add_times(
    db: DebugDatabase, profile: Profile, source_ids: Mapping[int, int] | None = None
) -> None:
    """`measured`, `attributed` and `residual`. `source_ids` are those of operators in `source`,
    where the profile has other numbers for them.
    """
    for kernel in profile.kernels:
        db.measured.append(MeasuredRow(kernel.id, kernel.calls, kernel.time_ns, kernel.min_ns))
        for part in kernel.origin:
            source = part.id if source_ids is None else source_ids[part.id]
            db.attributed.append(
                AttributedRow(source, kernel.id, part.weight, part.time_ns, part.inserted_ns)
            )
    db.residual.extend(ResidualRow(name, time) for name, time in profile.residual_ns.items())
