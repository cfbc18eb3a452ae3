"""Where everything came from: source operators, the ledger of transformations, and the tables that
carry origins in files.
"""

from whence.provenance.ledger import Edge, EdgeKind, Entry, Ledger, Outcome, Reason, Tombstone
from whence.provenance.pass_report import PassReport
from whence.provenance.source import NO_ORIGIN, Origin, SourceOp, union_of

__all__ = [
    "NO_ORIGIN",
    "Edge",
    "EdgeKind",
    "Entry",
    "Ledger",
    "Origin",
    "Outcome",
    "PassReport",
    "Reason",
    "SourceOp",
    "Tombstone",
    "union_of",
]
