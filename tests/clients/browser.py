# SPDX-License-Identifier: Apache-2.0
"""A browser without a window, driven by the DevTools protocol over two pipes: standard library only, and nothing of it
touches a network but the server that is tested.

    with Browser() as browser, browser.page(url) as page:
        page.wait("document.querySelector('#main')")

Everything that a page asks for, says on its console or breaks of its policy is recorded; Page.check() fails for what
nobody expected. Nothing sleeps: wait() polls an expression with a deadline, or looks again at each message.
"""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

from harness import Skip

NAMES = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome-stable", "google-chrome")
OPTIONS = [
    "--headless=new", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-extensions", "--disable-breakpad", "--metrics-recording-only", "--mute-audio",
    "--password-store=basic", "--use-mock-keychain", "--hide-scrollbars", "--force-color-profile=srgb",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,AutofillServerCommunication",
    # Whatever is not loopback is nowhere: no name is asked for, no proxy is there.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--no-proxy-server",
]
PATIENCE_S = 60
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "Space": (32, " "), "ArrowLeft": (37, ""),
        "ArrowRight": (39, ""), "ArrowUp": (38, ""), "ArrowDown": (40, ""), "Home": (36, ""), "End": (35, "")}
SHIFT, CONTROL = 8, 2
# Events of the mouse that are for others than this element are nobody's. guarded() ends that: was there a click for it?
GUARD = """(() => {
    const element = document.querySelector(%s);
    const kinds = ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click'];
    let missed = false;
    const look = (event) => {
        if (!element?.contains(event.target)) {
            missed = true;
            event.preventDefault();
            event.stopImmediatePropagation();
        }
    };
    kinds.forEach((kind) => addEventListener(kind, look, { capture: true }));
    window.guarded = () => {
        kinds.forEach((kind) => removeEventListener(kind, look, { capture: true }));
        delete window.guarded;
        return !missed;
    };
})()"""


