"""``python -m focus_adapter_tinker.loopback``: serve until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from focus_core.errors import FocusError, UsageError

KEY = "FOCUS_LOOPBACK_KEY"
"""Variable with the key that clients must send; an argument would be seen by everyone here."""

_GRACE = 1.5
"""Seconds from a signal to the end; a backward pass cannot be interrupted otherwise."""


def main(arguments: list[str] | None = None) -> int:
    """Serve; the exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    if options.stop_with_stdin:
        threading.Thread(target=_watch_stdin, daemon=True).start()
    made = tempfile.mkdtemp(prefix="focus-loopback-") if options.state is None else None
    try:
        return _serve(options, Path(made or options.state))
    except FocusError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m focus_adapter_tinker.loopback",
        description="Serve Tinker's protocol on 127.0.0.1 from a local model, until SIGTERM.",
        epilog=f"If {KEY} is set, only clients with that API key are served.",
    )
    add = parser.add_argument
    add("--port", type=int, default=0, help="0 (the default) takes a free one")
    add("--model", default="tiny", help="tiny, smollm2 or a directory")
    add("--state", help="directory for checkpoints; default: a temporary one")
    add("--fault", action="append", default=[], metavar="ROUTE:N=KIND", help="repeatable")
    add("--seed", type=int, help="makes sampling reproducible")
    add("--device", default="cpu", help="as the local trainer's")
    add("--dtype", default="float32", choices=("float32", "float64", "bfloat16"), help="as there")
    add("--threads", type=int, help="CPU threads of each thread that samples, learns or scores")
    add("--max-batch-tokens", type=int, default=2048, help="tokens of one backward pass")
    add("--patience", type=float, default=30.0, help="seconds to wait for a missing operation")
    add("--compress", action="store_true", help="have clients compress training requests")
    add("--stop-with-stdin", action="store_true", help="stop when standard input ends")
    return parser


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _watch_stdin() -> None:
    """End with whoever started the server, however that ends."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _serve(options: argparse.Namespace, state: Path) -> int:
    from focus_adapter_tinker.loopback.faults import Faults

    faults = Faults(options.fault)
    try:
        import aiohttp  # noqa: F401

        from focus_adapter_tinker.loopback.backend import Backend, Options
    except ImportError as error:
        raise UsageError(
            f"the loopback needs {error.name}: pip install 'focus-adapter-tinker[loopback]'"
        ) from error
    backend = Backend(
        Options(
            model=options.model,
            state=state,
            device=options.device,
            dtype=options.dtype,
            threads=options.threads,
            max_batch_tokens=options.max_batch_tokens,
            seed=options.seed,
            patience=options.patience,
        )
    )
    return asyncio.run(_until_stopped(backend, faults, options, state))


async def _until_stopped(
    backend: Any, faults: Any, options: argparse.Namespace, state: Path
) -> int:
    from aiohttp import web

    from focus_adapter_tinker.loopback.server import Server

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    key = os.environ.get(KEY) or None
    server = Server(backend, faults, compress=options.compress, key=key)
    runner = web.AppRunner(server.app, access_log=None, auto_decompress=False, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", options.port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                f"port {options.port} cannot be used: {error.strerror}; give another --port"
            ) from error
        print(f"ready http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
        await stop.wait()
    finally:
        last = threading.Timer(_GRACE, _end_now, (state if options.state is None else None,))
        last.daemon = True
        last.start()
        await runner.cleanup()
        await asyncio.to_thread(backend.close)
    return 0


def _end_now(made: Path | None) -> None:
    if made is not None:
        shutil.rmtree(made, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # all threads have ended; taking torch apart would take another second
