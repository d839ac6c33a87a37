"""A real browser, asked through its DevTools protocol: pages as a reader meets them, without any driver installed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from workers.patience import PATIENCE

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip


def require_browser() -> None:
    """Skip the test where no browser is installed, or fail it where `RANKWISE_BROWSER=required`, as in CI."""
    if CHROMIUM is None:
        end = pytest.fail if os.environ.get("RANKWISE_BROWSER") == "required" else pytest.skip
        end("needs Chromium or Chrome, which is not installed (Debian: apt-get install chromium)")


class Browser:
    """Chromium with one tab. Messages are JSON, each ended by a zero byte, over two pipes (its files 3 and 4)."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.mkdtemp()
        reads, self._writer = os.pipe()
        self._reader, writes = os.pipe()
        command = f'exec "$@" 3<&{reads} 4>&{writes}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, "bash", CHROMIUM, *OPTIONS, f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(reads, writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self._left, self._number, self._session = b"", 0, None
        self.events: list[dict] = []
        target = next(each for each in self._targets() if each["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters):
        """One command, and what it gave; what happened meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of this size."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, code: str):
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "End": 35}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key])

    def problems(self) -> list[str]:
        """What the page said on its console, and what it asked for beyond itself."""
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")
        found = []
        for event in self.events:
            method, given = event["method"], event.get("params", {})
            if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                found.append(json.dumps(given)[:400])
            if method == "Network.requestWillBeSent" and given.get("type") != "Document":
                address = given["request"]["url"]
                if not address.startswith("data:"):
                    found.append(f"asks for {address[:200]}")
        return found

    def picture(self, *, whole: bool = True) -> bytes:
        """What is seen, as PNG."""
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole, **clip)["data"])

    def paper(self) -> bytes:
        """The page as it is printed on A4, as PDF."""
        printed = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)
        return base64.b64decode(printed["data"])

    def close(self) -> None:
        with suppress(Exception):
            self._session = None
            self.call("Browser.close")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._writer)
        os.close(self._reader)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _targets(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.call("Target.getTargets")["targetInfos"]
            if any(each["type"] == "page" for each in found):
                return found
            time.sleep(0.1)
        raise TimeoutError("the browser opened no page")

    def _next(self) -> dict:
        while b"\0" not in self._left:
            block = os.read(self._reader, 1 << 20)
            if not block:
                raise RuntimeError("the browser has ended")
            self._left += block
        message, _, self._left = self._left.partition(b"\0")
        return json.loads(message)
