"""Scatter, and reading at computed places."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.harness import Cases


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_scatter_elements(dtype: type):
    cases = Cases()
    for reduction in ("none", "add", "mul", "max", "min"):
        for shape, picked, axis in (
            ((6, 5), (4, 5), 0),
            ((6, 5), (6, 3), 1),
            ((4, 7, 3), (4, 2, 3), 1),
            ((4, 7, 3), (2, 5, 2), 1),
            ((9,), (20,), 0),
        ):
            size = shape[axis]
            if reduction == "none":
                # One place twice with different updates is not defined.
                order = cases.rng.permuted(
                    np.broadcast_to(
                        np.arange(size).reshape(
                            [-1 if at == axis else 1 for at in range(len(shape))]
                        ),
                        (*picked[:axis], size, *picked[axis + 1 :]),
                    ),
                    axis=axis,
                )
                where = np.take(order, range(min(picked[axis], size)), axis=axis)
            else:
                where = cases.rng.integers(-size, size, picked)
            data, updates = (
                cases.feed((cases.rng.standard_normal(part) * 4).astype(dtype))
                for part in (shape, where.shape)
            )
            y = cases.op(
                "ScatterElements",
                data,
                cases.feed(where.astype(np.int64)),
                updates,
                axis=axis,
                reduction=reduction,
            )
            cases.expect(y, f"{reduction}_{shape}_{axis}")
    cases.check()


def test_scatter_nd():
    cases = Cases()
    for reduction in ("none", "add", "mul", "max", "min"):
        for shape, depth, count in (
            ((8,), 1, (5,)),
            ((5, 6), 1, (3,)),
            ((5, 6), 2, (7,)),
            ((3, 4, 5), 2, (2, 3)),
            ((2, 3, 130), 2, (4,)),
        ):
            places = np.stack(
                np.unravel_index(
                    cases.rng.permutation(int(np.prod(shape[:depth])))[: int(np.prod(count))],
                    shape[:depth],
                ),
                axis=-1,
            )
            where = places.reshape(*count, depth).astype(np.int64)
            data, updates = cases.normal(*shape), cases.normal(*count, *shape[depth:])
            cases.expect(
                cases.op("ScatterND", data, cases.feed(where), updates, reduction=reduction),
                f"{reduction}_{shape}_{depth}",
            )
    cases.check()


def test_of_two_updates_the_later_wins():
    cases = Cases()
    data = cases.feed(np.zeros((4, 3), np.float32))
    y = cases.op(
        "ScatterND",
        data,
        cases.const(np.array([[1], [1], [-1]])),
        cases.feed(np.arange(9, dtype=np.float32).reshape(3, 3)),
    )
    cases.expect(y)
    cases.check(peer=False)


def test_gather_nd():
    cases = Cases()
    for shape, batch, depth, count in (
        ((4, 5), 0, 2, (3,)),
        ((4, 5), 0, 1, (2, 3)),
        ((3, 4, 5), 1, 1, (3, 2)),
        ((2, 3, 4, 5), 2, 1, (2, 3)),
        ((3, 4, 5), 0, 2, ()),
    ):
        limits = np.array(shape[batch : batch + depth])
        where = cases.rng.integers(-limits, limits, (*count, depth)).astype(np.int64)
        cases.expect(
            cases.op("GatherND", cases.normal(*shape), cases.feed(where), batch_dims=batch),
            f"{shape}_{batch}_{depth}",
        )
    cases.check()


def test_reverse_sequence():
    cases = Cases()
    lengths = cases.feed(np.array([4, 1, 6], np.int64))
    cases.expect(
        cases.op("ReverseSequence", cases.normal(6, 3, 5), lengths, time_axis=0, batch_axis=1),
        "time_first",
    )
    cases.expect(
        cases.op("ReverseSequence", cases.normal(3, 6), lengths, time_axis=1, batch_axis=0),
        "batch_first",
    )
    cases.check()
