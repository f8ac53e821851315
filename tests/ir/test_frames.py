"""`CalledFrames` on generated trees of calls, with generators that several functions resume."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType

from hypothesis import given, strategies as st

from fxad.core.frames import CalledFrames

# The actions of a function, in order: it looks itself up (None), calls a function (a list), or resumes the shared
# generator.
RESUME = 0
Action = None | int | list["Action"]
actions = st.recursive(st.sampled_from([None, RESUME]), lambda inner: st.lists(inner, max_size=4), max_leaves=25)
bodies = st.lists(actions, max_size=6)


class Calls:
    """Runs a tree of calls, and collects wrong answers of lookups."""

    def __init__(self) -> None:
        self.frames: CalledFrames | None = None
        self.wrong: list[str] = []
        self.inside = False
        self.generator = self.shared()

    def look_up(self, frame: FrameType) -> None:
        if self.frames is not None and (frame in self.frames) != self.inside:
            self.wrong.append(f"{frame.f_code.co_name}: {not self.inside}")

    def shared(self) -> Iterator[None]:
        """A generator that functions inside and outside resume."""
        while True:
            self.look_up(sys._getframe())
            self.called([None])
            yield

    def called(self, todo: list[Action]) -> None:
        """A function that performs the actions."""
        for action in todo:
            if action is None:
                self.look_up(sys._getframe())
            elif isinstance(action, list):
                self.called(action)
            else:
                next(self.generator)

    def base(self, todo: list[Action], then: Callable[[], None]) -> None:
        """The function whose calls are inside."""
        outer, was = self.frames, self.inside
        self.frames, self.inside = CalledFrames(sys._getframe()), True
        self.called(todo)
        self.look_up(sys._getframe())
        then()
        self.called(todo)
        self.inside = was
        ended, self.frames = self.frames, outer
        ended.end()
        assert sys._getframe() not in ended


@given(bodies, bodies, bodies)
def test_exactly_the_frames_of_calls_inside_are_found(
    before: list[Action], inside: list[Action], innermost: list[Action]
) -> None:
    calls = Calls()
    calls.called(before)
    calls.base(inside, lambda: calls.base(innermost, lambda: None))
    calls.called(before)
    assert not calls.wrong


def test_frames_above_the_base_are_not_found() -> None:
    outer = sys._getframe()

    def base() -> bool:
        frames = CalledFrames(sys._getframe())

        def called() -> bool:
            return sys._getframe() in frames

        assert called()
        return outer in frames

    assert not base()
