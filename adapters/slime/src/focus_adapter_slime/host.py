"""What the hooks of one task share: checked settings, the tokenizer, and a policy for each tree."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import attrs

from focus_adapter_slime.objective import check_objective
from focus_adapter_slime.policy import RouterPolicy
from focus_adapter_slime.settings import Settings, read_settings
from focus_adapter_slime.trees import number_of
from focus_adapter_slime.versions import contract_of, generate_state, is_aborting
from focus_core.errors import UsageError
from focus_core.tokenizer import Reading, read_profile
from focus_core.utils.concurrency import in_thread

__all__ = ["Host", "open_host"]

_LOADING = threading.Lock()
_LOADED: dict[str, Any] = {}


@attrs.frozen(eq=False)
class _Decoder:
    """The tokenizer as samples need it, held for one text at a time."""

    tokenizer: Any
    lock: threading.Lock

    @property
    def eos_token_id(self) -> Any:
        return getattr(self.tokenizer, "eos_token_id", None)

    def decode(self, tokens: Sequence[int], **options: Any) -> str:
        with self.lock:
            text: str = self.tokenizer.decode(tokens, **options)
        return text


@attrs.frozen(eq=False)
class Host:
    """Slime's ``args``, checked.

    Attributes:
        args: Slime's.
        settings: Of the custom configuration.
        tokenizer: Of the model that is trained.
        reading: What its profile says.
        lock: Held while the tokenizer is in use: graders and samples decode in threads.
        decoder: The tokenizer behind that lock, for samples.
    """

    args: Any
    settings: Settings
    tokenizer: Any
    reading: Reading
    lock: threading.Lock = attrs.field(factory=threading.Lock, init=False)
    decoder: _Decoder = attrs.field(init=False)

    @decoder.default
    def _behind_the_lock(self) -> _Decoder:
        return _Decoder(self.tokenizer, self.lock)

    @property
    def deterministic(self) -> bool:
        """Whether the servers heed seeds."""
        return bool(getattr(self.args, "sglang_enable_deterministic_inference", False))

    def key(self, sample: Any, sampling_params: Any) -> tuple[int, ...] | None:
        """Seeds of a sample's tree, where the servers heed them."""
        if not self.deterministic:
            return None
        seed = (sampling_params or {}).get("sampling_seed")
        if seed is None:
            seed = getattr(self.args, "rollout_seed", None) or 0
        return int(seed), number_of(sample)

    def policy(self, sample: Any) -> RouterPolicy:
        """A policy for one tree; its owner closes it."""
        args, settings = self.args, self.settings
        headers = {}
        session = getattr(sample, "session_id", None)
        if session and getattr(args, "router_policy", None) == "consistent_hashing":
            headers["X-SMG-Routing-Key"] = str(session)
        return RouterPolicy(
            _url(args),
            self.tokenizer,
            reading=self.reading,
            context_length=settings.context_length
            or getattr(args, "rollout_max_context_len", None),
            straddle="keep" if settings.straddle == "keep" else "refuse",
            seeded=self.deterministic,
            timeout=settings.request_timeout,
            retries=settings.retries,
            requests=settings.requests,
            headers=headers,
            aborting=is_aborting,
            lock=self.lock,
        )


async def open_host(args: Any, sample: Any, *, profile: str | None, training: bool) -> Host:
    """Check everything that can be checked before the first tree.

    Raises:
        UsageError: Slime is too old, a setting is wrong or changes the objective, the router is
            not named, or the tokenizer does not fit.
    """
    contract_of(type(sample))
    settings = read_settings(args)
    check_objective(args, settings.allow, training=training)
    _url(args)
    tokenizer = await in_thread(_tokenizer, args)
    model = str(getattr(args, "hf_checkpoint", "of the router"))
    reading = read_profile(tokenizer, profile or settings.profile, model)
    return Host(args, settings, tokenizer, reading)


def _url(args: Any) -> str:
    ip, port = getattr(args, "sglang_router_ip", None), getattr(args, "sglang_router_port", None)
    if not ip or not port:
        raise UsageError(
            f"Slime's router is at {ip}:{port}; the hook runs inside Slime's rollout, which sets "
            "--sglang-router-ip and --sglang-router-port"
        )
    return f"http://{ip}:{port}"


def _tokenizer(args: Any) -> Any:
    """The one that Slime's loop has loaded, else the checkpoint's; loaded once per process.

    Raises:
        UsageError: There is no checkpoint, or it cannot be loaded.
    """
    ready = getattr(generate_state(), "tokenizer", None)
    if ready is not None:
        return ready
    checkpoint = getattr(args, "hf_checkpoint", None)
    if not checkpoint:
        raise UsageError("Slime's --hf-checkpoint is not set; the tokenizer is read from there")
    with _LOADING:
        if checkpoint not in _LOADED:
            try:
                from transformers import AutoTokenizer

                _LOADED[checkpoint] = AutoTokenizer.from_pretrained(
                    checkpoint, trust_remote_code=True
                )
            except Exception as error:  # a hub, a file, a format
                raise UsageError(
                    f"the tokenizer of --hf-checkpoint {checkpoint!r} cannot be loaded: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return _LOADED[checkpoint]
