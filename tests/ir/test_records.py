"""fxad's dataclass decorator agrees with the standard one: the same class is made with both and compared."""

import copy
import dataclasses
import inspect
import pickle
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Self

import pytest

from fxad.core import dataclasses as records


def empty() -> type[Any]:
    class Empty:
        """No fields."""

    return Empty


def one() -> type[Any]:
    class One:
        """One field."""

        a: object

    return One


def many() -> type[Any]:
    class Many:
        """Fields of each kind."""

        kind: ClassVar[str] = "many"
        a: int
        b: object = dataclasses.field(repr=False)
        c: str = "c"
        d: list[int] = dataclasses.field(default_factory=list)
        e: object = dataclasses.field(default=None, compare=False)

        def total(self) -> int:
            return self.a + len(self.d)

    return Many


def checked() -> type[Any]:
    class Checked:  # noqa: PLW1641 -- the decorator adds a hash
        """Some methods of its own."""

        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return self is other

    return Checked


def hashed() -> type[Any]:
    class Hashed:
        """Its own hash."""

        a: object

        def __hash__(self) -> int:
            return 7

    return Hashed


CASES: list[tuple[Callable[[], type[Any]], list[tuple[tuple[Any, ...], dict[str, Any]]]]] = [
    (empty, [((), {}), ((1,), {})]),
    (one, [((1,), {}), ((float("nan"),), {}), (([],), {}), ((), {"a": 2}), ((), {}), ((), {"b": 2})]),
    (many, [((1, 2), {}), ((1, 2), {"d": [3]}), ((1, 2, "c", [3], 5), {}), ((1,), {}), ((1, 2), {"a": 3})]),
    (checked, [((1,), {}), ((-1,), {})]),
    (hashed, [(([],), {})]),
]


def outcome(act: Callable[[], object]) -> object:
    """Returns the result of an action, or its error, without addresses."""
    try:
        return act()
    except Exception as e:
        return type(e), str(e)


def same_hash(x: object) -> bool:
    return hash(x) == hash(copy.copy(x))


def observations(declared: Callable[[], type[Any]], calls: list[Any], decorator: Any, **options: bool) -> list[object]:
    """Returns everything that can be observed of a class and its instances."""
    cls = decorator(frozen=True, slots=True, **options)(declared())
    made = [outcome(partial(cls, *args, **kwargs)) for args, kwargs in calls]
    seen: list[object] = [
        cls.__slots__, cls.__match_args__, cls.__doc__, str(inspect.signature(cls)), cls.__init__.__qualname__,
        [(f.name, f.type, f.repr, f.compare) for f in dataclasses.fields(cls)], dataclasses.is_dataclass(cls),
    ]  # fmt: skip
    for x in made:
        if not isinstance(x, cls):
            seen.append(x)
            continue
        names = [f.name for f in dataclasses.fields(cls)]
        seen += [repr(x) if "__repr__" in vars(cls) else "", [getattr(x, n) for n in names]]
        seen += [[x == y for y in made], x == 1, outcome(partial(same_hash, x))]
        seen += [outcome(partial(setattr, x, n, 1)) for n in names]
        seen += [outcome(partial(delattr, x, n)) for n in names]
        seen += [hasattr(x, "__dict__")]
        seen += [type(dataclasses.replace(x)) is cls, x.__getstate__(), dataclasses.asdict(x)]
    return seen


@pytest.mark.parametrize(("declared", "calls"), CASES, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("options", [{}, {"eq": False}, {"repr": False}], ids=str)
def test_agrees_with_the_standard_decorator(
    declared: Callable[[], type[Any]], calls: list[Any], options: dict[str, bool]
) -> None:
    ours = observations(declared, calls, records.frozen_dataclass, **options)
    standard = observations(declared, calls, dataclasses.dataclass, **options)
    assert [str(a) for a in ours] == [str(b) for b in standard]


@pytest.mark.parametrize("decorator", [records.frozen_dataclass, dataclasses.dataclass])
def test_a_class_with_its_own_new(decorator: Any) -> None:
    """Like the classes of the IR: no `__init__`, identity comparison, and a slot for weak references."""

    class Made:
        a: int
        b: object = dataclasses.field(repr=False)

        def __new__(cls, a: int) -> Self:
            self = object.__new__(cls)
            object.__setattr__(self, "a", a)
            object.__setattr__(self, "b", ())
            return self

    cls = decorator(frozen=True, slots=True, eq=False, init=False, repr=False, weakref_slot=True)(Made)
    x = cls(3)
    assert (x.a, x.b, x == cls(3), weakref.ref(x)() is x) == (3, (), False, True)
    assert (cls.__init__, cls.__match_args__) == (object.__init__, ("a", "b"))
    assert not hasattr(x, "__dict__")
    assert [f.name for f in dataclasses.fields(cls)] == ["a", "b"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        x.a = 4


@records.dataclass(frozen=True, slots=True)
class Point:
    """At module level, so that it is pickled by name."""

    x: int
    y: "Point | None" = None


def test_pickles_and_copies() -> None:
    point = Point(1, Point(2))
    assert pickle.loads(pickle.dumps(point)) == copy.deepcopy(point) == point
    assert hash(pickle.loads(pickle.dumps(point))) == hash(point)


def test_assignments_to_unknown_names_are_refused() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'z'"):
        Point(1).z = 1  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del Point(1).x


def test_the_repr_of_a_recursive_instance_ends() -> None:
    point = Point(1)
    object.__setattr__(point, "y", point)
    assert repr(point) == "Point(x=1, y=...)"


def test_init_is_compiled_at_its_first_use() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Late:
        a: int

    @records.dataclass(frozen=True, slots=True)
    class Later(Late):
        b: int = 2

    assert not inspect.isfunction(vars(Late)["__init__"])
    assert (Later(1).a, Later(1).b) == (1, 2)
    assert inspect.isfunction(vars(Later)["__init__"])
    assert not inspect.isfunction(vars(Late)["__init__"])
    assert Late.__doc__ == "Late(a)"

    barrier, made = threading.Barrier(4), []

    def make() -> None:
        barrier.wait()
        made.append(Late(3))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert made == [Late(3)] * 4


def test_unsupported_options_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"a dataclass of fxad.core.dataclasses is frozen and slotted: use the standard one"
    ):
        records.frozen_dataclass(frozen=True)

    class Odd:
        a: int = dataclasses.field(default=1, init=False)

    with pytest.raises(TypeError, match="Odd: a field that __init__ does not take in order needs the standard one"):
        records.frozen_dataclass(frozen=True, slots=True)(Odd)
