"""asyncio's promises, kept in virtual time."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator

import pytest

from ottla.sim import Deadlock, Livelock, SimLoop, World
from ottla.sim.engine import loop as loop_module


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop(1)  # type: ignore[abstract]


def test_hours_pass_in_no_time(loop: SimLoop) -> None:
    async def main() -> float:
        begun = loop.time()
        await asyncio.sleep(7200)
        return loop.time() - begun

    assert 7200 <= loop.run_until_complete(main()) < 7200.001


def test_call_soon_keeps_its_order_and_cancelled_calls_do_not_happen(loop: SimLoop) -> None:
    seen: list[int] = []
    handles = [loop.call_soon(seen.append, number) for number in range(10)]
    handles[4].cancel()
    timer = loop.call_later(0.5, seen.append, 99)
    timer.cancel()
    loop.run_until(lambda: False, 1)
    assert seen == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_timers_of_one_instant_come_in_an_order_that_the_seed_draws() -> None:
    def order(seed: int) -> list[int]:
        loop = SimLoop(seed)  # type: ignore[abstract]
        seen: list[int] = []
        when = loop.time() + 1
        for number in range(8):
            loop.call_at(when, seen.append, number)
        loop.run_until(lambda: len(seen) == 8, 2)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 5


def test_timeouts_groups_and_context_variables_behave(loop: SimLoop) -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.sleep(2)

        async def child(number: int) -> int:
            variable.set(number)
            await asyncio.sleep(1 / number)
            return variable.get()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(child(number)) for number in range(1, 5)]
        assert [task.result() for task in tasks] == [1, 2, 3, 4]
        assert variable.get() == 0
        lock, queue = asyncio.Lock(), asyncio.Queue[int](1)
        async with lock:
            await queue.put(1)
        assert list(await asyncio.gather(queue.get(), child(3))) == [1, 3]

    loop.run_until_complete(main())


def test_asyncio_wait_wakes_in_an_order_that_addresses_do_not_decide() -> None:
    def order() -> list[str]:
        loop = SimLoop(3)  # type: ignore[abstract]
        finished: list[str] = []

        async def main() -> None:
            async def work(name: str) -> None:
                finished.append(name)

            tasks = {asyncio.create_task(work(str(i)), name=str(i)) for i in range(20)}
            done, _pending = await asyncio.wait(tasks)
            finished.extend(task.get_name() for task in done)

        loop.run_until_complete(main())
        return finished

    first = order()
    padding = [object() for _ in range(1000)]
    assert order() == first
    assert padding


def test_work_for_threads_runs_inline_and_tells_its_result_or_error(loop: SimLoop) -> None:
    async def main() -> None:
        here = threading.get_ident()
        begun = loop.time()
        assert await asyncio.to_thread(threading.get_ident) == here
        assert loop.time() > begun
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        abandoned = loop.run_in_executor(None, lambda: 1)
        abandoned.cancel()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert loop.unhandled == []


def test_a_real_thread_is_refused(loop: SimLoop) -> None:
    problems: list[BaseException] = []

    def intrude() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except RuntimeError as problem:
            problems.append(problem)

    async def main() -> None:
        thread = threading.Thread(target=intrude)
        thread.start()
        thread.join()
        loop.call_soon_threadsafe(lambda: None)

    loop.run_until_complete(main())
    assert len(problems) == 1


def test_a_wait_that_nothing_can_end_is_a_deadlock(loop: SimLoop) -> None:
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_callbacks_without_end_are_a_livelock(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "BUSY_CALLBACKS_MAX", 10_000)

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(Livelock):
        loop.run_forever()


def test_waiting_until_just_after_now_arrives(loop: SimLoop) -> None:
    async def main() -> None:
        deadline = loop.time() + 1e-9
        while loop.time() <= deadline:  # noqa: ASYNC110
            await asyncio.sleep(0)

    loop.run_until_complete(main())


def test_many_cancelled_timers_do_not_pile_up(loop: SimLoop) -> None:
    async def main() -> None:
        for _ in range(5000):
            async with asyncio.timeout(3600):
                await asyncio.sleep(0)

    loop.run_until_complete(main())
    assert len(loop._heap) < 500


def test_what_nobody_handles_is_recorded(loop: SimLoop) -> None:
    loop.call_soon(lambda: 1 // 0)
    loop.run_until(lambda: False, 1)
    assert [type(problem.exception) for problem in loop.unhandled] == [ZeroDivisionError]
    handled: list[object] = []
    loop.set_exception_handler(lambda _loop, context: handled.append(context["message"]))
    loop.call_soon(lambda: 1 // 0)
    loop.run_until(lambda: False, 1)
    assert len(handled) == len(loop.unhandled) == 1


def test_an_abandoned_async_generator_is_finished(loop: SimLoop) -> None:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            seen.append("finished")

    async def main() -> None:
        async for _number in numbers():
            break
        await asyncio.sleep(5)
        assert seen == ["finished"]
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()

    loop.run_until_complete(main())


def test_closing_ends_whoever_still_waits_and_refuses_more(loop: SimLoop) -> None:
    seen: list[str] = []

    async def waiting() -> None:
        try:
            await loop.create_future()
        finally:
            loop.call_soon(print)
            seen.append("ended")

    task = loop.create_task(waiting())
    loop.run_until(lambda: False, 1)
    loop.close()
    loop.close()
    assert seen == ["ended"]
    assert not task.done()
    with pytest.raises(RuntimeError):
        loop.call_soon(print)


def test_tasks_begun_by_those_who_are_ended_are_ended_too(loop: SimLoop) -> None:
    seen: list[str] = []

    async def last_words() -> None:
        seen.append("never said")

    async def waiting() -> None:
        try:
            await loop.create_future()
        finally:
            loop.create_task(last_words())
            await asyncio.sleep(1)

    task = loop.create_task(waiting())
    loop.run_until(lambda: False, 1)
    digest = loop.trace.digest()
    loop.close()
    assert seen == [] and not task.done()
    assert loop.trace.digest() == digest and loop.unhandled == []


def test_a_runner_takes_it_for_a_loop_like_any_other() -> None:
    async def main() -> int:
        await asyncio.sleep(10)
        return 7

    with asyncio.Runner(loop_factory=lambda: SimLoop(1)) as runner:  # type: ignore[abstract]
        assert runner.run(main()) == 7


def test_what_a_simulation_cannot_do_raises_instead_of_reaching_the_system(loop: SimLoop) -> None:
    with pytest.raises(NotImplementedError):
        loop.add_reader(0, print)
    with pytest.raises(RuntimeError):
        loop.set_debug(True)
    with pytest.raises(RuntimeError):
        loop.set_default_executor(None)


def test_run_until_stops_at_the_condition_or_at_the_limit() -> None:
    with World(1) as world:
        begun = world.loop.time()
        assert not world.run_until(lambda: False, 3)
        assert world.loop.time() == begun + 3
        assert world.run_until(lambda: True, 3)
        assert world.loop.time() == begun + 3


def test_a_wall_clock_may_be_wrong_and_step_back_while_the_monotonic_one_goes_on() -> None:
    with World(1) as world:
        one, other = world.node("a"), world.node("b")
        one.clock.wall_error_ms = -3_600_000
        assert other.clock.wall_ms() - one.clock.wall_ms() == 3_600_000
        before = one.clock.monotonic()
        world.run_for(2)
        one.clock.wall_error_ms -= 10_000
        assert one.clock.monotonic() == pytest.approx(before + 2)
