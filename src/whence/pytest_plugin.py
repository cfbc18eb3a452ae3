"""Budgets in tests: `whence_budget(model, "layer3", max_share=0.3)`.

A fixture for teams that keep the time of their models under test. Shares of a run are the same on
every machine of a kind; times are compared with a baseline that was measured on the same kind, and
never with seconds that somebody once wrote down.

    def test_layer3_stays_small(whence_budget):
        whence_budget("model.onnx", "layer3", max_share=0.3)

    def test_no_regression(whence_budget):      # pytest --whence-baseline table/
        whence_budget("model.onnx", "layer3", max_ms_ratio=1.1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from whence.attribution.profile import Profile

OPTION = "--whence-baseline"


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("whence")
    group.addoption(
        OPTION,
        metavar="PATH",
        default="",
        help="a profile.json, or the table of a sweep, that whence_budget compares times with",
    )


class Budget:
    """Profiles each model once in a session, and checks parts of it."""

    def __init__(self, baseline: str) -> None:
        self._baseline = baseline
        self._profiles: dict[tuple[object, ...], Profile] = {}

    def __call__(
        self,
        model: str | Path,
        part: str = "",
        *,
        max_share: float | None = None,
        max_ms_ratio: float | None = None,
        baseline: str | Path = "",
        threads: int = 0,
        runs: int = 50,
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Fail the test when `part` (an operator, a module and all below it, or the whole run)
        takes more of the run than `max_share`, or more than `max_ms_ratio` times what it took in
        the baseline.
        """
        if max_share is None and max_ms_ratio is None:
            raise ValueError("a budget is max_share, max_ms_ratio, or both")
        profile = self._profile(Path(model), threads, runs, shapes or {})
        time_ns, names = time_of(profile, part)
        share = time_ns / profile.wall_ns
        if max_share is not None and share > max_share:
            pytest.fail(
                f"{part or 'the run'} takes {share:.1%} of {Path(model).name}, and may take"
                f" {max_share:.1%}; most in {', '.join(names)}",
                pytrace=False,
            )
        if max_ms_ratio is not None:
            before = baseline_ns(Path(baseline or self._baseline or ""), Path(model), part, threads)
            now = time_ns / profile.runs
            if now > before * max_ms_ratio:
                pytest.fail(
                    f"{part or 'the run'} of {Path(model).name} takes {now / 1e6:.4g} ms,"
                    f" {now / before:.2f} times the {before / 1e6:.4g} ms of the baseline; it may"
                    f" take {max_ms_ratio:g} times as long",
                    pytrace=False,
                )

    def _profile(
        self, model: Path, threads: int, runs: int, shapes: Mapping[str, Sequence[int]]
    ) -> Profile:
        key = (
            model.resolve(),
            threads,
            runs,
            tuple((name, tuple(shape)) for name, shape in sorted(shapes.items())),
        )
        if key not in self._profiles:
            import whence

            self._profiles[key] = whence.profile(model, threads=threads, runs=runs, shapes=shapes)
        return self._profiles[key]


def time_of(profile: Profile, part: str) -> tuple[int, list[str]]:
    """What a part of a model took over all runs, and its heaviest operators."""
    if not part:
        rows = list(profile.sources)
        total = profile.wall_ns
    else:
        rows = [row for row in profile.sources if _is_in(part, row.name, row.module)]
        if not rows:
            pytest.fail(f"'{profile.model}' has no operator and no module '{part}'", pytrace=False)
        total = sum(row.time_ns for row in rows)
    heaviest = sorted(rows, key=lambda row: -row.time_ns)[:3]
    return total, [f"'{row.name}' ({row.share:.1%})" for row in heaviest]


def baseline_ns(baseline: Path, model: Path, part: str, threads: int) -> float:
    """What the part took in a run of the baseline, in nanoseconds."""
    if baseline == Path():
        pytest.fail(
            f"max_ms_ratio needs a baseline: pytest {OPTION} TABLE, or baseline=", pytrace=False
        )
    if (baseline / "whence-table.json").is_file():
        return _from_table(baseline, model, part, threads)
    from whence.attribution.read import read_profile

    found = read_profile(baseline)
    return time_of(found, part)[0] / found.runs


def _from_table(folder: Path, model: Path, part: str, threads: int) -> float:
    """The median over the last nights of the table."""
    import statistics

    from whence.fleet.table import Table

    table = Table(folder)
    with table.connected(table.model_files(model.stem)) as connection:
        rows = connection.execute(
            """SELECT night, name, module, time_ns / runs FROM operator
               WHERE model = ? AND threads = ? AND engine = 'whence' QUALIFY
               dense_rank() OVER (ORDER BY night DESC) <= 7""",
            [model.stem, threads],
        ).fetchall()
    nights: dict[str, float] = {}
    for night, name, module, time in rows:
        if not part or _is_in(part, name, module):
            nights[night] = nights.get(night, 0.0) + time
    if not nights:
        pytest.fail(
            f"the table '{folder}' has no '{part or 'run'}' of {model.stem} with {threads} threads",
            pytrace=False,
        )
    return statistics.median(nights.values())


def _is_in(part: str, name: str, module: str) -> bool:
    return part in (name, module) or module.startswith(f"{part}.")


@pytest.fixture(scope="session")
def whence_budget(request: Any) -> Callable[..., None]:
    """`whence_budget(model, part, max_share=..., max_ms_ratio=...)`; see `Budget`."""
    return Budget(str(request.config.getoption(OPTION)))
