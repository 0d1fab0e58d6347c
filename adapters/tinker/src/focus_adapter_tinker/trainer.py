"""The trainer ``tinker``: the session with Tinker, and dry runs. Imports the SDK late."""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

from focus_adapter_tinker import _sdk
from focus_adapter_tinker.attending import Attendant
from focus_adapter_tinker.connection import named, trouble, watched
from focus_adapter_tinker.options import TinkerOptions
from focus_adapter_tinker.usage import Usage
from focus_core.errors import TrainerError
from focus_core.records import ActorRecord, Batch
from focus_core.trainer import RunStatus
from focus_core.utils.concurrency import in_thread

if TYPE_CHECKING:
    from focus_adapter_tinker.client_trainer import ClientTrainer
    from focus_adapter_tinker.policy import TinkerPolicy

__all__ = ["TinkerTrainer"]

_LOG = logging.getLogger(__name__)
_CLOSING = 10.0
"""Seconds to wait for Tinker to take note of a session's end; a thread goes on trying."""
_ASKING = 30.0
"""Seconds to wait for a model's context length, without which a run goes on."""


@attrs.define(kw_only=True, eq=False, slots=False)
class TinkerTrainer(TinkerOptions):
    """Samples and learns on Tinker.

    Options are those of ``TinkerOptions``, checked on construction; entering opens the session and
    the training client.
    """

    usage: Usage = attrs.field(init=False)
    _stack: contextlib.AsyncExitStack | None = attrs.field(default=None, init=False)
    _length: int | None = attrs.field(default=None, init=False)
    _attendant: Attendant | None = attrs.field(default=None, init=False)
    _service: Any = attrs.field(default=None, init=False)
    _inner: ClientTrainer | None = attrs.field(default=None, init=False)
    _over: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        """Refuse what would fail later.

        Raises:
            UsageError: An option is missing or out of range, or there is no API key.
            DataError: The price file cannot be used.
        """
        super().__attrs_post_init__()
        self.usage = Usage(self.known_prices)

    # Life cycle

    async def __aenter__(self) -> TinkerTrainer:
        """Open the session and the training client, with the SDK's blocking calls in a thread.

        Raises:
            TrainerError: Tinker cannot be reached, or does not take the key, the model or the
                state; names its address.
        """
        if self._stack is not None:
            raise TrainerError("the trainer was entered before; make a new one")
        self._stack = contextlib.AsyncExitStack()
        try:
            options = await self._connection()
            client = await self._opened(options)
            self._length = self.context_length or await self._asked_length(options)
            self._inner = self._around(client)
        except BaseException as error:
            await self.close("errored" if isinstance(error, Exception) else "interrupted")
            raise
        return self

    async def _opened(self, options: Mapping[str, Any]) -> Any:
        """The training client; what fails names the server, and says if it is none of Tinker's."""
        url, limit = options.get("base_url", self.url), self.update_timeout
        self._attendant = Attendant(url, self.server_timeout)
        try:
            async with (
                watched(url, self.model, limit),
                _sdk.within(limit, f"{named(url)} does not open {self.model!r}", self._attendant),
            ):
                return await _sdk.in_thread(lambda: self._open(options), limit)
        except TrainerError as error:
            wrong = await trouble(url)
            raise error if wrong is None else type(error)(f"{error}; {wrong}") from error.__cause__

    async def _connection(self) -> dict[str, Any]:
        """Keywords of the service client; in a dry run, of one for a server started here."""
        options: dict[str, Any] = {}
        if self.base_url is not None:
            options["base_url"] = self.url
        if self.dry_run:
            options = await self._start_loopback()
        return options

    async def _start_loopback(self) -> dict[str, Any]:
        from focus_adapter_tinker.loopback import Loopback

        assert self._stack is not None  # the caller made it
        key = f"tml-dry-run-{secrets.token_hex(16)}"
        loopback = Loopback(model=self.dry_run_model, key=key)
        self._stack.push_async_callback(in_thread, loopback.stop)
        await in_thread(loopback.__enter__)
        return {"base_url": loopback.base_url, "api_key": key}

    def _open(self, options: Mapping[str, Any]) -> Any:
        """In a thread: the training client."""
        import tinker

        _sdk.mask_logs()
        self._service = service = tinker.ServiceClient(project_id=self.project, **options)
        if self._over:  # the session opened when nobody waited for it any more
            self._end(service, "errored")
            return None
        if self.resume_from is not None and not self.dry_run:
            made = service.create_training_client_from_state_with_optimizer(self.resume_from)
        else:
            made = service.create_lora_training_client(
                base_model=self.model, rank=self.lora_rank, seed=self.seed
            )
        return _sdk.resolved(made)

    async def _asked_length(self, options: Mapping[str, Any]) -> int | None:
        """The context's length, if the server says in time."""
        service = self._service
        try:
            return await _sdk.in_thread(
                lambda: _sdk.context_length(service, self.model, **options), _ASKING
            )
        except TimeoutError:
            _LOG.warning("the context length of %s is not known: no answer", self.model)
            return None

    def _around(self, client: Any) -> ClientTrainer:
        from focus_adapter_tinker.client_trainer import ClientTrainer
        from focus_adapter_tinker.update import Optimization

        adam = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
        return ClientTrainer(
            client=client,
            model=self.model,
            profile=self.profile,
            how=Optimization(
                loss_fn=self.loss,
                loss_fn_config=self.loss_config(),
                adam={name: getattr(self, name) for name in adam},
                timeout=self.update_timeout,
                logprob_tolerance=self.logprob_tolerance,
                attendant=self._attendant,
            ),
            sample_timeout=self.sample_timeout,
            context_length=self._length,
            checkpoint_ttl=self.checkpoint_ttl,
            usage=self.usage,
            saved=None if self.dry_run else self.resume_from,
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the session, if the run has not."""
        if kind is None:
            status: RunStatus = "success"
        else:
            status = "errored" if issubclass(kind, Exception) else "interrupted"
        await self.close(status)

    async def close(self, status: RunStatus) -> None:
        """End the session, saying how it ended; a Tinker that does not listen is only logged."""
        self._over = True
        service, self._service = self._service, None
        self._inner = None
        try:
            if service is not None:
                await _sdk.in_thread(lambda: self._end(service, status), _CLOSING)
        except Exception as error:
            late = isinstance(error, TimeoutError) and not str(error)
            why = f"no answer within {_CLOSING:g} s" if late else _sdk.explain(error)
            _LOG.warning("Tinker was not told that the session ended: %s", why)
        finally:
            if self._stack is not None:
                await self._stack.aclose()

    @staticmethod
    def _end(service: Any, status: RunStatus) -> None:
        """In a thread: end a session; the first status stays.

        Who does not listen is not told for ever: the SDK would go on trying, and go on with the
        heartbeats of the session, until the process ends.
        """
        end = getattr(service, "close", None)  # SDK 0.25 has none
        if end is None:
            return
        telling = end(status)
        try:
            telling.result(_CLOSING)
        except TimeoutError:
            telling.future().cancel()  # which the SDK's retries lose now and then
            _sdk.silence(service)
            raise

    # The Trainer protocol

    async def publish_policy(self) -> TinkerPolicy:
        """A frozen snapshot of the learner's weights."""
        return await self._entered().publish_policy()

    def convert(self, records: Sequence[ActorRecord | Mapping[str, Any]]) -> list[Any]:
        """One Tinker datum per record."""
        from focus_adapter_tinker.datums import to_datum

        return [to_datum(record, loss_fn=self.loss) for record in records]

    async def update(self, batch: Batch) -> dict[str, float]:
        """One optimizer step, sent once; see ``ClientTrainer.update``."""
        return await self._entered().update(batch)

    async def save_state(self, name: str) -> str:
        """Weights and optimizer, kept by Tinker; returns the path that resumes from them."""
        return await self._entered().save_state(name)

    # Beyond the protocol

    def summary(self) -> str | None:
        """What the run asked for, step by step; ``focus train`` prints it at the end."""
        if self.dry_run:
            own = "" if self._length is None else f", which takes {self._length:,} tokens"
            said = f"dry run: nothing was sent to Tinker; {self.dry_run_model!r} stood in{own}"
            return f"{said}\n{self.usage.table()}"
        return self.usage.table() if self.usage.prices is not None else None

    def _entered(self) -> ClientTrainer:
        if self._inner is None:
            raise TrainerError("the trainer is not running; use it within 'async with'")
        return self._inner
