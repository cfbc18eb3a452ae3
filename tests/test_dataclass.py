"""Data classes whose methods are made late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
import threading
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from whence.dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    kind: ClassVar[str] = "point"
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)

    def shifted(self, by: int) -> Point:
        return replace(self, x=self.x + by)


@dataclasses.dataclass(frozen=True, slots=True)
class StandardPoint:
    kind: ClassVar[str] = "point"
    x: int
    y: float = 0.5
    tags: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Placed(Point):
    z: int = 3


@dataclasses.dataclass(frozen=True, slots=True)
class StandardChild(Point):
    z: int = 3


@dataclass(frozen=True, slots=True)
class ChildOfStandard(StandardPoint):
    z: int = 3


@dataclass(slots=True)
class Counter:
    count: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    total: int = field(init=False, default=7)
    late: int = field(init=False)

    def __post_init__(self) -> None:
        self.late = self.count + 1


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    value: int


@dataclass(frozen=True, slots=True, repr=False)
class Plain(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class One:
    value: object


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class OwnMethods:
    value: int

    def __repr__(self) -> str:
        return f"<{self.value}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OwnMethods)

    def __hash__(self) -> int:
        return 5


@dataclass(frozen=True, slots=True)
class OwnEquality:  # noqa: PLW1641
    value: int

    def __eq__(self, other: object) -> bool:
        return True


def test_it_prints_compares_and_hashes_as_the_standard_one_does() -> None:
    ours, theirs = Point(1, note="n"), StandardPoint(1, note="n")
    assert repr(ours) == repr(theirs).replace("StandardPoint", "Point")
    assert hash(ours) == hash(theirs)
    assert ours == Point(1, 0.5, ["other"], "n")
    assert ours != Point(2, note="n")
    alike: list[object] = [ours]
    assert theirs not in alike
    assert Point.__match_args__ == StandardPoint.__match_args__
    assert [each.name for each in fields(Point)] == [each.name for each in fields(StandardPoint)]
    assert Point.__slots__ == StandardPoint.__slots__
    assert not hasattr(ours, "__dict__")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours.shifted(4) == Point(5, note="n")
    assert Point.kind == "point"


def test_defaults_are_made_for_each_object() -> None:
    assert Point(1).tags is not Point(1).tags
    one, two = Counter(), Counter(3)
    assert (one.count, one.total, one.late, two.late) == (0, 7, 1, 4)
    assert one.seen is not two.seen
    one.count = 9
    assert one == Counter(9) or one.late != Counter(9).late
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_wrong_arguments_are_refused_at_the_first_call_and_later() -> None:
    @dataclass(frozen=True, slots=True)
    class Fresh:
        a: int

    unmade: Any = Fresh
    for _ in range(2):
        with pytest.raises(TypeError, match=r"Fresh.__init__\(\) missing 1 required positional"):
            unmade()
        with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
            unmade(1, b=2)
    assert Fresh(1).a == 1


def test_frozen_objects_stay_as_they_are() -> None:
    point: Any = Point(1)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    with pytest.raises(FrozenInstanceError):
        point.other = 2

    class Open(Point):
        pass

    opened: Any = Open(1)
    opened.other = 2
    assert opened.other == 2
    with pytest.raises(FrozenInstanceError):
        opened.x = 2


def test_identity_own_methods_and_few_fields() -> None:
    assert Identity(1) != Identity(1)
    assert len({Identity(1), Identity(1)}) == 2
    plain = Plain(1)
    assert object.__repr__(plain) == repr(plain)
    assert Plain([1]) == Plain([1])
    assert (repr(OwnMethods(3)), hash(OwnMethods(3)), OwnMethods(3)) == ("<3>", 5, OwnMethods(4))
    assert hash(OwnEquality(3)) == hash((3,))
    assert (Nothing(), hash(Nothing()), repr(Nothing())) == (Nothing(), hash(()), "Nothing()")
    # As in a tuple, a value equals itself.
    assert One(float("nan")) != One(float("nan"))
    same = float("nan")
    assert One(same) == One(same)


def test_an_object_that_holds_itself_can_be_printed() -> None:
    held: list[object] = []
    one = One(held)
    held.append(one)
    assert repr(one) == "One(value=[...])"


@pytest.mark.parametrize("kind", [Placed, StandardChild, ChildOfStandard])
def test_classes_derive_from_and_to_standard_ones(kind: type[Any]) -> None:
    one = kind(1, z=4)
    assert (one.x, one.y, one.z) == (1, 0.5, 4)
    assert [each.name for each in fields(kind)] == ["x", "y", "tags", "note", "z"]
    assert one == kind(1, z=4) != kind(1, z=5)
    assert hash(one) == hash(kind(1, z=4))
    assert repr(one) == f"{kind.__name__}(x=1, y=0.5, tags=[], z=4)"
    assert kind.__slots__ == ("z",)
    with pytest.raises(FrozenInstanceError):
        one.x = 2
    assert pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("one", [Point(1, 2.5, ["a"]), Placed(1), Counter(4), Plain((1,)), One(2)])
def test_objects_are_copied_and_pickled(one: object) -> None:
    assert copy.copy(one) == one
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one


def test_patterns_match_by_position() -> None:
    match Point(1, 2.0):
        case Point(x, y):
            assert (x, y) == (1, 2.0)


def test_many_threads_may_make_the_first_object() -> None:
    @dataclass(frozen=True, slots=True)
    class Shared:
        a: int

    made: list[Shared] = []
    threads = [threading.Thread(target=lambda: made.append(Shared(1))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert made == [Shared(1)] * 8


def test_what_the_standard_one_is_for_is_refused() -> None:
    with pytest.raises(TypeError, match=r"without slots: use dataclasses\.dataclass"):
        dataclass(slots=False)
    with pytest.raises(ValueError, match="all objects would share this default"):

        @dataclass(frozen=True, slots=True)
        class Wrong:
            values: list[int] = []  # noqa: RUF012


def test_importing_the_compiler_compiles_no_methods() -> None:
    """Half of the time of that import went there."""
    import subprocess

    script = (
        "import dataclasses, sys\n"
        "made = []\n"
        "standard = dataclasses._process_class\n"
        "def counted(cls, *rest, **more):\n"
        "    made.append(cls.__module__)\n"
        "    return standard(cls, *rest, **more)\n"
        "dataclasses._process_class = counted\n"
        "import whence.backends.cpu.generator, whence.building.prepare\n"
        "print(sum(name.startswith('whence') for name in made))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(run.stdout) <= 5
