# SPDX-License-Identifier: Apache-2.0
"""`baton top` in a terminal of 80 x 24 (tmux's) against a cluster: what it shows is what /metrics says."""
import os
import re
import shutil
import subprocess
import tempfile

from harness import ROOT, Cluster, Skip, small_model, wait_until

PROMPT = "one two three"
N = 5


class Terminal:
    """A program in a terminal that nobody looks at."""

    def __init__(self, directory, width, height, words, **environment):
        if shutil.which("tmux") is None:
            raise Skip("there is no tmux")
        # A socket's path is short; the server is this terminal's alone, and ends with it.
        self.tmux = ["tmux", "-f", "/dev/null", "-S", os.path.join(directory, "t")]
        ours = ("BATON_", "OPENAI_", "TMUX", "NO_COLOR", "COLUMNS", "LINES")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        self.environment = {**clean, "LC_ALL": "C.UTF-8", **environment}
        self.run("new-session", "-d", "-x", str(width), "-y", str(height), *words)

    def run(self, *words, check=True):
        return subprocess.run([*self.tmux, *words], capture_output=True, text=True, timeout=60, check=check,
                              env=self.environment).stdout

    def shown(self, *words):
        return self.run("capture-pane", "-p", *words, check=False)

    def is_there(self):
        return subprocess.run([*self.tmux, "has-session"], capture_output=True, timeout=60, check=False).returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.run("kill-server", check=False)


def top(c):
    return [os.path.join(ROOT, "baton"), "top", "--url", "http://%s:%d" % c.http]


def figures(text):
    """{name: (active, seats, used, blocks)} of the workers that a frame has."""
    return {name: tuple(map(int, found)) for name, *found in re.findall(
        r"^((?:prefill|decode)-\d) .*? (\d+)/(\d+) .*? (\d+)/(\d+) ", text, re.M)}


def expected(c, *workers):
    """The same of /metrics."""
    found = {}
    for worker in workers:
        active, seats = (int(c.metric(f"baton_worker_{name}", worker=worker)) for name in ("active_requests", "seats"))
        found[worker] = (active, seats, int(c.metric("baton_kv_blocks", worker=worker, state="used")),
                         int(c.total("baton_kv_blocks", worker=worker)))
    return found


def test_top_shows_the_values_of_the_metrics():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, Cluster(small_model(directory), decode=2) as c:
        for i in range(N):
            c.complete(f"{PROMPT} {i}", max_tokens=20, ignore_eos=True)
        c.wait_idle()
        tokens = [int(c.total(f"baton_{kind}_tokens_total")) for kind in ("prompt", "generation")]
        with Terminal(directory, 80, 24, top(c)) as terminal:
            wait_until("it shows the workers as they are", lambda: figures(terminal.shown())
                       == expected(c, "prefill-0", "decode-0", "decode-1"))
            wait_until("it shows what was, once that step is over", lambda: all(part in terminal.shown() for part in (
                f" {N} begun, {N} ended, 0 failed", f"tokens {tokens[0]} in, {tokens[1]} out")))
            wait_until("it looks on", lambda: "1 watching" in terminal.shown())
            shown = terminal.shown()
            assert re.search(r"^router ready  Baton \S+, up \d+:\d\d:\d\d +\d\d:\d\d:\d\d UTC$", shown, re.M), shown
            assert "queue: 0 waiting, 0 running" in shown, shown
            assert "worker decode-1 joined, decode" in shown, shown
            lines = shown.rstrip("\n").split("\n")
            assert len(lines) <= 24 and max(map(len, lines)) <= 80, shown
            assert re.search("\x1b\\[[0-9;]*3[1-7]m", terminal.shown("-e")), "there are no colors"

            # A hand-over is told as it comes; a worker that goes, too.
            c.complete(PROMPT, max_tokens=4, ignore_eos=True)
            wait_until("the hand-over is shown", lambda: re.search(
                r"1 hand-overs seen, \d+B, 0 given up; last prefill-0 > decode-\d", terminal.shown()))
            c.decodes[1].kill()
            wait_until("its loss is shown", lambda: "worker decode-1 is gone" in terminal.shown()
                       and "decode-1" not in figures(terminal.shown()))

            # More room shows more, less room less, and nothing breaks.
            terminal.run("resize-window", "-x", "200", "-y", "40")
            wait_until("it is wider", lambda: re.search(r"^WORKER .* VERSION .* ID$", terminal.shown(), re.M))
            terminal.run("resize-window", "-x", "30", "-y", "6")
            wait_until("it is small", lambda: terminal.shown().startswith("router ready") and "WORKER" not in terminal.shown())
            terminal.run("send-keys", "q")
            wait_until("it has ended", lambda: not terminal.is_there())

        with Terminal(directory, 80, 24, top(c), NO_COLOR="1") as terminal:
            wait_until("it is there", lambda: "decode-0" in figures(terminal.shown()))
            # 39 and 49 are the terminal's own.
            assert not re.search("\x1b\\[[0-9;]*[34][0-7][;m]", terminal.shown("-e")), terminal.shown("-e")

        once = subprocess.run([*top(c), "--once"], capture_output=True, text=True, timeout=60, check=True,
                              env={**os.environ, "COLUMNS": "80"}).stdout
        assert figures(once) == expected(c, "prefill-0", "decode-0"), once
