"""Headless Chromium, driven over a pipe with its DevTools protocol: no driver, no socket."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

FLAGS = """
    --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-quic --remote-debugging-pipe
"""
LIMIT = 30.0


def installed():
    """The browser's path, or ``None``."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One process and one tab; a context manager."""

    def __enter__(self):
        self._profile = tempfile.mkdtemp(prefix="focus-chromium-")
        profile = f"--user-data-dir={self._profile}"
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # The protocol speaks on descriptors 3 and 4 of the browser.
        script = f'exec "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", installed(), *FLAGS.split(), profile],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._last = 0
        self._answers = {}
        self._news = threading.Condition()
        self.events = []
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        self._reader.join(LIMIT)
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _listen(self):
        rest = b""
        while data := os.read(self._read, 1 << 20):
            *messages, rest = (rest + data).split(b"\0")
            with self._news:
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers[message["id"]] = message
                    else:
                        self.events.append((message["method"], message["params"]))
                self._news.notify_all()

    def call(self, method, **params):
        """One command, its answer awaited."""
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        with self._news:
            assert self._news.wait_for(lambda: number in self._answers, LIMIT), f"{method}: silence"
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def run(self, expression):
        """The value of a JavaScript expression, awaited if it is a promise."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def size(self, width, height, dark=False, scale=1):
        """The viewport, in CSS pixels, and the colours its user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def open(self, path):
        """Open a file; returns the seconds until two frames after its scripts ran were drawn."""
        self.events.clear()
        start = time.perf_counter()
        self.call("Page.navigate", url=path.resolve().as_uri())
        drawn = (
            "new Promise(done => { const draw = () => requestAnimationFrame(() => "
            "requestAnimationFrame(done)); document.readyState === 'complete' ? draw() : "
            "addEventListener('load', draw); })"
        )
        self.run(drawn)
        return time.perf_counter() - start

    def settle(self):
        """Wait until what was asked for is drawn."""
        self.run("new Promise(d => requestAnimationFrame(() => requestAnimationFrame(d)))")

    def press(self, *keys):
        """Press keys by their DOM name, with Shift where a name starts with ``Shift+``."""
        for name in keys:
            key = name.removeprefix("Shift+")
            text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
            common = {"key": key, "modifiers": 8 if name != key else 0}
            common["windowsVirtualKeyCode"] = CODES.get(key, ord(key[0].upper()))
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
            self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.settle()

    def click(self, x, y):
        """Click a point of the viewport."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def picture(self, path):
        """Save what is in view as a PNG."""
        self.settle()
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    @property
    def requests(self):
        """Addresses asked for since the last ``open``, the page's own left out."""
        asked = [p["request"]["url"] for m, p in self.events if m == "Network.requestWillBeSent"]
        return [url for url in asked[1:] if not url.startswith("data:")]

    @property
    def complaints(self):
        """Exceptions, errors and warnings of the console, dialogs."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [e for e in self.events if e[0] in (*kinds, "Page.javascriptDialogOpening")]


CODES = {
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
    "Home": 36,
    "End": 35,
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "/": 191,
    "?": 191,
}
