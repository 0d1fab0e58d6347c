"""A thousand strings no grader should meet: verdicts in time, and an event loop that runs."""

import asyncio
import random
import time

from focus_task_math import GradingPool

LIMIT = 0.2
GOLDS = ["5", r"\frac{x}{2}", "(1,2)", r"\{1,2\}", "x+1=y", r"\sqrt{2}", "x<5", r"\text{C}"]


def boxed(inside):
    return rf"\boxed{{{inside}}}"


def hostile(seed, count):
    """Towers, factorials, deep nesting, quadratic bait, giant integers, odd characters, length."""
    draw = random.Random(seed)
    made = []
    while len(made) < count:
        deep, digit, size = draw.randint(2, 45), draw.choice("23579"), draw.randint(1, 3000)
        big = draw.randint(10, 10**8)
        made += [
            boxed((digit + "^{") * deep + digit + "}" * deep),
            boxed((digit + "^{") * deep),
            boxed(digit + "!" * deep),
            boxed(r"\sqrt{" * deep + "x" + "}" * deep),
            boxed("(" * deep * 20 + "1" + ")" * deep * 20),
            boxed("{" * deep * 30 + "1" + "}" * deep * 30),
            boxed(r"\frac{1}{" * deep + "x" + "}" * deep),
            boxed("e^{" * deep + "10" + "}" * deep),
            boxed(r"\begin{pmatrix}" * deep + "1" + r"\end{pmatrix}" * deep),
            boxed(r"\text{" * deep + "5" + "}" * deep),
            boxed("9" * size * 15),
            boxed("1," * size + "1"),
            boxed(" " * size * 30 + "5"),
            boxed("a" * size),
            boxed("|" * size),
            boxed("-" * size + "5"),
            boxed("1 " * size),
            boxed("1{,}000" * (size // 8 + 1)),
            boxed("=".join(["5"] * (size // 3 + 1))),
            boxed(r"\cup".join(["(1,2)"] * (size // 30 + 1))),
            boxed("".join(chr(draw.randrange(0x110000)) for _ in range(size))),
            boxed("\x00" * deep + "5"),
            r"\boxed{" * size * 5,
            r"\boxed{" * deep * 100 + "5" + "}" * deep * 100,
            r"\boxed" + " " * size * 50,
            "<think>" * size + boxed("5"),
            "x" * size * 200 + boxed("6"),
            "}" * size * 20 + "{" * size * 20,
            boxed(f"(x+1)^{{{10**deep}}}"),
            boxed(rf"(1+\sqrt{{2}})^{{{big}}}"),
            boxed(f"2^{{-10^{{{deep}}}}}"),
            boxed(rf"\binom{{10^{{{deep}}}}}{{10^5}}"),
            boxed(rf"\sqrt{{{10 ** (deep * 12) + 7}}}"),
            boxed(f"1e{big}"),
            boxed(f"1.5e-{big}"),
            boxed(rf"\tan(10^{{{size}}})"),
            boxed(rf"0.\overline{{{'142857' * (size // 10 + 1)}}}"),
            boxed("_".join("x" * deep * 5)),
            boxed("x^{y^{z^{" * 9 + "1" + "}}}" * 9),
            boxed(r"\left(" * size),
        ]
        if len(made) % 5 == 0:  # what only the limit stops
            made += [
                boxed(rf"\sum_{{k=1}}^{{10^{{{deep}}}}} k^k"),
                boxed(r"\int_0^1 x^{x^{x}} dx"),
            ]
    draw.shuffle(made)
    return made[:count]


def test_a_thousand_hostile_strings():
    async def main():
        held = []
        slowest = 0.0
        at_a_time = asyncio.Semaphore(2)
        stop = asyncio.Event()

        async def heart():
            while not stop.is_set():
                before = time.monotonic()
                await asyncio.sleep(0.02)
                held.append(time.monotonic() - before - 0.02)

        async def one(completion, gold):
            nonlocal slowest
            async with at_a_time:
                start = time.monotonic()
                verdict = await pool.agrade(completion, gold, LIMIT)
                slowest = max(slowest, time.monotonic() - start)
                return verdict

        await pool.agrade(boxed("1"), "1")
        beating = asyncio.ensure_future(heart())
        strings = hostile(20, 1000)
        verdicts = await asyncio.gather(
            *(one(text, GOLDS[index % len(GOLDS)]) for index, text in enumerate(strings))
        )
        stop.set()
        await beating
        return strings, verdicts, slowest, max(held)

    with GradingPool() as pool:
        strings, verdicts, slowest, held = asyncio.run(main())
        assert pool.grade(boxed("5"), "5").correct is True
    assert slowest < LIMIT + 1
    assert held < 1
    for index, (text, verdict) in enumerate(zip(strings, verdicts, strict=True)):
        if verdict.correct is None:  # a busy machine had no time for the gold itself; none died
            assert "was not done within" in verdict.reason
        if verdict.correct:  # a few say 5 or (1,2) in an odd way
            assert GOLDS[index % len(GOLDS)] in ("5", "(1,2)"), text[:80]
