"""A headless Chromium over its DevTools pipe, for tests of pages: browser.Browser()."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser")
ANSWER_SECONDS = 60  # beyond it something hangs


def program():
    """The browser's path, None if this machine has none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """Ends with its `with` block. One page; a console error or an exception of it is kept."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        to_read, self._to = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe())
        self._from, to_write = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in os.pipe())

        def take_descriptors():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        self.process = subprocess.Popen(
            [program(), "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             f"--user-data-dir={self._folder.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=take_descriptors, pass_fds=(3, 4))
        os.close(to_read)
        os.close(to_write)
        self._number, self._session, self._unread = 0, None, b""
        self.errors = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def _message(self):
        while b"\0" not in self._unread:
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise AssertionError("the browser has ended")
            self._unread += chunk
        whole, self._unread = self._unread.split(b"\0", 1)
        return json.loads(whole)

    def _take_event(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def call(self, method, **params):
        """The result of one call of the DevTools protocol; events before it are taken in."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        if self._session:
            request["sessionId"] = self._session
        os.write(self._to, json.dumps(request).encode() + b"\0")
        while True:
            message = self._message()
            self._take_event(message)
            if message.get("id") != self._number:
                continue
            if "error" in message:
                raise AssertionError(f"{method}: {message['error']}")
            return message["result"]

    def open(self, url):
        self.call("Page.navigate", url=url)

    def shape(self, width, height, dark=False, scale=1):
        """The window's size in CSS pixels, and the colours that its reader prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=width < 500)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise AssertionError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression):
        """Waits until the expression is true; returns its value."""
        end = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < end:
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}; errors: {self.errors}")

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as file:
            file.write(base64.b64decode(data["data"]))
