"""FOCUS on Tinker: its sampling clients as policies, its training clients as trainers."""

from __future__ import annotations

__version__ = "0.1.0"
