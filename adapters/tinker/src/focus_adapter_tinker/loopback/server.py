"""The protocol over HTTP: its routes under ``/api/v1``, and retries that are recognised."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from focus_adapter_tinker.loopback.backend import Backend
from focus_adapter_tinker.loopback.bodies import Body, fail, field, read_json, refusal
from focus_adapter_tinker.loopback.door import FAULT, Door, hang_up
from focus_adapter_tinker.loopback.faults import Faults
from focus_adapter_tinker.loopback.futures import Answer, Futures
from focus_adapter_tinker.loopback.wire import read_training
from focus_core.errors import UsageError

__all__ = ["Server"]

_LONG_POLL = 20.0
"""Seconds a client waits for a result before it asks again; the SDK gives up after 45."""
_MOST_BYTES = 64 * 1024 * 1024


class Server:
    """Routes to a backend.

    Args:
        backend: Does the work.
        faults: Specs of the faults that are on from the start.
        compress: Whether clients are told to compress training requests.
        key: The key that clients must send; ``None`` takes any.
    """

    def __init__(
        self,
        backend: Backend,
        faults: Faults,
        *,
        compress: bool = False,
        key: str | None = None,
    ) -> None:
        self._backend = backend
        self._faults = faults
        self._compress = compress
        self._futures = Futures()
        self._finished: dict[str, str | None] = {}
        door = Door(backend.stats, faults, self._known, key)
        self.app = web.Application(client_max_size=_MOST_BYTES, middlewares=[door.let_in])
        self.app.on_shutdown.append(self._shutdown)
        post, get = self.app.router.add_post, self.app.router.add_get
        for path, handler in {
            "client/config": self._client_config,
            "client/dynamic_config": self._client_dynamic_config,
            "create_session": self._create_session,
            "session_heartbeat": self._session_heartbeat,
            "sessions/{session_id}/finish": self._finish,
            "telemetry": self._telemetry,
            "create_model": self._create_model,
            "get_info": self._get_info,
            "weights_info": self._weights_info,
            "forward_backward": self._forward_backward,
            "optim_step": self._optim_step,
            "save_weights": self._save_weights,
            "save_weights_for_sampler": self._save_weights_for_sampler,
            "load_weights": self._load_weights,
            "create_sampling_session": self._create_sampling_session,
            "asample": self._asample,
            "retrieve_future": self._retrieve_future,
            "cancel_future": self._cancel_future,
        }.items():
            post(f"/api/v1/{path}", handler, name=handler.__name__[1:])
        get("/api/v1/healthz", self._healthz, name="healthz")
        get(
            "/api/v1/get_server_capabilities",
            self._get_server_capabilities,
            name="get_server_capabilities",
        )
        get("/api/v1/samplers/{session_id}", self._get_sampler, name="get_sampler")
        door.add_routes(self.app.router)

    async def _shutdown(self, _: web.Application) -> None:
        await self._futures.close()

    def _known(self) -> dict[str, Any]:
        """What the statistics say of results and sessions."""
        return {"pending": self._futures.pending, "sessions": dict(self._finished)}

    # Sessions

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def _get_server_capabilities(self, request: web.Request) -> web.Response:
        # Every name that a client gave is a name of the one model.
        used = [each.base_model for each in self._backend.models.values()]
        used += [weights.base_model for weights, _ in self._backend.sessions.values()]
        names = dict.fromkeys([self._backend.options.model, *used])
        supported = [
            {
                "model_name": name,
                "max_context_length": self._backend.facts.context_length,
                "trainable": True,
                "sampleable": True,
            }
            for name in names
        ]
        return web.json_response({"supported_models": supported})

    async def _client_config(self, request: web.Request) -> web.Response:
        return web.json_response({"proto_compress_fwdbwd": self._compress})

    async def _client_dynamic_config(self, request: web.Request) -> web.Response:
        return web.json_response({"sample_cancel_enabled": True})

    async def _telemetry(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "accepted"})

    async def _create_session(self, request: web.Request) -> web.Response:
        session_id = str(uuid.uuid4())
        self._finished[session_id] = None
        return web.json_response({"type": "create_session", "session_id": session_id})

    async def _session_heartbeat(self, request: web.Request) -> web.Response:
        self._check_session(field(await read_json(request), "session_id", str))
        return web.json_response({"type": "session_heartbeat"})

    async def _finish(self, request: web.Request) -> web.Response:
        session_id, body = request.match_info["session_id"], await read_json(request)
        if session_id not in self._finished:
            raise web.HTTPNotFound(text=f"no session {session_id}")
        if self._finished[session_id] is None:
            self._finished[session_id] = str(field(body, "reason", dict).get("type"))
            self._backend.end_session(session_id)
        return web.Response(status=204)

    def _check_session(self, session_id: str) -> None:
        if session_id not in self._finished:
            raise web.HTTPNotFound(text=f"no session {session_id}")
        if self._finished[session_id] is not None:
            raise web.HTTPGone(text=f"session {session_id} has finished")

    def _check_model(self, model_id: str) -> None:
        self._check_session(model_id.split(":", 1)[0])
        if model_id not in self._backend.models:
            raise web.HTTPNotFound(text=f"no model {model_id}")

    # Models

    async def _create_model(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        base_model, lora = field(body, "base_model", str), body.get("lora_config") or {}
        model_id = self._new_model_id(body)

        def work(fault: str | None) -> Awaitable[Answer]:
            if fault == "fail":
                fail()
            return self._backend.create_model(model_id, base_model, lora)

        return self._promise(request, model_id, work, model_id=model_id)

    def _new_model_id(self, body: Body) -> str:
        session_id = field(body, "session_id", str)
        self._check_session(session_id)
        return f"{session_id}:train:{field(body, 'model_seq_id', int)}"

    async def _get_info(self, request: web.Request) -> web.Response:
        model_id = field(await read_json(request), "model_id", str)
        self._check_model(model_id)
        model = self._backend.models[model_id]
        # SDK 0.38 loads the tokenizer of ``model_data.model_name``, others that of tokenizer_id.
        return web.json_response(
            {
                "type": "get_info",
                "model_id": model_id,
                "model_name": model.base_model,
                "model_data": {
                    "arch": self._backend.options.model,
                    "model_name": str(self._backend.tokenizer),
                    "tokenizer_id": str(self._backend.tokenizer),
                },
                "is_lora": True,
                "lora_rank": model.learner.config.lora_rank,
            }
        )

    async def _weights_info(self, request: web.Request) -> web.Response:
        options = self._backend.saved_options(field(await read_json(request), "tinker_path", str))
        return web.json_response(
            {"base_model": options["base_model"], "is_lora": True, "lora_rank": options["rank"]}
        )

    async def _forward_backward(self, request: web.Request) -> web.Response:
        compressed = request.headers.get("Content-Encoding") == "zstd"
        training = read_training(await request.read(), compressed=compressed)

        def work(fault: str | None) -> Awaitable[Answer]:
            return self._backend.forward_backward(training, fault=fault)

        return self._operation(request, training.model_id, training.seq_id, work)

    async def _optim_step(self, request: web.Request) -> web.Response:
        return await self._json_operation(request, self._backend.optim_step)

    async def _save_weights(self, request: web.Request) -> web.Response:
        return await self._json_operation(request, self._backend.save_weights)

    async def _load_weights(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        if body.get("session_id") is None:
            return await self._json_operation(request, self._backend.load_weights)
        model_id = self._new_model_id(body)

        def work(fault: str | None) -> Awaitable[Answer]:
            if fault == "fail":
                fail()
            return self._backend.create_from_state(model_id, body)

        return self._promise(request, model_id, work, model_id=model_id)

    async def _save_weights_for_sampler(self, request: web.Request) -> web.Response:
        async def save(model_id: str, seq_id: int, body: Body) -> Answer:
            number = body.get("sampling_session_seq_id")
            session = f"{model_id.split(':', 1)[0]}:sample:{number}"
            return await self._backend.save_weights_for_sampler(
                model_id, seq_id, body.get("path"), session
            )

        return await self._json_operation(request, save)

    async def _json_operation(
        self, request: web.Request, work: Callable[[str, int, Body], Awaitable[Answer]]
    ) -> web.Response:
        body = await read_json(request)
        model_id, seq_id = field(body, "model_id", str), field(body, "seq_id", int)
        return self._operation(request, model_id, seq_id, lambda _: work(model_id, seq_id, body))

    def _operation(
        self,
        request: web.Request,
        model_id: str,
        seq_id: int,
        work: Callable[[str | None], Awaitable[Answer]],
    ) -> web.Response:
        """Take up an operation of a model, in the order of ``seq_id``."""
        self._check_model(model_id)
        if seq_id < 1:
            raise UsageError(f"seq_id is {seq_id}; the operations of a model count from 1")
        self._backend.models[model_id].turns.arrive(seq_id)

        async def in_turn(fault: str | None) -> Answer:
            if fault == "fail":  # its turn is over all the same
                await self._backend.in_turn(model_id, seq_id, fail)
            return await work(fault)

        return self._promise(request, (model_id, seq_id), in_turn, model_id=model_id)

    # Sampling

    async def _create_sampling_session(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        session_id = field(body, "session_id", str)
        self._check_session(session_id)
        sampling = f"{session_id}:sample:{field(body, 'sampling_session_seq_id', int)}"
        weights = self._backend.weights(body.get("model_path"), body.get("base_model"))
        self._backend.open_session(sampling, weights)
        return web.json_response(
            {"type": "create_sampling_session", "sampling_session_id": sampling}
        )

    async def _get_sampler(self, request: web.Request) -> web.Response:
        sampling = request.match_info["session_id"]
        self._check_sampling_session(sampling)
        weights, _ = self._backend.sessions[sampling]
        # The SDK loads the tokenizer from what is called the base model here.
        return web.json_response(
            {
                "sampler_id": sampling,
                "base_model": str(self._backend.tokenizer),
                "model_path": weights.path,
            }
        )

    def _check_sampling_session(self, sampling: str) -> None:
        self._check_session(sampling.split(":", 1)[0])
        if sampling not in self._backend.sessions:
            raise web.HTTPNotFound(text=f"no sampling session {sampling}, or it is long past")

    async def _asample(self, request: web.Request) -> web.Response:
        body = await read_json(request)
        sampling, seq_id = field(body, "sampling_session_id", str), field(body, "seq_id", int)
        self._check_sampling_session(sampling)

        def work(fault: str | None) -> Awaitable[Answer]:
            if fault == "fail":
                fail()
            return self._backend.sample(sampling, seq_id, body, fault=fault)

        ids = [f"{sampling}:{seq_id}:{n}" for n in range(int(body.get("num_samples") or 1))]
        return self._promise(request, (sampling, seq_id), work, sample_sequence_ids=ids)

    # Results

    def _promise(
        self,
        request: web.Request,
        key: object,
        work: Callable[[str | None], Awaitable[Answer]],
        **more: Any,
    ) -> web.Response:
        """Take a request up unless it was before, and answer with its id."""
        route, fault = str(request.match_info.route.name), request[FAULT]
        request_id = self._futures.known(key)
        if request_id is None:
            kind = None if fault is None else fault.kind
            request_id = self._futures.take_up(
                key,
                route,
                lambda: work(kind),
                slow=(fault.seconds or 0.0) if fault is not None and kind == "slow" else 0.0,
                retrieval_fault=self._faults.strike(f"{route}.result"),
            )
        return web.json_response({"request_id": request_id, **more})

    async def _retrieve_future(self, request: web.Request) -> web.StreamResponse:
        request_id = field(await read_json(request), "request_id", str)
        pending = self._futures.find(request_id)
        if pending is None:
            return refusal(410, f"no request {request_id}, or its result is gone")
        fault = pending.fault
        if fault is not None:
            if fault.status != 410:
                pending.fault = None
            if fault.status is not None:
                return refusal(fault.status, f"fault {fault.spec}")
            return await hang_up(request, fault)
        await asyncio.wait([pending.task], timeout=_LONG_POLL)
        if not pending.task.done():
            still = {"type": "try_again", "request_id": request_id, "queue_state": "active"}
            return web.json_response(still, status=408)
        if pending.task.cancelled():
            return refusal(410, f"request {request_id} was cancelled")
        answer = pending.task.result()
        return web.Response(body=answer.body, content_type=answer.content_type)

    async def _cancel_future(self, request: web.Request) -> web.Response:
        pending = self._futures.find(field(await read_json(request), "request_id", str))
        if pending is not None and pending.route == "asample":
            pending.task.cancel()
        return web.Response(status=204)
