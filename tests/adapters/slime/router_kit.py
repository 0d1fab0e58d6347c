"""A stand-in for Slime's router: the local trainer's model behind ``/generate``, with faults."""

import asyncio
import functools
import threading
from types import SimpleNamespace

import attrs
from aiohttp import web
from focus_adapter_local.models import find_model

from focus_core import SamplingParams

FAULTS = ("500", "400", "drop", "hang", "missing", "short", "nan", "abort", "empty", "garbage")
"""What a request can meet. ``bump`` also answers it, from new weights."""


@attrs.define
class Router:
    """Answers as SGLang's router does, on 127.0.0.1, from a thread with a loop of its own.

    Args:
        model: ``tiny`` or a directory; the policy is its weights as they are.
        seed: Of requests without one: they are numbered, so one after the other is reproducible.

    Attributes:
        requests: Every body, in the order of arrival.
        sessions: What every request was routed by.
        answers: (prompt, body) of every generation, in the order of leaving.
        faults: By number of the request, from 0: one of ``FAULTS``, or ``bump``.
        version: What the next generation says it was sampled from.
    """

    model: str = "tiny"
    seed: int = 0
    requests: list = attrs.field(factory=list, init=False)
    sessions: list = attrs.field(factory=list, init=False)
    answers: list = attrs.field(factory=list, init=False)
    faults: dict = attrs.field(factory=dict, init=False)
    version: int = attrs.field(default=1, init=False)
    port: int = attrs.field(default=0, init=False)
    tokenizer: object = attrs.field(default=None, init=False)
    _loop: object = attrs.field(default=None, init=False)
    _end: object = attrs.field(default=None, init=False)
    _thread: object = attrs.field(default=None, init=False)
    _failure: object = attrs.field(default=None, init=False)

    def __enter__(self):
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="router")
        self._thread.start()
        ready.wait(60)
        if self._failure is not None:
            raise self._failure
        assert self.port, "the router did not start"
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def clear(self):
        """Forget requests and faults."""
        self.requests.clear()
        self.sessions.clear()
        self.answers.clear()
        self.faults.clear()
        self.version = 1

    def _run(self, ready):
        try:
            asyncio.run(self._serve(ready))
        except Exception as error:
            self._failure = error
        finally:
            ready.set()

    async def _serve(self, ready):
        from focus_adapter_local import LocalTrainer

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with LocalTrainer(model=self.model, threads=1) as trainer:
            policy = await trainer.publish_policy()
            self.tokenizer = policy.tokenizer
            app = web.Application()
            app.router.add_post("/generate", functools.partial(self._generate, policy))
            app.router.add_get("/workers", _no_workers)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = site._server.sockets[0].getsockname()[1]
            ready.set()
            await self._end.wait()
            await runner.cleanup()
            await policy.aclose()

    async def _generate(self, policy, request):
        body = await request.json()
        number = len(self.requests)
        self.requests.append(body)
        self.sessions.append(request.headers.get("X-SMG-Routing-Key"))
        fault = self.faults.get(number, self.faults.get("all"))
        if fault in ("500", "400"):
            return web.Response(status=int(fault), text="made to fail")
        if fault == "drop":
            request.transport.abort()
            return web.Response()
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "garbage":
            return web.Response(text="no json")
        if fault == "bump":
            self.version += 1
        version = self.version
        asked = body["sampling_params"]
        assert body["return_logprob"] is True
        params = SamplingParams(
            max_tokens=asked["max_new_tokens"],
            temperature=asked["temperature"],
            top_p=asked["top_p"],
            top_k=max(asked["top_k"], 0),
            stop=tuple(asked["stop_token_ids"]),
            seed=asked.get("sampling_seed", self.seed + number),
        )
        (found,) = await policy.generate(body["input_ids"], params)
        made = answer(found, version, fault, policy.decode)
        self.answers.append((body["input_ids"], made))
        return web.json_response(made)


async def _no_workers(_):
    """What Slime's loop asks for at the end of a rollout, to call off what is still running."""
    return web.json_response({"workers": []})


def answer(found, version, fault=None, decode=lambda tokens: ""):
    """The body of an answer."""
    tokens = [int(token) for token in found.tokens]
    columns = zip(found.logprobs, tokens, strict=True)
    pairs = [[float(logprob), token, None] for logprob, token in columns]
    meta = {
        "id": "r",
        "finish_reason": {"type": found.stop_reason},
        "prompt_tokens": 1,
        "completion_tokens": len(tokens),
        "cached_tokens": 0,
        "weight_version": str(version),
        "output_token_logprobs": pairs,
    }
    if fault == "missing":
        del meta["output_token_logprobs"]
    elif fault == "short":
        pairs.pop()
    elif fault == "empty":
        pairs.clear()
        tokens = []
        meta["completion_tokens"] = 0
    elif fault == "nan":
        pairs[0][0] = None
    elif fault == "abort":
        meta["finish_reason"] = {"type": "abort", "message": "made to abort"}
    return {"text": decode(tokens), "output_ids": tokens, "meta_info": meta}


def arguments(router=None, **changed):
    """Slime's arguments as they must be, for a router."""
    ours = "focus_adapter_slime."
    values = {
        "sglang_router_ip": "127.0.0.1",
        "sglang_router_port": router.port if router else 1,
        "hf_checkpoint": str(find_model(router.model if router else "tiny").directory),
        "advantage_estimator": "grpo",
        "normalize_advantages": False,
        "rewards_normalization": False,
        "grpo_std_normalization": True,
        "use_dynamic_batch_size": True,
        "max_tokens_per_gpu": 4096,
        "context_parallel_size": 1,
        "calculate_per_token_loss": False,
        "compute_advantages_and_returns": True,
        "loss_type": "policy_loss",
        "group_rm": False,
        "partial_rollout": False,
        "dynamic_sampling_filter_path": None,
        "rollout_function_path": "slime.rollout.sglang_rollout.generate_rollout",
        "custom_convert_samples_to_train_data_path": None,
        "custom_advantage_function_path": ours + "advantages",
        "custom_reward_post_process_path": ours + "preserve_advantages",
        "custom_pg_loss_reducer_function_path": ours + "sum_policy_tokens",
        "log_passrate": False,
        "log_reward_category": None,
        "reward_key": None,
        "eval_reward_key": None,
        "apply_chat_template": False,
        "multimodal_keys": None,
        "rollout_temperature": 1.0,
        "rollout_top_p": 1.0,
        "rollout_top_k": -1,
        "rollout_max_context_len": None,
        "rollout_seed": 42,
        "use_rollout_routing_replay": False,
        "kl_coef": 0.0,
        "kl_loss_coef": 0.0,
        "entropy_coef": 0.0,
        "use_opd": False,
        "use_opsm": False,
        "use_tis": False,
        "use_rollout_logprobs": True,
        "get_mismatch_metrics": False,
        "eps_clip_c": None,
        "rollout_sample_filter_path": None,
        "rollout_data_postprocess_path": None,
        "log_correct_samples": False,
        "n_samples_per_prompt": 1,
    }
    return SimpleNamespace(**values | changed)
