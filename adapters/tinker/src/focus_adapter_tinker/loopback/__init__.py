"""A server of Tinker's protocol on this machine, backed by the local trainer.

::

    python -m focus_adapter_tinker.loopback --port 8000 --model tiny

It serves the real SDK from 127.0.0.1 and spends nothing: for dry runs, and for tests, in which
faults can be switched on. ``Loopback`` runs it for as long as a ``with`` block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from focus_core.utils.lazy import lazy

if TYPE_CHECKING:
    from focus_adapter_tinker.loopback.process import Loopback

__all__ = ["Loopback"]

__getattr__, __dir__ = lazy(__name__, {"Loopback": ".process"})
