"""`with_enough_stack`: deeply nested work gets further stacks, with the same results and errors."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest

from fxad.core.builder import Builder
from fxad.core.memo import by_value
from fxad.core.stack import nearly_full, run_on_new_stack, with_enough_stack
from fxad.errors import DepthError, ShapeError
from fxad.ir import Aval, Jaxpr
from fxad.primitives.control.call import Call

F = Aval((), "float32")
DEPTH = 320  # more levels than one stack has room for, with several frames for each level


def nest(depth: int) -> Jaxpr:
    """Returns nested programs. The innermost has no equation."""
    b = Builder()
    body = b.build([b.input(F)])
    for _ in range(depth):
        b = Builder()
        x = b.input(F)
        body = b.build(b(Call(body), x), "nested")
    return body


def inner(jaxpr: Jaxpr) -> Jaxpr:
    prim = jaxpr.eqns[0].prim
    assert isinstance(prim, Call)
    return prim.body


variable: ContextVar[str] = ContextVar("variable", default="")


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    for _ in range(500):  # an abandoned thread ends at its next level
        if threading.active_count() <= before:
            break
        time.sleep(0.01)
    assert threading.active_count() <= before


@by_value
def depth_of(jaxpr: Jaxpr, _: object = None) -> int:
    return 1 + depth_of(inner(jaxpr), _) if jaxpr.eqns else 0


def test_any_depth_works_and_the_recursion_limit_stays() -> None:
    limit = sys.getrecursionlimit()
    assert depth_of(nest(3 * limit)) == 3 * limit
    assert sys.getrecursionlimit() == limit


def test_shallow_work_stays_in_its_thread() -> None:
    threads: set[int] = set()

    @by_value
    def visit(jaxpr: Jaxpr) -> int:
        threads.add(threading.get_ident())
        return 1 + visit(inner(jaxpr)) if jaxpr.eqns else 0

    assert visit(nest(32)) == 32
    assert threads == {threading.get_ident()}
    assert visit(nest(DEPTH)) == DEPTH
    assert len(threads) > 1


def test_a_thread_is_used_if_the_callers_have_filled_the_stack() -> None:
    threads: list[int] = []

    @with_enough_stack
    def work() -> bool:
        threads.append(threading.get_ident())
        return nearly_full()

    def recur(frames: int) -> bool:
        return work() if frames == 0 else recur(frames - 1)

    assert recur(10) is False
    assert threads == [threading.get_ident()]
    assert recur(700) is False  # the new stack is empty
    assert threads[1] != threads[0]


@pytest.mark.parametrize("limit", [300, 5000])
def test_any_recursion_limit_works(limit: int) -> None:
    before = sys.getrecursionlimit()
    program = nest(DEPTH)
    sys.setrecursionlimit(limit)
    try:
        assert depth_of(program, limit) == DEPTH
    finally:
        sys.setrecursionlimit(before)


def test_one_thread_at_a_time() -> None:
    running = threading.Lock()

    @by_value
    def visit(jaxpr: Jaxpr) -> int:
        assert running.acquire(blocking=False)
        running.release()
        return 1 + visit(inner(jaxpr)) if jaxpr.eqns else 0

    assert visit(nest(DEPTH)) == DEPTH


def test_context_variables_are_visible_in_the_threads() -> None:
    @by_value
    def read(jaxpr: Jaxpr) -> str:
        return read(inner(jaxpr)) if jaxpr.eqns else variable.get()

    token = variable.set("mine")
    try:
        assert read(nest(DEPTH)) == "mine"
    finally:
        variable.reset(token)


class Mine(BaseException):
    pass


@pytest.mark.parametrize("error", [ValueError("innermost"), Mine("innermost"), KeyboardInterrupt("innermost")])
def test_an_error_propagates_through_every_level(error: BaseException) -> None:
    seen: list[Jaxpr] = []

    @by_value
    def fail(jaxpr: Jaxpr) -> int:
        if not jaxpr.eqns:
            raise error
        try:
            return fail(inner(jaxpr))
        except BaseException:
            seen.append(jaxpr)
            raise

    program = nest(DEPTH)
    with pytest.raises(type(error)) as caught:
        fail(program)
    assert caught.value is error
    assert len(seen) == DEPTH
    assert seen[-1] is program


def test_an_error_names_the_line_that_called() -> None:
    @by_value
    def fail(jaxpr: Jaxpr) -> int:
        if not jaxpr.eqns:
            raise ShapeError("no")
        return fail(inner(jaxpr))

    def user() -> int:
        return run_on_new_stack(lambda: run_on_new_stack(broken))

    with pytest.raises(ShapeError) as caught:
        user()
    assert "test_stack.py" in caught.value.caller
    assert "in broken" in caught.value.caller  # the innermost line of the user, in whichever thread it runs


def broken() -> int:
    raise ShapeError("no")


def test_a_system_without_threads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    program = nest(DEPTH)

    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    with pytest.raises(DepthError) as caught:
        depth_of(program, "unknown")
    assert caught.value.message == (
        "programs are nested too deeply: a pass needs a further thread, and there is none: can't start new thread"
    )
    assert caught.value.remedy == "open some of the calls with fxad.inline, or loop over one body with fxad.lax.scan"
    monkeypatch.undo()
    assert depth_of(program, "unknown") == DEPTH


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this platform has no timers")
def test_an_interrupted_call_leaves_no_running_thread() -> None:
    program = nest(DEPTH)
    visits: list[Jaxpr] = []

    @by_value
    def slow(jaxpr: Jaxpr) -> int:
        visits.append(jaxpr)
        time.sleep(0.001)
        return 1 + slow(inner(jaxpr)) if jaxpr.eqns else 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before: Callable[..., object] | int | None = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            slow(program)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(visits) < DEPTH
    count = len(visits)
    assert slow(program) == DEPTH
    assert len(visits) > count


def test_an_interrupt_while_a_thread_starts_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the pass went on in the thread, beside what the user did next."""
    visits: list[Jaxpr] = []

    @by_value
    def slow(jaxpr: Jaxpr) -> int:
        visits.append(jaxpr)
        time.sleep(0.001)
        return 1 + slow(inner(jaxpr)) if jaxpr.eqns else 0

    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    program, before = nest(3 * DEPTH), threading.active_count()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        slow(program)
    monkeypatch.undo()
    while threading.active_count() > before:
        time.sleep(0.01)
    assert len(visits) < 3 * DEPTH
    assert slow(program) == 3 * DEPTH
