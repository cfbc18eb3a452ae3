"""`dataclasses.dataclass` for classes with slots, whose methods are made when they are first called.

The standard decorator writes six methods for each class as text and compiles them, and makes a
signature for its documentation: 0.8 ms a class, which is half of what importing the compiler takes.
Here only `__init__` is compiled, at the first call; the other methods need no text of their own.

Everything else is as in the standard library: what a class is like (frozen or not, compared by its
fields or by identity), `field`, `fields`, `replace`, inheritance from and by standard data classes,
pickling. `order`, `kw_only`, `InitVar` and classes without slots are left to the standard one.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, field, fields
from operator import attrgetter
from types import FunctionType, MemberDescriptorType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
_CLASS_VARIABLE = re.compile(r"(\w+\.)?ClassVar\b")
_FIELDS, _PARAMETERS = "__dataclass_fields__", "__dataclass_params__"
_USE_STANDARD = "use dataclasses.dataclass for this class"

if TYPE_CHECKING:
    # To a type checker, they are what the standard library makes.
    from dataclasses import dataclass as dataclass  # noqa: PLC0414
else:

    def dataclass(
        *, slots: bool, frozen: bool = False, eq: bool = True, repr: bool = True
    ) -> Callable[[type[T]], type[T]]:
        """As `dataclasses.dataclass`; `slots` has to be True."""
        if not slots:
            raise TypeError(f"a data class without slots: {_USE_STANDARD}")
        return lambda cls: _made(cls, is_frozen=frozen, has_eq=eq, has_repr=repr)


def _made(cls: type[T], *, is_frozen: bool, has_eq: bool, has_repr: bool) -> type[T]:
    own = _own_fields(cls)
    known: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        known.update({each.name: each for each in _fields_of(base)})
    known.update(own)
    # Slots exist from the moment a class is made, so this one is made anew, as the standard does.
    contents = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in own and name not in {"__dict__", "__weakref__"}
    }
    inherited = {slot for base in cls.__mro__[1:-1] for slot in _slots_of(base)}
    contents["__slots__"] = tuple(name for name in own if name not in inherited)
    contents[_FIELDS] = known
    contents[_PARAMETERS] = SimpleNamespace(
        init=True, repr=has_repr, eq=has_eq, order=False, unsafe_hash=False, frozen=is_frozen,
        match_args=True, kw_only=False, slots=True, weakref_slot=False,
    )  # fmt: skip
    contents.setdefault("__match_args__", tuple(each.name for each in known.values() if each.init))
    _add_methods(contents, tuple(known.values()), is_frozen, has_eq, has_repr)
    # `Any`: methods of this class are assigned, and those of its metaclass are not known.
    metaclass: Any = type(cls)
    made: Any = metaclass(cls.__name__, cls.__bases__, contents)
    made.__qualname__ = cls.__qualname__
    if "__init__" not in contents:
        made.__init__ = _init_when_called(made, is_frozen)
    if is_frozen:
        made.__setattr__, made.__delattr__ = _refusing(made, known)
    found: type[T] = made
    return found


def _own_fields(cls: type) -> dict[str, Field[Any]]:
    """What the class itself annotates, except class variables."""
    found = {}
    # `inspect.get_annotations` is for annotations that are not text.
    for name, kind in cls.__dict__.get("__annotations__", {}).items():  # noqa: RUF063
        if not isinstance(kind, str):
            raise TypeError(
                f"{cls.__qualname__}.{name}: its module does not import annotations from"
                f" __future__; {_USE_STANDARD}"
            )
        if _CLASS_VARIABLE.match(kind):
            continue
        default = cls.__dict__.get(name, MISSING)
        if isinstance(default, Field):
            one = default
        else:
            if default.__class__.__hash__ is None:
                raise ValueError(
                    f"{cls.__qualname__}.{name}: all objects would share this default; use"
                    " field(default_factory=...)"
                )
            one = field(default=MISSING if isinstance(default, MemberDescriptorType) else default)
        one.name, one.type, one.kw_only = name, kind, False
        one._field_type = _ORDINARY  # type: ignore[attr-defined]
        found[name] = one
    return found


def _fields_of(cls: type) -> Sequence[Field[Any]]:
    return fields(cls) if hasattr(cls, _FIELDS) else ()


def _slots_of(cls: type) -> Sequence[str]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _add_methods(
    contents: dict[str, Any],
    all_fields: Sequence[Field[Any]],
    is_frozen: bool,
    has_eq: bool,
    has_repr: bool,
) -> None:
    """Those that the class does not have."""
    if has_repr and "__repr__" not in contents:
        contents["__repr__"] = _repr_of([each.name for each in all_fields if each.repr])
    if has_eq:
        # A class that has an __eq__ and no __hash__ has None for it, which nobody asked for.
        has_hash = "__hash__" in contents and not (
            contents["__hash__"] is None and "__eq__" in contents
        )
        if "__eq__" not in contents:
            contents["__eq__"] = _eq_of([each.name for each in all_fields if each.compare])
        if not has_hash:
            hashed = [
                each.name
                for each in all_fields
                if (each.compare if each.hash is None else each.hash)
            ]
            contents["__hash__"] = _hash_of(hashed) if is_frozen else None
    if is_frozen:
        # Unpickling sets attributes, which a frozen object refuses.
        values = _values_of([each.name for each in all_fields])
        contents.setdefault("__getstate__", lambda self: list(values(self)))
        contents.setdefault("__setstate__", _set_state)


def _values_of(names: Sequence[str]) -> Callable[[object], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    if not names:
        return lambda _: ()
    one = attrgetter(names[0])
    return lambda self: (one(self),)


def _repr_of(names: Sequence[str]) -> Callable[[object], str]:
    @reprlib.recursive_repr()
    def shown_as(self: object) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return shown_as


def _eq_of(names: Sequence[str]) -> Callable[[object, object], bool]:
    values = _values_of(names)

    def equals(self: object, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return equals


def _hash_of(names: Sequence[str]) -> Callable[[object], int]:
    values = _values_of(names)
    return lambda self: hash(values(self))


def _set_state(self: Any, state: Sequence[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _refusing(cls: Any, names: dict[str, Any]) -> tuple[Callable[..., None], Callable[..., None]]:
    """What sets and deletes attributes of frozen objects; a class that derives from theirs may have
    attributes of its own.
    """

    def set_attribute(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return set_attribute, delete_attribute


def _init_when_called(cls: Any, is_frozen: bool) -> Callable[..., None]:
    """An `__init__` that puts the real one in its place."""

    def first_init(self: object, /, *given: object, **named: object) -> None:
        made = _compiled_init(cls, is_frozen)
        cls.__init__ = made
        made(self, *given, **named)

    return first_init


def _compiled_init(cls: type, is_frozen: bool) -> FunctionType:
    names: dict[str, Any] = {"_set": object.__setattr__, "_unset": MISSING}
    parameters, body = ["self"], []
    for each in _fields_of(cls):
        name, value = each.name, each.name
        if each.default_factory is not MISSING:
            names[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}()"
            if each.init:
                parameters.append(f"{name}=_unset")
                value += f" if {name} is _unset else {name}"
        elif each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            if each.init:
                parameters.append(f"{name}=_default_{name}")
            else:
                value = f"_default_{name}"
        elif each.init:
            parameters.append(name)
        else:
            continue
        body.append(f"_set(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body or ["pass"])
    exec(text, names)
    made: FunctionType = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made


def _ordinary_kind() -> object:
    """What `dataclasses.fields` knows ordinary fields by."""
    from dataclasses import make_dataclass

    return fields(make_dataclass("Sample", ["one"]))[0]._field_type  # type: ignore[attr-defined]


_ORDINARY = _ordinary_kind()
