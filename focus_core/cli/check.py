"""``focus check``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Optional

import typer

from focus_core.cli._common import (
    JsonOption,
    ModelOption,
    ProblemsOption,
    SetOption,
    load_plugins,
    printable,
    settings,
)

if TYPE_CHECKING:
    from focus_core.testing import Outcome

__all__ = ["check"]

# ruff: noqa: UP045  # Typer resolves these annotations at run time


def check(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="task, policy, trainer, search, recipe, critic, lane or observer."
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Its name, or MODULE:CLASS; a policy goes by its trainer's."
        ),
    ],
    problems: ProblemsOption = None,
    model: ModelOption = None,
    excuse: Annotated[
        Optional[list[str]],
        typer.Option("--excuse", metavar="CONTRACT=REASON", help="Do not ask for one; repeatable."),
    ] = None,
    set_: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Prove that something installed keeps the contract of its kind.

    One line a contract: ok, FAILED and what to mend, excused, or not applicable.
    A task is checked with the environment it makes. The exit code is 1 if any failed.
    """
    import sys

    from focus_core.errors import UsageError
    from focus_core.run.config import SECTIONS
    from focus_core.testing.base import check as run_contracts
    from focus_core.testing.installed import contracts_of

    section = kind if kind in SECTIONS else "trainer"
    given = settings(set_, model=model)
    if stray := sorted(set(given) - {section}):
        raise UsageError(f"--set {stray[0]}.*: a {kind} is checked with its own options only")
    contracts = contracts_of(
        load_plugins(),
        kind,
        name,
        options=given.get(section, {}),
        source=problems,
        excused=_excuses(excuse or []),
    )
    counts = dict.fromkeys(("ok", "failed", "excused", "not applicable"), 0)
    for outcome in run_contracts(contracts):
        counts[outcome.status] += 1
        print(_json_line(outcome) if json else _line(outcome), flush=True)
    found = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    print(f"{kind} {name}: {found}", file=sys.stderr if json else sys.stdout)
    if counts["failed"]:
        raise typer.Exit(1)


def _excuses(pairs: list[str]) -> dict[str, str]:
    from focus_core.errors import UsageError

    excuses = {}
    for pair in pairs:
        name, equals, reason = pair.partition("=")
        if not equals:
            raise UsageError(f"--excuse {pair!r}: write CONTRACT=REASON")
        excuses[name.strip()] = reason.strip()
    return excuses


def _line(outcome: Outcome) -> str:
    if outcome.status == "ok":
        return f"ok              {outcome.contract}"
    if outcome.status == "failed":
        return (
            f"FAILED          {outcome.contract}\n"
            f"    contract: {outcome.sentence}\n"
            f"    found:    {printable(outcome.detail)}"
        )
    return f"{outcome.status:15s} {outcome.contract} ({printable(outcome.detail)})"


def _json_line(outcome: Outcome) -> str:
    import json

    return json.dumps(
        {
            "contract": outcome.contract,
            "status": outcome.status,
            "sentence": outcome.sentence,
            "detail": outcome.detail,
        }
    )
