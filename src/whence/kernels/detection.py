"""Boxes that a detector found, decoded against anchors, the best of those that overlap kept.

    box i = corners of anchor i, moved and scaled by code i
    kept  = the best box that is left, again and again; what overlaps it too much leaves

Of a detector's thousands of boxes a few dozen are kept: each takes two walks over all of them, one
for the best and one for what it rules out. With `is_regular`, boxes are suppressed within each
class, and the best of all classes are listed; else by their best class, and each that is kept is
listed with its best classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whence.errors import UnsupportedError
from whence.graph import Node
from whence.kernels.builder import Builder, Pointer
from whence.kernels.expressions import apply, cast, select
from whence.kernels.group import Group
from whence.kernels.ir import (
    Count,
    CountValue,
    Expr,
    Fn,
    Holds,
    Kernel,
    Literal,
    Micro,
    Stmt,
    ValueCount,
    least,
    most,
)
from whence.ops.attributes import get_float, get_int
from whence.types import DType

# Beyond this a list that is shifted for every entry is the wrong way.
_MOST = 512

_SIDES = 4


def _number(value: float) -> Expr:
    return Literal(value, DType.F32)


@dataclass(frozen=True, slots=True)
class Detection(Micro):
    """One work item: what is found among all boxes."""

    codes: str
    scores: str
    anchors: str
    places: str | None
    labels: str | None
    values: str | None
    count: str | None
    boxes: int
    code_length: int
    score_length: int
    """Of a box: its classes, and before them the background where a file has it."""
    classes: int
    rows: int
    limit: int
    """How many boxes are kept, of all classes."""
    each: int
    """How many of one class are kept, if `is_regular`; else how many classes of a box are listed.
    """
    is_regular: bool
    scales: tuple[float, float, float, float]
    threshold: float
    floor: float

    @property
    def scratch_bytes(self) -> int:
        """Of the corners, the score that boxes are kept by, and whether each is left."""
        return (_SIDES + 2) * self.boxes * 4

    def program(self, kernel: Kernel) -> tuple[Stmt, ...]:
        build = Builder()
        with build.tasks(kernel.tasks):
            corners = build.scratch("corners")
            best = build.scratch("best", offset=_SIDES * self.boxes)
            left = build.scratch("left", DType.I32, offset=(_SIDES + 1) * self.boxes)
            self._clear(build)
            with build.loop("i", self.boxes) as i:
                self._decode(build, corners, i)
            write = self._regular if self.is_regular else self._fast
            found = write(build, corners, best, left)
            if self.count is not None:
                total = cast(CountValue(found, DType.I32), DType.F32)
                build.assign(build.buffer(self.count)[0], total)
        return build.finish()

    def _clear(self, build: Builder) -> None:
        sizes = ((self.places, _SIDES), (self.labels, 1), (self.values, 1))
        for name, size in sizes:
            if name is not None:
                build.fill(build.buffer(name), 0, self.rows * size)

    def _decode(self, build: Builder, corners: Pointer, i: Count) -> None:
        """The corners of box `i`."""
        codes, anchors = build.buffer(self.codes), build.buffer(self.anchors)
        for side in range(2):
            size = anchors[i * _SIDES + side + 2]
            moved = codes[i * self.code_length + side] / _number(self.scales[side])
            grown = codes[i * self.code_length + side + 2] / _number(self.scales[side + 2])
            centre = build.let("centre", moved * size + anchors[i * _SIDES + side])
            half = build.let("half", _number(0.5) * apply(Fn.EXP, grown) * size)
            build.assign(corners[i * _SIDES + side], centre - half)
            build.assign(corners[i * _SIDES + side + 2], centre + half)

    # ---- which are listed ----

    def _fast(self, build: Builder, corners: Pointer, best: Pointer, left: Pointer) -> Count:
        scores = build.buffer(self.scores)
        with build.loop("i", self.boxes) as i:
            top = build.variable("top", scores[self._score(i, 0)])
            is_number = build.count_variable("is_number", 1)
            with build.loop("c", self.classes) as c:
                x = build.let("x", scores[self._score(i, c)])
                build.assign(top, select(apply(Fn.LT, top, x), x, top))
                with build.when(Holds(apply(Fn.ISNAN, x))):
                    build.set(is_number, 0)
            build.assign(best[i], top)
            build.assign(left[i], self._is_good(top))
            # A box whose best class nobody can tell has none.
            with build.when(is_number < 1):
                build.assign(left[i], Literal(0, DType.I32))

        def listed(box: Count, number: Count) -> None:
            label = build.count_variable("label", -1)
            with build.loop("rank", min(self.each, self.classes)) as rank:
                self._next_class(build, box, label)
                row = build.count("row", number * self.each + rank)
                self._list(build, corners, row, box, label, scores[self._score(box, label)])

        return self._suppress(build, corners, best, left, self.limit, listed)

    def _next_class(self, build: Builder, box: Count, label: Count) -> None:
        """The best class behind `label`, of equals the first; the best of all if that is -1."""
        scores = build.buffer(self.scores)
        chosen = build.count_variable("chosen", -1)
        with build.loop("c", self.classes) as c:
            x = build.let("x", scores[self._score(box, c)])
            before = build.let("before", scores[self._score(box, most(label, 0))])
            behind = (label < 0) | Holds(apply(Fn.LT, x, before))
            behind = behind | (Holds(apply(Fn.EQ, x, before)) & (c > label))
            leads = (chosen < 0) | Holds(apply(Fn.LT, scores[self._score(box, most(chosen, 0))], x))
            with build.when(behind & leads):
                build.set(chosen, c)
        build.set(label, chosen)

    def _regular(self, build: Builder, corners: Pointer, best: Pointer, left: Pointer) -> Count:
        scores = build.buffer(self.scores)
        total = build.count_variable("total", 0)
        ranked = build.array("ranked", self.limit)
        of_box = build.array("of_box", self.limit, dtype=DType.I32)
        of_class = build.array("of_class", self.limit, dtype=DType.I32)
        with build.loop("c", self.classes) as c:
            with build.loop("i", self.boxes) as i:
                x = build.let("x", scores[self._score(i, c)])
                build.assign(best[i], x)
                build.assign(left[i], self._is_good(x))

            def listed(box: Count, number: Count) -> None:
                x = build.let("x", best[box])
                with build.when(
                    (total < self.limit) | Holds(apply(Fn.LT, ranked[self.limit - 1], x))
                ):
                    at = build.count_variable("at", least(total, self.limit - 1))
                    build.set(total, least(total + 1, self.limit))
                    # Of equals the earlier stays in front.
                    with build.repeat((at > 0) & Holds(apply(Fn.LT, ranked[at - 1], x))):
                        for each in (ranked, of_box, of_class):
                            build.assign(each[at], each[at - 1])
                        build.set(at, at - 1)
                    build.assign(ranked[at], x)
                    build.assign(of_box[at], CountValue(box, DType.I32))
                    build.assign(of_class[at], CountValue(c, DType.I32))

            self._suppress(build, corners, best, left, self.each, listed)
        with build.loop("row", total) as row:
            box = build.count("box", ValueCount(of_box[row]))
            self._list(build, corners, row, box, ValueCount(of_class[row]), ranked[row])
        return total

    def _list(
        self, build: Builder, corners: Pointer, row: Count, box: Count, label: Count, score: Expr
    ) -> None:
        """A line of the answer."""
        if self.places is not None:
            places = build.buffer(self.places)
            for side in range(_SIDES):
                build.assign(places[row * _SIDES + side], corners[box * _SIDES + side])
        if self.labels is not None:
            number = cast(CountValue(label, DType.I32), DType.F32)
            build.assign(build.buffer(self.labels)[row], number)
        if self.values is not None:
            build.assign(build.buffer(self.values)[row], score)

    # ---- suppressing ----

    def _suppress(
        self,
        build: Builder,
        corners: Pointer,
        best: Pointer,
        left: Pointer,
        limit: int,
        listed: Callable[[Count, Count], None],
    ) -> Count:
        """Keep the best box that is left, `limit` times or until none is; returns how many."""
        kept = build.count_variable("kept", 0)
        more = build.count_variable("more", 1)
        with build.repeat((kept < limit) & (more > 0)):
            winner = build.count_variable("winner", -1)
            with build.loop("i", self.boxes) as i:
                leads = (winner < 0) | Holds(apply(Fn.LT, best[most(winner, 0)], best[i]))
                with build.when(self._is_left(left, i) & leads):
                    build.set(winner, i)
            with build.when(winner < 0):
                build.set(more, 0)
            with build.otherwise():
                build.assign(left[winner], Literal(0, DType.I32))
                with build.loop("i", self.boxes) as i, build.when(self._is_left(left, i)):
                    self._rule_out(build, corners, left, winner, i)
                listed(winner, kept)
                build.set(kept, kept + 1)
        return kept

    def _rule_out(
        self, build: Builder, corners: Pointer, left: Pointer, winner: Count, i: Count
    ) -> None:
        """Box `i` leaves if it overlaps the other too much. One without area overlaps nothing."""
        area, other, common = (_number(1.0),) * 3
        for side in range(2):
            ends = [
                (corners[box * _SIDES + side], corners[box * _SIDES + side + 2])
                for box in (winner, i)
            ]
            low = [build.let("low", apply(Fn.MIN, *pair)) for pair in ends]
            high = [build.let("high", apply(Fn.MAX, *pair)) for pair in ends]
            area, other = area * (high[0] - low[0]), other * (high[1] - low[1])
            shared = apply(Fn.MIN, *high) - apply(Fn.MAX, *low)
            common = common * apply(Fn.MAX, shared, _number(0.0))
        area, other = build.let("area", area), build.let("other", other)
        common = build.let("common", common)
        ratio = common / (area + other - common)
        with build.when(
            Holds(apply(Fn.LT, _number(0.0), area))
            & Holds(apply(Fn.LT, _number(0.0), other))
            & Holds(apply(Fn.LT, _number(self.threshold), ratio))
        ):
            build.assign(left[i], Literal(0, DType.I32))

    def _score(self, box: Count, label: Count | int) -> Count:
        return box * self.score_length + (self.score_length - self.classes) + label

    def _is_good(self, score: Expr) -> Expr:
        return cast(apply(Fn.LE, _number(self.floor), score), DType.I32)

    @staticmethod
    def _is_left(left: Pointer, i: Count) -> Holds:
        return Holds(apply(Fn.LT, Literal(0, DType.I32), left[i]))


def lower_detection(group: Group, anchor: Node) -> Kernel:
    """A kernel for a DetectionPostProcess that keeps a list which is not too long."""
    refs = [ref for ref in anchor.inputs[:3] if ref is not None]
    shapes = [group.shape(ref) for ref in refs]
    if len(refs) < 3 or any(group.dtype(ref) is not DType.F32 for ref in refs):
        raise UnsupportedError(f"'{anchor.name}' reads something else than float32")
    codes, scores, anchors = shapes
    attrs, boxes = anchor.attrs, anchors[0] if anchors else 0
    classes = get_int(attrs, "num_classes", 0)
    limit = get_int(attrs, "max_detections", 0)
    is_regular = bool(get_int(attrs, "use_regular_nms", 0))
    name, usual = ("detections_per_class", 100) if is_regular else ("max_classes_per_detection", 1)
    each = get_int(attrs, name, usual)
    if not (
        len(codes) == len(scores) == 3
        and codes[:2] == scores[:2] == (1, boxes)
        and anchors == (boxes, _SIDES)
        and codes[2] >= _SIDES
        and 1 <= classes <= scores[2]
    ):
        raise UnsupportedError(f"the operands of '{anchor.name}' do not fit together")
    if not (0 < limit <= _MOST and each > 0):
        raise UnsupportedError(f"'{anchor.name}' keeps {limit} boxes")
    inputs, outputs = list(map(group.input_name, refs)), group.output_names(anchor, 4)
    scales = [get_float(attrs, f"{axis}_scale", 1.0) for axis in "yxhw"]
    micro = Detection(
        codes=inputs[0],
        scores=inputs[1],
        anchors=inputs[2],
        places=outputs[0],
        labels=outputs[1],
        values=outputs[2],
        count=outputs[3],
        boxes=boxes,
        code_length=codes[2],
        score_length=scores[2],
        classes=classes,
        rows=limit if is_regular else limit * each,
        limit=limit,
        each=each,
        is_regular=is_regular,
        scales=(scales[0], scales[1], scales[2], scales[3]),
        threshold=get_float(attrs, "nms_iou_threshold", 0.0),
        floor=get_float(attrs, "nms_score_threshold", 0.0),
    )
    return group.kernel(1, micro, scratch_bytes=micro.scratch_bytes)
