"""Faults on purpose, switched on by what is asked and how often it was asked before."""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from focus_core.errors import UsageError

__all__ = ["FUTURE_ROUTES", "ROUTES", "Fault", "Faults", "kinds_of", "parse_fault"]

FUTURE_ROUTES = (
    "asample",
    "create_model",
    "forward_backward",
    "load_weights",
    "optim_step",
    "save_weights",
    "save_weights_for_sampler",
)
"""Routes that answer with a request id, whose result ``retrieve_future`` gives."""

ROUTES = (
    *FUTURE_ROUTES,
    "cancel_future",
    "client_config",
    "client_dynamic_config",
    "create_sampling_session",
    "create_session",
    "finish",
    "get_info",
    "get_sampler",
    "get_server_capabilities",
    "healthz",
    "retrieve_future",
    "session_heartbeat",
    "telemetry",
    "weights_info",
)
"""Every route under ``/api/v1``, as statistics and faults name it."""

_DOOR = ("drop", "lost", "timeout", "echo")
_RESULT = ("fail", "slow")
_LOGPROBS = ("missing_logprobs", "short_logprobs")
_TIMED = {"slow": 2.0, "timeout": None}
_SPEC = re.compile(
    r"(?P<route>[a-z_]+(\.result)?):(?P<first>[1-9]\d*)(?P<range>-(?P<last>\d*))?"
    r"=(?P<kind>[a-z_]+|\d{3})(:(?P<seconds>\d+(\.\d+)?))?"
)


@attrs.define
class Fault:
    """One fault.

    ``ROUTE:N=KIND`` strikes the N-th request of a route (counted from 1, retries included),
    ``ROUTE:N-M=KIND`` several, ``ROUTE:N-=KIND`` all from there. ``ROUTE.result:N=KIND`` strikes
    the first attempt to retrieve the N-th result of the route (with 410 every attempt).

    ====================  ================================================================
    429, 500, ...         that HTTP status; the request is not taken up
    ``drop``              the connection is closed; the request is not taken up
    ``lost``              the request is taken up, and the connection closed unanswered
    ``timeout[:S]``       taken up and never answered, or closed unanswered after S seconds
    ``echo``              HTTP 403, and the message repeats the API key; not taken up
    ``slow[:S]``          the result is ready S seconds later than it was computed (2)
    ``fail``              the result is a failure on the server's side; nothing is computed
    ``missing_logprobs``  the result has no log probabilities
    ``short_logprobs``    the last log probability of each sequence is missing
    ====================  ================================================================

    Attributes:
        spec: How it was written.
        route: Which requests.
        first: Number of the first that it strikes.
        last: Number of the last; ``None``: no end.
        kind: What happens: an HTTP status, or a name from the table.
        seconds: Of ``slow`` and ``timeout``.
        seen: Requests counted since it was switched on.
        struck: How many of them it struck.
        healed: Whether it was switched off; it keeps nobody waiting any more.
    """

    spec: str
    route: str
    first: int
    last: int | None
    kind: str
    seconds: float | None
    seen: int = 0
    struck: int = 0
    healed: bool = False

    @property
    def status(self) -> int | None:
        """The HTTP status, if it is of that kind."""
        return int(self.kind) if self.kind.isdecimal() else None

    def counts(self) -> bool:
        """Count a request; whether it is struck."""
        self.seen += 1
        strikes = self.first <= self.seen and (self.last is None or self.seen <= self.last)
        self.struck += strikes
        return strikes


def kinds_of(route: str) -> tuple[str, ...]:
    """What can strike a route, or a result (``ROUTE.result``), besides any HTTP status."""
    if route.endswith(".result"):
        return ("drop", "timeout")
    kinds: tuple[str, ...] = _DOOR
    if route in FUTURE_ROUTES:
        kinds += _RESULT
    if route in ("asample", "forward_backward"):
        kinds += _LOGPROBS
    return kinds


def parse_fault(spec: str) -> Fault:
    """Read ``ROUTE:N=KIND``; see ``Fault``.

    Raises:
        UsageError: It cannot be read, or the kind does not fit the route.
    """
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise UsageError(
            f"the fault {spec!r} must have the form ROUTE:N=KIND, for example asample:3=429, "
            "forward_backward:1=timeout:5 or asample.result:2-4=410"
        )
    route, result = found["route"].removesuffix(".result"), found["route"].endswith(".result")
    known = FUTURE_ROUTES if result else ROUTES
    if route not in known:
        raise UsageError(f"the fault {spec!r}: no route {route!r}; there are {', '.join(known)}")
    kind = found["kind"]
    kinds = kinds_of(found["route"])
    if kind.isdecimal():
        if not 400 <= int(kind) <= 599:
            raise UsageError(f"the fault {spec!r}: status {kind} is no error; use 400 to 599")
    elif kind not in kinds:
        raise UsageError(
            f"the fault {spec!r}: {found['route']} can fail with an HTTP status or with "
            f"{', '.join(kinds)}"
        )
    if found["seconds"] is not None and kind not in _TIMED:
        raise UsageError(f"the fault {spec!r}: only {' and '.join(_TIMED)} take seconds")
    first = int(found["first"])
    last = int(found["last"]) if found["last"] else None if found["range"] else first
    if last is not None and last < first:
        raise UsageError(f"the fault {spec!r}: {last} comes before {first}")
    seconds = float(found["seconds"]) if found["seconds"] else _TIMED.get(kind)
    return Fault(spec, found["route"], first, last, kind, seconds)


class Faults:
    """The faults that are switched on."""

    def __init__(self, specs: Iterable[str] = ()) -> None:
        self.active: list[Fault] = []
        self.add(specs)

    def add(self, specs: Iterable[str]) -> None:
        """Switch some on; they count from here.

        Raises:
            UsageError: One cannot be read; none is switched on.
        """
        self.active += [parse_fault(spec) for spec in specs]

    def clear(self) -> None:
        """Switch all off, also those that keep someone waiting."""
        for fault in self.active:
            fault.healed = True
        self.active.clear()

    def strike(self, route: str) -> Fault | None:
        """Count a request; what strikes it, if anything."""
        struck = [fault for fault in self.active if fault.route == route and fault.counts()]
        return struck[0] if struck else None
