"""A server that is gone: how long it is waited for, what is said meanwhile, and at the end."""

import asyncio
import logging
import socket
import time

import pytest
from focus_adapter_tinker import attending
from focus_adapter_tinker.attending import Attendant
from focus_adapter_tinker.policy import TinkerPolicy

from focus_core import SamplingParams, TrainerError, UsageError
from tests.adapters.tinker.sdk_kit import Sampler


def nobody():
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


async def wait_for_ever(attendant):
    async with asyncio.timeout(60) as limit, attendant.attending(limit):
        await asyncio.Event().wait()


def test_everybody_who_waits_is_told_once_the_time_is_up(monkeypatch, caplog):
    monkeypatch.setattr(attending, "_TELL", 0.15)
    attendant = Attendant(nobody(), 0.4)

    async def main():
        waiting = [wait_for_ever(attendant) for _ in range(3)]
        return await asyncio.gather(*waiting, return_exceptions=True)

    begun = time.monotonic()
    with caplog.at_level(logging.WARNING):
        ended = asyncio.run(main())
    assert [type(each) for each in ended] == [TimeoutError] * 3
    assert 0.4 <= time.monotonic() - begun < 5
    assert "out of reach for 0.4 s (cannot reach http://127.0.0.1:" in attendant.gone
    assert "--resume" in attendant.gone
    assert "--server-timeout SECONDS" in attendant.gone
    assert 1 <= len(caplog.messages) <= 3, "now and then, not at each look"
    with pytest.raises(TrainerError, match="out of reach"):
        asyncio.run(wait_for_ever(attendant))  # at once


def test_a_server_that_answers_may_take_its_time(monkeypatch):
    looks = iter(["down", None, "down", None, *["down"] * 99])

    async def unreachable(url):
        return next(looks)

    monkeypatch.setattr(attending, "unreachable", unreachable)
    attendant = Attendant("http://127.0.0.1:1", 0.2)

    async def main():
        begun = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await wait_for_ever(attendant)
        return asyncio.get_running_loop().time() - begun

    assert asyncio.run(main()) >= 0.4, "each answer starts the time anew"


def test_sampling_ends_with_the_way_to_go_on(tokenizer):
    policy = TinkerPolicy(
        Sampler(tokenizer, seconds=3600), attendant=Attendant(nobody(), 0.2), timeout=60
    )
    with pytest.raises(TrainerError, match=r"sampling failed: Tinker at .*--resume"):
        asyncio.run(policy.generate([1, 2], SamplingParams(max_tokens=2)))


def test_seconds_must_be_seconds():
    from focus_adapter_tinker import TinkerTrainer

    with pytest.raises(UsageError, match="server_timeout is 0"):
        TinkerTrainer(model="m", server_timeout=0)
