"""What many requests ask for at once, computed together in one thread."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any


class QueueFull(Exception):
    """The maximum number of items are waiting already."""


class BatchingThread:
    """Calls functions of a batch of items, with the items of many requests at a time.

    Batches form under load. A request that comes while nothing is computed is not
    kept waiting; what comes while a batch is computed is in the next one. Each
    request in turn gives an item to the batch, so that a short request does not wait
    for the end of a long one. `observe` is called with the number of items of each.
    """

    def __init__(
        self, max_batch: int, max_waiting: int, observe: Callable[[int], None]
    ):
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._observe = observe
        # Functions, and the items that wait for them, with what takes their results.
        self._requests: list[tuple[Callable, deque[tuple[Any, Future]]]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._has_died = False

    def has_died(self) -> bool:
        """Returns whether the thread has died since this was asked; another begins."""
        with self._changed:
            has_died, self._has_died = self._has_died, False
            return has_died

    def num_waiting(self) -> int:
        """Returns how many items wait."""
        with self._changed:
            return sum(len(items) for _, items in self._requests)

    async def run(self, function: Callable[[list], Sequence], items: Sequence) -> list:
        """Returns the result of a function for each item, or raises `QueueFull`."""
        futures: list[Future] = [Future() for _ in items]
        with self._changed:
            if self.num_waiting() + len(items) > self._max_waiting:
                raise QueueFull
            if items:
                pairs = zip(items, futures, strict=True)
                self._requests.append((function, deque(pairs)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._changed.notify()
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    def stop(self) -> None:
        """Ends the thread once nothing waits."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _work(self):
        try:
            while (taken := self._take_batch()) is not None:
                self._compute(*taken)
        except BaseException:
            with self._changed:
                waiting, self._requests = self._requests, []
                self._thread, self._has_died = None, True
            for _, items in waiting:
                for _, future in items:
                    if future.set_running_or_notify_cancel():
                        future.set_exception(RuntimeError("The thread has died."))
            raise

    def _compute(self, function, batch):
        # False if the request was cancelled.
        batch = [x for x in batch if x[1].set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            self._observe(len(batch))
            results = function([item for item, _ in batch])
            for (_, future), result in list(zip(batch, results, strict=True)):
                future.set_result(result)
        except BaseException as error:  # a panic of Rust is no `Exception`
            fault = error if isinstance(error, Exception) else RuntimeError(repr(error))
            for _, future in batch:
                if not future.done():
                    future.set_exception(fault)

    def _take_batch(self):
        """Waits for items, and returns the items and the function of the next call."""
        with self._changed:
            while not self._requests:
                if self._thread is not threading.current_thread():
                    return None  # it was stopped
                self._changed.wait()
            function, _ = self._requests[0]
            # They compare equal, unlike the identities of bound methods.
            mine = deque(x for x in self._requests if x[0] == function)
            others = [x for x in self._requests if x[0] != function]
            batch = []
            while mine and len(batch) < self._max_batch:
                request = mine.popleft()
                batch.append(request[1].popleft())
                if request[1]:
                    mine.append(request)
            self._requests = [*others, *mine]
            return function, batch
