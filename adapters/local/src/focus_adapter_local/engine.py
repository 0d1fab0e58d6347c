"""One thread that samples for every policy of a trainer, batching whatever is asked at a time."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import torch

from focus_adapter_local._batch import Request, RunningBatch
from focus_adapter_local._cache import GroupCache, RowCache, SlotCache
from focus_adapter_local.snapshot import Snapshot
from focus_core.errors import TrainerError
from focus_core.policy import Generation

__all__ = ["Engine"]

_CLOSED = "the trainer was closed while it was sampling"


@attrs.define(eq=False)
class _Queue:
    """What one snapshot samples, and who waits for room, first come first served."""

    snapshot: Snapshot
    batch: RunningBatch | None = None
    waiting: deque[Request] = attrs.field(factory=deque)

    @property
    def requests(self) -> list[Request]:
        """Everyone who waits, for rows or for room."""
        return [*(self.batch.requests if self.batch else ()), *self.waiting]

    @property
    def rows(self) -> int:
        """How many are being sampled."""
        return 0 if self.batch is None else len(self.batch)


class Engine:
    """Continuous batching: requests join the running batch between two steps, and leave it.

    Rows of different snapshots are never mixed: the snapshots take turns, a step each.

    Args:
        max_rows: Most rows sampled at a time, over all snapshots; the rest waits in order.
        keep_tokens: Most tokens of finished rows whose keys and values each snapshot keeps.
        threads: CPU threads of a step; ``None`` is torch's own choice.
    """

    def __init__(self, *, max_rows: int, keep_tokens: int = 0, threads: int | None = None) -> None:
        self._max_rows = max_rows
        self._keep_tokens = keep_tokens
        self._threads = threads
        self._news = threading.Condition()
        self._asked: deque[tuple[Snapshot, Request]] = deque()
        self._retired: deque[tuple[Snapshot, Callable[[], None]]] = deque()
        self._cancellations = False
        self._closing = False
        self._queues: dict[int, _Queue] = {}
        self._thread = threading.Thread(target=self._run, name="focus-sampler", daemon=True)
        self._thread.start()

    # The callers' side

    async def sample(self, snapshot: Snapshot, **request: Any) -> list[Generation]:
        """Sample from a snapshot; keywords are those of ``Request`` less ``deliver``.

        A cancelled caller's rows are freed at the next step.

        Raises:
            TrainerError: The forward pass failed, or the engine or the snapshot was closed.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Generation]] = loop.create_future()

        def settle(outcome: list[Generation] | BaseException) -> None:
            if future.done():
                return
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        asked = Request(deliver=lambda outcome: _tell(loop, settle, outcome), **request)
        with self._news:
            if self._closing:
                raise TrainerError(_CLOSED)
            self._asked.append((snapshot, asked))
            self._news.notify()
        try:
            return await future
        except asyncio.CancelledError:
            asked.cancelled = True
            with self._news:
                self._cancellations = True
                self._news.notify()
            raise

    async def retire(self, snapshot: Snapshot) -> None:
        """Forget a snapshot; returns when the engine holds nothing of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle(_: None) -> None:
            if not future.done():
                future.set_result(None)

        with self._news:
            if self._closing:
                return
            self._retired.append((snapshot, lambda: _tell(loop, settle, None)))
            self._news.notify()
        await future

    def close(self) -> None:
        """Stop the thread and wait for it; whoever still waits gets a ``TrainerError``."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join()

    # The thread's side

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            if self._threads is not None:
                torch.set_num_threads(self._threads)
            with torch.inference_mode():
                while self._listen():
                    self._advance_all()
        except BaseException as error:  # a bug here must not leave callers waiting for ever
            failure = error
        with self._news:
            self._closing = True
            asked, self._asked = list(self._asked), deque()
            retired, self._retired = list(self._retired), deque()
        for queue in self._queues.values():
            _fail(queue.requests, failure)
        _fail([request for _, request in asked], failure)
        self._queues.clear()
        for _, done in retired:
            done()

    def _listen(self) -> bool:
        """Take the news; wait for some if there is nothing to sample. False: stop."""
        with self._news:
            while not (self._closing or self._asked or self._retired or self._busy()):
                self._news.wait()
            if self._closing:
                return False
            asked, self._asked = self._asked, deque()
            retired, self._retired = self._retired, deque()
            cancellations, self._cancellations = self._cancellations, False
        # Popped one by one: when an owner is told, no frame here may hold its snapshot any more.
        while asked:
            self._enqueue(*asked.popleft())
        while retired:
            done = self._forget(*retired.popleft())
            done()
        if cancellations:
            for queue in self._queues.values():
                if queue.batch is not None:
                    queue.batch.drop_cancelled()
                queue.waiting = deque(each for each in queue.waiting if not each.cancelled)
        return True

    def _enqueue(self, snapshot: Snapshot, request: Request) -> None:
        self._queues.setdefault(id(snapshot), _Queue(snapshot)).waiting.append(request)

    def _forget(self, snapshot: Snapshot, done: Callable[[], None]) -> Callable[[], None]:
        queue = self._queues.pop(id(snapshot), None)
        if queue is not None:
            _fail(queue.requests, TrainerError("the policy was closed while it was sampling"))
        return done

    def _busy(self) -> bool:
        return self._cancellations or any(
            queue.waiting or queue.rows for queue in self._queues.values()
        )

    def _new_batch(self, snapshot: Snapshot) -> RunningBatch:
        facts = snapshot.facts
        cache: RowCache
        if facts.plain:
            cache = SlotCache(snapshot.forward, facts.layers, facts.device, self._keep_tokens)
        else:
            cache = GroupCache(snapshot.forward, snapshot.model.config, facts.device)
        return RunningBatch(cache, facts.device, joins=facts.plain)

    def _advance_all(self) -> None:
        for queue in self._queues.values():
            self._advance(queue)

    def _advance(self, queue: _Queue) -> None:
        """Let waiting requests in, and take one step."""
        admitted: list[tuple[Request, int]] = []
        try:
            if queue.batch is None:
                queue.batch = self._new_batch(queue.snapshot)
            if queue.batch.joins or not queue.rows:
                room = self._max_rows - sum(each.rows for each in self._queues.values())
                admitted = _admit(queue.waiting, room)
            if admitted:
                queue.batch.join(admitted)
            if queue.rows:
                queue.batch.step()
        except Exception as error:
            running = queue.batch.requests if queue.batch else []
            queue.batch = None
            begun = [each for each in queue.waiting if each.admitted]
            queue.waiting = deque(each for each in queue.waiting if not each.admitted)
            _fail([*running, *begun, *(request for request, _ in admitted)], error)


def _admit(waiting: deque[Request], room: int) -> list[tuple[Request, int]]:
    """Take samples of requests, first come first served, as far as there is room."""
    admitted: list[tuple[Request, int]] = []
    while waiting and room > 0:
        request = waiting[0]
        some = min(room, request.n - request.admitted)
        admitted += [(request, request.admitted + index) for index in range(some)]
        request.admitted += some
        room -= some
        if request.admitted == request.n:
            waiting.popleft()
    return admitted


def _fail(requests: Iterable[Request], cause: BaseException | None) -> None:
    """Tell each caller once, with an error of its own; without a cause the engine was closed."""
    if cause is None:
        message = _CLOSED
    elif isinstance(cause, TrainerError):
        message = str(cause)
    else:
        message = f"sampling failed: {type(cause).__name__}: {cause}"
    for request in {id(each): each for each in requests}.values():
        error = TrainerError(message)
        error.__cause__ = cause
        request.deliver(error)


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[[Any], None], outcome: object) -> None:
    try:
        loop.call_soon_threadsafe(settle, outcome)
    except RuntimeError:  # the loop is closed: nobody waits
        return
