"""What it costs that several threads take part in a kernel: that is there with any other kernel,
and no prize for mending this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from whence.attribution.findings.finding import per_run

if TYPE_CHECKING:
    from whence.attribution.profile import Profile
    from whence.attribution.rows import KernelRow


def wake_up_ns(profile: Profile, kernel: KernelRow) -> float:
    """What the first kernel of a run that is shared takes longer because threads sleep until then;
    at most what it takes beyond its work. Until a thread is awake, the others do its part.
    """
    first = next((each for each in profile.kernels if _is_shared(each)), None)
    if first is None or first.id != kernel.id:
        return 0.0
    late = _late_ns(profile, kernel)
    if late is None:
        rates = profile.rates
        late = 0.0
        if rates is not None and not rates.disturbed:
            late = rates.wake_ns * (kernel.workers - 1)
    work = kernel.least_ns * kernel.calls / max(1, profile.runs)
    return min(late / kernel.workers, max(0.0, per_run(profile, kernel) - work))


def _late_ns(profile: Profile, kernel: KernelRow) -> float | None:
    """How much later than the calling thread the others began, together, in the run of which each
    noted when it works; `None` where nobody did.
    """
    event = next((each for each in profile.timeline if each.kernel == kernel.id), None)
    began = {
        each.worker: each.begin_ns
        for each in reversed(profile.workers)
        if each.kernel == kernel.id
        and event is not None
        and event.begin_ns <= each.begin_ns <= event.end_ns
    }
    if event is None or 0 not in began:
        return None
    # One that came too late to find any work has no part in it.
    return sum(began.get(worker, event.end_ns) - began[0] for worker in range(1, kernel.workers))


def barrier_ns(profile: Profile, kernel: KernelRow) -> float:
    """In a run: that threads begin together and wait for the last of them."""
    rates = profile.rates
    if rates is None or rates.disturbed:
        return 0.0
    return rates.barrier_ns * kernel.calls / max(1, profile.runs)


def saved_without(profile: Profile, kernels: Sequence[KernelRow]) -> float:
    """What a run takes less without these kernels. If one of them is the first that threads share,
    the next one wakes them up.
    """
    spent = per_run(profile, *kernels)
    gone = {kernel.id for kernel in kernels}
    if not any(_is_shared(each) for each in profile.kernels if each.id not in gone):
        return spent
    return spent - sum(wake_up_ns(profile, kernel) for kernel in kernels)


def _is_shared(kernel: KernelRow) -> bool:
    return kernel.native and kernel.workers > 1
