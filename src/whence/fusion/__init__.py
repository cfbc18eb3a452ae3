"""Fusion: which operators run as one kernel, what each such group reads and makes, and why the rest
was not fused.
"""

from whence.fusion.check import check_fused
from whence.fusion.dominator import find_dominator_groups
from whence.fusion.find import ALGORITHMS, find_groups
from whence.fusion.fuse import FusedGraph, FuseEntry, fuse, subgraph
from whence.fusion.groups import FusibleGroups, MissedFusion, MissReason
from whence.fusion.nnvm import find_fusible_groups
from whence.fusion.partition import GroupLimits
from whence.fusion.printer import print_fused

__all__ = [
    "ALGORITHMS",
    "FuseEntry",
    "FusedGraph",
    "FusibleGroups",
    "GroupLimits",
    "MissReason",
    "MissedFusion",
    "check_fused",
    "find_dominator_groups",
    "find_fusible_groups",
    "find_groups",
    "fuse",
    "print_fused",
    "subgraph",
]
