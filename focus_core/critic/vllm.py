"""A value model behind vLLM's pooling endpoint."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from focus_core.errors import CriticError, UsageError

if TYPE_CHECKING:
    import httpx

__all__ = ["VLLMCritic"]

_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""HTTP statuses that may be different the next time."""

_SPLIT = frozenset({400, 413, 422})
"""HTTP statuses that may be the fault of one text of a request: it is too long, say."""

_CAUSES: Mapping[int, str] = {
    401: "it wants a key: give api_key what vllm serve --api-key was given",
    403: "the key is not allowed to use it: check api_key, and what stands before the server",
    404: "it has no such model or no /pooling: check base_url and model, and that the server was "
    "started as vllm serve MODEL --runner pooling",
}
"""What else a status means, and what to do; no text is at fault."""

_REDUCE: Mapping[str, Callable[[Sequence[Any]], Any]] = {"last": lambda values: values[-1]}


class _Refused(Exception):
    """The server refused a request for what is in it; another part of it may be fine."""


@attrs.define
class _Asked:
    """A text that waits for its value."""

    text: str
    answer: asyncio.Future[float]


class VLLMCritic:
    """Predicts with a model served by ``vllm serve MODEL --runner pooling``.

    One object is one client, for a whole run::

        client = VLLMCritic(base_url="http://localhost:8000", model="value-model")
        critic = Critic.from_fn(client.predict)
        ...
        await client.aclose()

    Predictions asked for at a time travel together. The request is ``POST {base_url}/pooling``
    with ``{"model": ..., "input": [texts]}``; the answer's ``data[i]["data"]`` holds the pooled
    scores of text ``i``: a list of numbers, or, of a token classifier, a list of lists of one
    number. Source: vLLM's Pooling API, ``PoolingCompletionRequest`` and ``PoolingResponse``.

    Args:
        base_url: Root of the server, without ``/v1``.
        model: Its served name.
        reduce: Which pooled score is the value: ``"last"``.
        api_key: What ``vllm serve --api-key`` was given; never shown.
        batch_size: Most texts of a request.
        concurrency: Most requests at a time.
        timeout: Seconds a request may take.
        retries: How often a request is sent again when the server is busy, broken or gone.
        backoff: Seconds before the first of them, doubled each time, up to ``timeout``.

    Raises:
        UsageError: An argument is wrong, or httpx is not installed.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        reduce: Literal["last"] = "last",
        *,
        api_key: str | None = None,
        batch_size: int = 32,
        concurrency: int = 4,
        timeout: float = 60.0,
        retries: int = 4,
        backoff: float = 0.5,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise UsageError(f"base_url is {base_url!r}; give the server's root, http://HOST:PORT")
        if reduce not in _REDUCE:
            raise UsageError(f"reduce is {reduce!r}; there is {', '.join(_REDUCE)}")
        for name, number in (("batch_size", batch_size), ("concurrency", concurrency)):
            if number < 1:
                raise UsageError(f"{name} is {number}; it must be at least 1")
        if not 0 < timeout < math.inf:
            raise UsageError(f"timeout is {timeout}; it must be above 0, finite")
        if retries < 0:
            raise UsageError(f"retries is {retries}; it must be 0 or more")
        if not 0 <= backoff < math.inf:
            raise UsageError(f"backoff is {backoff}; it must be 0 or more, finite")
        try:
            import httpx
        except ImportError as error:
            raise UsageError(
                "VLLMCritic needs httpx, which is not installed: pip install 'focus-core[vllm]'"
            ) from error
        self.base_url = base_url.rstrip("/")
        self.model = model
        self.reduce = reduce
        self._batch_size = batch_size
        self._retries = retries
        self._backoff = backoff
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = httpx.AsyncClient(
            timeout=timeout,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            limits=httpx.Limits(max_connections=concurrency),
        )
        self._slots = asyncio.Semaphore(concurrency)
        self._waiting: deque[_Asked] = deque()
        self._landed = asyncio.Event()

    def __repr__(self) -> str:
        """Without the key."""
        return f"VLLMCritic({self.base_url!r}, {self.model!r}, reduce={self.reduce!r})"

    async def predict(self, text: str) -> float:
        """The value of a state with this context.

        Raises:
            CriticError: The server gave no finite number, not in time, or was closed.
        """
        if self._client is None:
            raise CriticError(f"{self!r} was closed")
        asked = _Asked(text, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        await asyncio.sleep(0)  # let those who ask at the same time join the queue
        try:
            while not asked.answer.done():
                async with self._slots:  # whoever gets a slot asks for the head of the queue
                    if self._waiting and not asked.answer.done():
                        await self._ask_some()
                if not asked.answer.done() and not self._waiting:
                    await self._landed.wait()  # it is on its way, in somebody else's request
        except BaseException:
            if asked in self._waiting:
                self._waiting.remove(asked)
            raise
        return asked.answer.result()

    async def aclose(self) -> None:
        """Close the connections; whoever still waits gets a ``CriticError``. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ask_some(self) -> None:
        """One request for the first of the queue; cancelled, it puts them back."""
        some = [self._waiting.popleft() for _ in range(min(self._batch_size, len(self._waiting)))]
        try:
            await self._ask(some)
        finally:
            self._waiting.extendleft(asked for asked in reversed(some) if not asked.answer.done())
            self._landed.set()
            self._landed = asyncio.Event()

    async def _ask(self, some: Sequence[_Asked]) -> None:
        """Settle every text's answer."""
        try:
            values = await self._values([asked.text for asked in some])
        except _Refused as error:
            if len(some) > 1:  # one text may be too long for the model: find out which
                for asked in some:
                    await self._ask([asked])
                return
            self._settle(some, CriticError(str(error)))
        except CriticError as error:
            self._settle(some, error)
        else:
            self._settle(some, *values)

    @staticmethod
    def _settle(some: Sequence[_Asked], *outcomes: float | CriticError) -> None:
        """Give each its own value or error; one error is everybody's."""
        each = outcomes if len(outcomes) == len(some) else outcomes * len(some)
        for asked, outcome in zip(some, each, strict=True):
            if asked.answer.done():  # its caller was cancelled
                continue
            if isinstance(outcome, CriticError):
                asked.answer.set_exception(CriticError(str(outcome)))
                asked.answer.exception()  # retrieved, should nobody wait any more
            else:
                asked.answer.set_result(outcome)

    async def _values(self, texts: Sequence[str]) -> list[float | CriticError]:
        """The values of some texts, sent again while that may help.

        Raises:
            CriticError: No answer, or none that can be read.
            _Refused: The server does not take these texts together.
        """
        import httpx

        wait, why = self._backoff, ""
        for attempt in range(self._retries + 1):
            if attempt:
                await asyncio.sleep(random.uniform(0.5, 1.0) * wait)
                wait = min(2 * wait, self._timeout)
            if self._client is None:
                raise CriticError(f"{self!r} was closed")
            try:
                async with asyncio.timeout(self._timeout):  # httpx bounds reads, not their sum
                    response = await self._client.post(
                        f"{self.base_url}/pooling", json={"model": self.model, "input": texts}
                    )
            except (httpx.HTTPError, TimeoutError) as error:
                why = f"{type(error).__name__}: {error}".removesuffix(": ")
                continue
            except RuntimeError as error:  # httpx: the client has been closed
                raise CriticError(f"{self!r} was closed") from error
            if response.status_code == 200:
                return self._read(response, len(texts))
            why = f"HTTP {response.status_code}: {' '.join(response.text.split())[:200]}"
            if response.status_code not in _AGAIN:
                cause = _CAUSES.get(response.status_code)
                said = f"the value model {self.model!r} at {self.base_url}/pooling refuses: {why}"
                refused = _Refused if response.status_code in _SPLIT else CriticError
                raise refused(f"{said}; {cause}" if cause else said)
        raise CriticError(
            f"the value model at {self.base_url}/pooling gave no answer in {self._retries + 1} "
            f"attempts; the last: {why}"
        )

    def _read(self, response: httpx.Response, count: int) -> list[float | CriticError]:
        """The values of an answer, in order; each a number or what is wrong with it.

        Raises:
            CriticError: It is no answer to these texts.
        """
        try:
            data = json.loads(response.content)["data"]
            rows = {int(row["index"]): row["data"] for row in data}
        except (ValueError, KeyError, TypeError) as error:
            raise CriticError(
                f"the value model at {self.base_url}/pooling answers in another form "
                f"({type(error).__name__}: {error}); is it vLLM's pooling endpoint?"
            ) from error
        if len(data) != count or sorted(rows) != list(range(count)):
            raise CriticError(
                f"the value model at {self.base_url}/pooling answered {count} texts with "
                f"{len(data)} rows, of {sorted(rows)}"
            )
        return [self._value(rows[index]) for index in range(count)]

    def _value(self, pooled: Any) -> float | CriticError:
        """The pooled score that is the value."""
        if isinstance(pooled, list) and pooled:
            score = _REDUCE[self.reduce](pooled)
            if isinstance(score, list) and len(score) == 1:
                score = score[0]
            if isinstance(score, int | float) and not isinstance(score, bool):
                number = float(score)
                if math.isfinite(number):
                    return number
        return CriticError(
            f"the value model {self.model!r} pooled {str(pooled)[:80]!s} where a list of finite "
            "numbers was expected, one for each token or one in all"
        )
