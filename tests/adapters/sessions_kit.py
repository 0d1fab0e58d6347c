"""Sessions of the Tinker SDK that nobody ends: their heartbeats would outlive the server."""

import contextlib

import pytest


@contextlib.contextmanager
def ending_sessions():
    """End what is opened within, as a program does that the process outlives."""
    import tinker

    opened, begin = [], tinker.ServiceClient.__init__

    def begun(self, *args, **options):
        begin(self, *args, **options)
        opened.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tinker.ServiceClient, "__init__", begun)
        yield
    for service in opened:
        if hasattr(service, "close"):  # since 0.27
            service.close("success").result(10)
