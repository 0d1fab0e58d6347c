"""Which Slime this is, found out from what it has: its version string says nothing reliable."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from typing import Any

import attrs

from focus_core.errors import UsageError

__all__ = ["Contract", "contract_of", "find_slime", "generate_state", "is_aborting"]

INSTALL = (
    "git clone https://github.com/THUDM/slime && pip install --no-deps -e slime, or use the image "
    "slimerl/slime"
)
"""Of the checkout: what pip installs from an address has no train.py; of its requirements, such as
Megatron and SGLang, pip knows no right versions."""
_OLD = (
    "this Slime is older than v0.3.0: its Sample has neither 'rollout_id' nor 'group_id', so that "
    "the samples of one tree cannot be kept together, and it has no advantage hook; install v0.3.0 "
    "or newer"
)


@attrs.frozen
class Contract:
    """What differs between the versions of Slime that are supported.

    Attributes:
        version: For people: ``"v0.3.0"``, ``"v0.3.1"`` or ``"main"``.
        sibling_field: The field of ``Sample`` by which samples of one tree count as one rollout.
    """

    version: str
    sibling_field: str


def contract_of(sample_type: Any) -> Contract:
    """Read a ``Sample`` class.

    Args:
        sample_type: ``slime.utils.types.Sample``, or a class that works alike.

    Raises:
        UsageError: It is older than v0.3.0.
    """
    fields = getattr(sample_type, "__dataclass_fields__", None)
    if fields is None:  # a double of somebody's own: taken for the newest
        return Contract("main", "rollout_id")
    if "rollout_id" in fields:
        return Contract(_newer(), "rollout_id")
    if "group_id" in fields:
        return Contract("v0.3.0", "group_id")
    raise UsageError(_OLD)


def _newer() -> str:
    """Whether Slime has what came after v0.3.1; nothing depends on it but messages."""
    try:
        return "main" if importlib.util.find_spec("slime.observability") else "v0.3.1"
    except (ImportError, ValueError):
        return "main"


def find_slime() -> Any:
    """Slime's ``Sample`` class.

    Raises:
        UsageError: Slime is not installed, is older than v0.3.0, cannot be imported, or what is
            installed is the unrelated project that is called ``slime`` on PyPI.
    """
    try:
        types = importlib.import_module("slime.utils.types")
    except ImportError as error:
        raise UsageError(_missing(error)) from error
    sample_type = getattr(types, "Sample", None)
    if sample_type is None:
        raise UsageError(f"slime.utils.types has no Sample; {INSTALL}")
    contract_of(sample_type)
    return sample_type


def _missing(error: ImportError) -> str:
    """Why Slime cannot be imported, and what to do."""
    absent = getattr(error, "name", None) or ""
    ours = ("slime", "slime.utils", "slime.utils.types")
    if absent not in ours:
        return f"Slime is installed and cannot be imported: {error}; install what it needs"
    try:
        found = importlib.metadata.distribution("slime")
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found is None and importlib.util.find_spec("slime") is None:
        return f"Slime is not installed; {INSTALL}"
    what = f"{found.metadata['Name']} {found.version}" if found is not None else "a module 'slime'"
    return (
        f"what is installed as 'slime' ({what}) is not THUDM's Slime: it has no slime.utils.types. "
        "The project of that name on PyPI is an unrelated package for mixed-effects models; "
        f"'pip uninstall slime', then {INSTALL}"
    )


def generate_state() -> Any:
    """The state of Slime's own rollout loop; ``None`` until that loop made it."""
    module = sys.modules.get("slime.rollout.sglang_rollout")
    state_type = getattr(module, "GenerateState", None)
    # Of the metaclass, until Slime's clear_instances gives the class an attribute of its own.
    return getattr(state_type, "_instances", {}).get(state_type)


def is_aborting() -> bool:
    """Whether Slime's rollout is being called off; False where its state cannot be seen."""
    return bool(getattr(generate_state(), "aborted", False))
