"""What this distribution registers. Nothing heavy is imported here."""

from __future__ import annotations
