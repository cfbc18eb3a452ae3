"""How time is split, in words. One of these stands in every output, so that nobody has to guess
what a share means.
"""

from __future__ import annotations

_ANCHOR = (
    "Of a kernel's operators one is the anchor, for which the kernel is there: the convolution,"
    " product or reduction in it, else the one at which all that it reads comes together. The"
    " others have what they add, the anchor has the rest, reading and writing included. "
)
_COMMON = (
    "Operators folded into constants cost nothing. Inserted layout changes are charged to the"
    " operators that caused them. Integers by largest remainder: sums are exact. Wall time runs"
    " from asking for a run, in the thread that does it, until it is done. dispatch: work around"
    " kernels, before the first, after the last, and around reference implementations; idle: nobody"
    " works on the run yet, or any more; profiler: the clock reads. A kernel's time includes"
    " waiting until all threads are done with their part (waited_ns)."
)

MODELLED = (
    "Modelled: a kernel's measured time is split over the operators in it by what leaving each out"
    " would save. "
    + _ANCHOR
    + "What an operator adds comes from a model with the rates of this machine (`whence doctor` shows"
    " them): arithmetic (products and convolutions from the time that the kernel took, other"
    " operators as measured by element) and the reading of its other operands, by the cache that"
    " holds them; a measured part of the smaller of the two sums hides behind the larger. A node that"
    " several operators became is split by what each cost in the file. " + _COMMON
)

EXACT = (
    "Measured by leaving out: the model was run as it is, and with variants of its kernels in each"
    " of which one operator's result is replaced by its main operand, in turns; the usual"
    " difference between a kernel and its variant is the operator's share. The kernel itself runs"
    " after its variant, so that all others read what they always read. "
    + _ANCHOR
    + "Each kernel has the standard error of what was measured of it: at most a point of the"
    " kernel, or a tenth of a point of the model if that is more, though never above three of the"
    " kernel; the notes say where that was not reached in half a minute, or in two rounds if they"
    " take longer. What cannot be left out is modelled and listed in the notes: operators that"
    " one node stands for, and those whose variant does not compile. Kernels with less than a"
    " thousandth of the time are modelled, too. " + _COMMON
)

REDUCED_PRECISION = (
    "Matrix units make some kernels' float32 products by the bf16x2 split; the outputs do not show"
    " it. --precise leaves them out."
)
"""Said where it is so, as arithmetic that is not the file's own."""
