import asyncio
import sys
import threading

import pytest

from keras_transformer.service.batching import BatchingThread, QueueFull


class Doubling:
    """Doubles numbers once its gate is open, and keeps what it was called with."""

    def __init__(self):
        self.gate, self.has_begun = threading.Event(), threading.Event()
        self.calls = []

    def __call__(self, items):
        self.has_begun.set()
        assert self.gate.wait(60)
        self.calls.append(items)
        return [2 * item for item in items]


async def all_submitted(*requests):
    tasks = [asyncio.ensure_future(request) for request in requests]
    await asyncio.sleep(0)  # a request is submitted in its first step
    return tasks


async def under_load(thread, function):
    """Begins a request with 1, which all that come now have to wait for."""
    (task,) = await all_submitted(thread.run(function, [1]))
    await asyncio.to_thread(function.has_begun.wait, 60)
    return task


def test_requests_that_wait_are_computed_together():
    async def main():
        sizes, double = [], Doubling()
        thread = BatchingThread(5, 100, sizes.append)
        first = await under_load(thread, double)
        others = await all_submitted(*(thread.run(double, [i]) for i in range(11)))
        assert thread.num_waiting() == 11
        double.gate.set()
        assert await asyncio.gather(first, *others) == [
            [2],
            *([2 * i] for i in range(11)),
        ]
        assert sizes == [1, 5, 5, 1]
        thread.stop()

    asyncio.run(main())


def test_each_request_in_turn_gives_an_item():
    async def main():
        double = Doubling()
        thread = BatchingThread(5, 100, lambda size: None)
        first = await under_load(thread, double)
        long, short = await all_submitted(
            thread.run(double, [10, 11, 12, 13, 14, 15, 16]),
            thread.run(double, [20, 21]),
        )
        double.gate.set()
        assert await long == [20, 22, 24, 26, 28, 30, 32]
        assert await short == [40, 42]
        assert double.calls == [[1], [10, 20, 11, 21, 12], [13, 14, 15, 16]]
        await first
        thread.stop()

    asyncio.run(main())


def test_other_functions_have_their_own_batches_in_turn():
    async def main():
        double, calls = Doubling(), []

        def negate(items):
            calls.append(list(double.calls))
            return [-item for item in items]

        thread = BatchingThread(2, 100, lambda size: None)
        first = await under_load(thread, double)
        tasks = await all_submitted(
            thread.run(double, [2, 3, 4]),
            thread.run(negate, [5]),
            thread.run(double, [6]),
        )
        double.gate.set()
        assert await asyncio.gather(*tasks) == [[4, 6, 8], [-5], [12]]
        assert calls == [[[1], [2, 6]]]
        assert double.calls == [[1], [2, 6], [3, 4]]
        await first
        thread.stop()

    asyncio.run(main())


def test_what_is_cancelled_while_it_waits_is_not_computed():
    async def main():
        double = Doubling()
        thread = BatchingThread(5, 100, lambda size: None)
        first = await under_load(thread, double)
        cancelled, kept = await all_submitted(
            thread.run(double, [2, 3]), thread.run(double, [4])
        )
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        double.gate.set()
        assert await asyncio.gather(first, kept) == [[2], [8]]
        assert double.calls == [[1], [4]]
        thread.stop()

    asyncio.run(main())


def test_more_than_may_wait_is_refused_as_a_whole():
    async def main():
        double = Doubling()
        thread = BatchingThread(5, 3, lambda size: None)
        first = await under_load(thread, double)
        (waiting,) = await all_submitted(thread.run(double, [2, 3]))
        with pytest.raises(QueueFull):
            await thread.run(double, [4, 5])
        (last,) = await all_submitted(thread.run(double, [6]))
        double.gate.set()
        assert await asyncio.gather(first, waiting, last) == [[2], [4, 6], [12]]
        thread.stop()

    asyncio.run(main())


def test_an_error_is_that_of_its_batch_alone():
    async def main():
        thread = BatchingThread(5, 100, lambda size: None)

        def invert(items):
            return [1 / item for item in items]

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await thread.run(invert, [1, 0])
            assert await thread.run(invert, [2]) == [0.5]
        thread.stop()

    asyncio.run(main())


def test_what_waits_is_computed_before_the_thread_ends_and_it_can_begin_again():
    async def main():
        double = Doubling()
        thread = BatchingThread(2, 100, lambda size: None)
        first = await under_load(thread, double)
        (waiting,) = await all_submitted(thread.run(double, [2, 3, 4]))
        stopping = asyncio.create_task(asyncio.to_thread(thread.stop))
        ended, _ = await asyncio.wait([stopping], timeout=0.1)
        assert not ended
        double.gate.set()
        await stopping
        assert double.calls == [[1], [2, 3], [4]]
        assert await asyncio.gather(first, waiting) == [[2], [4, 6, 8]]
        assert await thread.run(double, [5]) == [10]
        thread.stop()
        thread.stop()

    asyncio.run(main())


def test_what_waits_for_a_thread_that_dies_fails_and_the_next_one_works(monkeypatch):
    class Deadly(Doubling):
        __hash__ = None

        def __eq__(self, other):
            sys.exit()

    monkeypatch.setattr(threading, "excepthook", lambda *_: None)

    async def main():
        double = Doubling()
        thread = BatchingThread(5, 100, lambda size: None)
        first = await under_load(thread, double)
        waiting = await all_submitted(
            thread.run(Deadly(), [2]), thread.run(double, [3, 4])
        )
        assert not thread.has_died()
        double.gate.set()
        assert await first == [2]
        for error in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(error, RuntimeError)
        assert thread.has_died()
        assert not thread.has_died()
        assert await thread.run(double, [5]) == [10]
        thread.stop()

    asyncio.run(main())


@pytest.mark.parametrize("answer", [[], [1, 2, 3], None, SystemExit])
def test_a_function_that_fails_in_any_way_is_an_error_of_its_batch(answer):
    def function(items):
        if answer is SystemExit:
            raise answer
        return answer

    async def main():
        thread = BatchingThread(5, 100, lambda size: None)
        for _ in range(2):
            with pytest.raises((RuntimeError, TypeError, ValueError)):
                await thread.run(function, [1, 2])
        assert not thread.has_died()
        thread.stop()

    asyncio.run(main())
