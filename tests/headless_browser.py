"""Chromium without a window, driven through its debugging pipe: no library, no port, no network."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "--headless=new",
    "--no-sandbox",  # in a container there is no other user to be protected from
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # whatever the page wants from elsewhere is not there
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """Return the path of Chromium, or None; the variable DEEPTRAM_BROWSER names another one."""
    wanted = os.environ.get("DEEPTRAM_BROWSER")
    return wanted or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser; everything it complains about is kept.

    Parameters
    ----------
    program : str
        Path of Chromium.

    Attributes
    ----------
    complaints : list of str
        Errors and warnings of the console, and exceptions nobody caught.
    requests : list of str
        Addresses that the page asked for.
    """

    def __init__(self, program: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._events: list[dict] = []
        self._buffer, self._last, self._session = b"", 0, None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, from_browser = os.pipe(), os.pipe()
        self._write, self._read = to_browser[1], from_browser[0]

        def connect() -> None:  # Chromium reads commands from 3 and answers on 4
            above = 10  # neither 3 nor 4, whatever numbers the pipes have
            commands, answers = (
                fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in (to_browser[0], from_browser[1])
            )
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        self._process = subprocess.Popen(
            [program, *SWITCHES, f"--user-data-dir={self._profile.name}", "about:blank"],
            preexec_fn=connect,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._attach()

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self.call("Browser.close", timeout=5, session=False)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for fd in (self._write, self._read):
            os.close(fd)
        self._profile.cleanup()

    def call(self, method: str, *, timeout: float = 180, session: bool = True, **parameters: object) -> dict:
        """Send a command of the DevTools protocol and return its result."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        wanted, end = self._last, time.monotonic() + timeout
        while True:
            answer = self._receive(end)
            if answer.get("id") == wanted:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def open(self, path: Path, width: int = 1280, height: int = 900, *, mobile: bool = False) -> None:
        """Open a file in a window of a size, and wait until it is loaded."""
        self.resize(width, height, mobile=mobile)
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Give the window another size."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )

    def evaluate(self, script: str) -> object:
        """Return the value of a JavaScript expression (of a promise: what it resolves to)."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(str(details.get("exception", {}).get("description", details)))
        return answer["result"].get("value")

    def hover(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window."""
        for shift in (3, 1, 0):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + shift, y=y)

    def click(self, x: float, y: float) -> None:
        """Click at a place in the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def pdf(self) -> bytes:
        """Return the page as it prints, in the size its style sheet asks for."""
        answer = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])

    def screenshot(self, path: Path, *, full: bool = False) -> None:
        """Write what the window shows (or the whole page) as PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=full)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _attach(self) -> None:
        targets = self.call("Target.getTargets", session=False)["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", session=False, targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _wait_for(self, method: str, timeout: float = 180) -> None:
        end = time.monotonic() + timeout
        while not any(event["method"] == method for event in self._events):
            self._receive(end)

    def _receive(self, end: float) -> dict:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            content = os.read(self._read, 1 << 20)
            if not content:
                raise OSError("Chromium has ended")
            self._buffer += content
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self._events.append(message)
            self._note(message["method"], message["params"])
        return message

    def _note(self, method: str, parameters: dict) -> None:
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(str(details.get("exception", {}).get("description", details["text"])))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a)) for a in parameters["args"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