def program():
    """@return the browser's path."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    raise Skip("no Chromium is installed")


class Broken(Exception):
    """The browser answered with an error, or is gone."""


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="baton-browser-")
        self.last, self.answers, self.pages, self.rest = 0, {}, {}, b""
        to_read, self.write_fd = os.pipe()
        self.read_fd, to_write = os.pipe()
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        home = dict(os.environ, HOME=self.folder, XDG_CONFIG_HOME=self.folder, XDG_CACHE_HOME=self.folder)

        def give_pipes():
            # The browser reads from 3 and writes to 4.
            reads, writes = os.dup(to_read), os.dup(to_write)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        with open(os.path.join(self.folder, "log"), "wb") as log:
            self.process = subprocess.Popen(  # pylint: disable=subprocess-popen-preexec-fn
                [program(), *OPTIONS, *sandbox, "--user-data-dir=" + self.folder, "about:blank"], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, close_fds=False, preexec_fn=give_pipes, env=home, start_new_session=True)
        os.close(to_read)
        os.close(to_write)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close", seconds=10)
        except (Broken, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.write_fd)
        os.close(self.read_fd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        with open(os.path.join(self.folder, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]

    def send(self, method, session=None, **parameters):
        """@return the number of the answer"""
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_fd, data):]
        return self.last

    def hear(self, seconds):
        """Take what the browser says. @return False: it said nothing for so long"""
        if not select.select([self.read_fd], [], [], max(0, seconds))[0]:
            return False
        data = os.read(self.read_fd, 1 << 20)
        if not data:
            raise Broken("the browser is gone: " + self.log())
        *whole, self.rest = (self.rest + data).split(b"\0")
        for text in whole:
            message = json.loads(text)
            if "id" in message:
                self.answers[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].take(message["method"], message["params"])
        return True

    def call(self, method, session=None, seconds=PATIENCE_S, **parameters):
        number = self.send(method, session, **parameters)
        end = time.monotonic() + seconds
        while number not in self.answers:
            if not self.hear(end - time.monotonic()) and time.monotonic() >= end:
                raise Broken(f"{method}: no answer in {seconds} s: {self.log()}")
        answer = self.answers.pop(number)
        if "error" in answer:
            raise Broken(f"{method}: {answer['error'].get('message')}")
        return answer["result"]

    def page(self, url, **look):
        """A tab with storage of its own. look: as of Page.look()"""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Network", "Log", "Audits"):
            page.call(domain + ".enable")
        page.look(**look)
        page.open(url)
        return page


class Page:
    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context
        self.asked = {}  # numbers of requests: their addresses
        self.headers = []  # (address, headers of the request)
        self.answered = []  # (address, status, headers, where it came from)
        self.complaints = []  # of the console, of scripts, of the policy
        self.loaded = 0
        self.origin = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.check()
        self.close()

    def close(self):
        self.browser.pages.pop(self.session, None)
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def take(self, method, told):
        if method == "Network.requestWillBeSent":
            self.asked[told["requestId"]] = told["request"]["url"]
            self.headers.append((told["request"]["url"], told["request"]["headers"]))
        elif method == "Network.loadingFailed" and told.get("blockedReason") == "csp":
            self.asked.pop(told["requestId"], None)  # it never left, and is complained of
        elif method == "Network.responseReceived":
            answer = told["response"]
            self.answered.append((answer["url"], answer["status"], answer["headers"], answer.get("fromDiskCache", False)))
        elif method == "Page.loadEventFired":
            self.loaded += 1
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append("console: " + " ".join(str(x.get("value", x.get("description"))) for x in told["args"]))
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.complaints.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            entry = told["entry"]
            self.complaints.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Audits.issueAdded" and told["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.complaints.append("policy: " + json.dumps(told["issue"]["details"]))

    @property
    def requests(self):
        return list(self.asked.values())

    def check(self, *expected):
        """Nothing was complained of but lines with one of these words, and nothing was asked of anybody else."""
        self.run("0")  # what was said meanwhile is heard
        bad = [x for x in self.complaints if not any(word in x for word in expected)]
        assert not bad, "\n".join(bad)
        outside = [x for x in self.requests if not x.startswith((self.origin + "/", "data:", "blob:"))]
        assert not outside, outside
        self.complaints.clear()

    def open(self, url):
        loaded = self.loaded
        self.origin = "/".join(url.split("/")[:3])
        self.call("Page.navigate", url=url)
        self.hear_until(lambda: self.loaded > loaded, f"{url} is loaded")

    def reload(self):
        loaded = self.loaded
        self.call("Page.reload")
        self.hear_until(lambda: self.loaded > loaded, "it is loaded again")

    def hear_until(self, condition, what, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            self.browser.hear(0.1)

    def look(self, width=1280, height=800, theme="light", motion=True, phone=False):
        """How it is looked at."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
                  mobile=phone)
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"}])

    # --- as a script

    def run(self, script, world=None):
        """@return the value of an expression, awaited"""
        more = {"contextId": world} if world else {}
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True,
                         allowUnsafeEvalBlockedByCSP=False, **more)
        if "exceptionDetails" in told:
            details = told["exceptionDetails"]
            raise AssertionError(f"{script[:300]}: " + details.get("exception", {}).get("description", details["text"]))
        return told["result"].get("value")

    def wait(self, script, what=None, seconds=PATIENCE_S):
        """Until an expression is true. @return its value"""
        end = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if value or value == {}:  # an element has no value, but it is there
                return value
            assert time.monotonic() < end, f"not within {seconds} s: {what or script}\n{self.text()[-1500:]}"
            self.browser.hear(0.03)

    def text(self, selector="body"):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    def isolated(self):
        """A world of scripts that the page's own do not see, nor its policy bind."""
        frame = self.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        return self.call("Page.createIsolatedWorld", frameId=frame, worldName="tests")["executionContextId"]

    # --- as a person

    def key(self, name, modifiers=0, text=None):
        code, default = KEYS.get(name, (ord(name.upper()[0]), name))
        text = default if text is None and not modifiers & CONTROL else (text or "")
        common = {"modifiers": modifiers, "key": " " if name == "Space" else name, "code": name if name in KEYS else "Key" + name.upper(),
                  "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def place(self, selector):
        """Where the middle of an element is, once it stays there and nothing lies above it."""
        return self.wait(f"""(async () => {{
            const element = document.querySelector({json.dumps(selector)});
            let last = '';
            for (let tries = 0; element !== null && tries < 30; tries++) {{
                element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
                await new Promise(requestAnimationFrame);
                const box = element.getBoundingClientRect();
                const at = [box.x + box.width / 2, box.y + box.height / 2];
                if (box.width > 0 && at.join() === last && element.contains(document.elementFromPoint(...at))) {{
                    return at;
                }}
                last = at.join();
            }}
            return null;
        }})()""", f"{selector} can be clicked")

    def click(self, selector):
        """What comes between the look and the click may move the element or put another one in its place: what the click
        meets then does not hear of it, and it is looked again."""
        end = time.monotonic() + PATIENCE_S
        hit = False
        while not hit:
            assert time.monotonic() < end, f"not within {PATIENCE_S} s: a click meets {selector}"
            x, y = self.place(selector)
            self.run(GUARD % json.dumps(selector))
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            hit = self.run("window.guarded?.() ?? true")  # a click may have led to another document

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
