#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`baton top` without a terminal: what a frame says of what a router told, and the command's own ends."""
import http.server
import json
import os
import subprocess
import sys
import threading
import unittest

CLI = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "cli")
sys.path.insert(0, CLI)
import top_frame  # noqa: E402

SERIES = ("begun", "ended", "failed", "canceled", "refused", "rerun", "in_tokens", "out_tokens", "ttft_p50_ms",
          "ttft_p90_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p90_ms", "itl_p99_ms", "waiting", "running",
          "ttft_targets", "ttft_met", "itl_targets", "itl_met")


def worker(name, **more):
    return {"name": name, "id": f"id-{name}", "model": "m", "role": "decode", "state": "up", "duty": "on", "expected": None,
            "launched": False, "restarts": None, "version": "0.1.0", "tp": 1, "pp": 1, "start_unix_ms": 1, "reported": True,
            "seats": 64, "active": 5, "waiting": 2, "waiting_for_kv": 1, "paused": 0, "batch_requests": 5, "batch_context": 1,
            "batch_generation": 4, "batch_context_tokens": 128, "iterations": 9, "blocks": 4096, "blocks_used": 1024,
            "blocks_free": 3072, "blocks_cached": 17, "blocks_quarantined": 0, "blocks_window": 0, "block_tokens": 16,
            "leases": 3, "prompt_tokens": 100, "generated_tokens": 200, "reused_tokens": 0, "kv_sent_bytes": 0,
            "kv_received_bytes": 0, "cpu_ms": 1000, "resident_bytes": 1, "still_ms": 0, "sent_requests": 5,
            "sent_prompt_tokens": 0, "sent_prompt_ms": 0, **more}


def missing(name):
    return {"name": name, "id": None, "model": "m", "role": "prefill", "state": "missing", "expected": True, "launched": True,
            "restarts": 3, "process": "waiting", "why": None}


def point(**values):
    return {"model": None, **{k: [values.get(k)] if k.startswith(("ttft_p", "itl_p")) else [values.get(k, 0)] for k in SERIES}}


def snapshot(workers, **more):
    return {"now_unix_ms": 1764178308123, "router": {
        "name": "r1", "version": "0.1.0", "ready": True, "state": "ready", "start_unix_ms": 1, "uptime_ms": 3723000,
        "connections": 12, "watchers": 1, "max_watchers": 16},
        "queue": {"waiting": 1, "running": 7, "arriving": 2, "max": 4096},
        "models": [{"name": "m", "loaded": True, "ready": True, "running": 7, "waiting": 1, "context_tokens": 8192,
                    "ttft_target_ms": None, "itl_target_ms": None}],
        "workers": workers, "missing": [], "refused": [], "tenants": [],
        "history": {"step_ms": 5000, "unix_ms": [1], "series": [
            point(begun=10, ended=20, in_tokens=4100, out_tokens=2200, ttft_p50_ms=83.1, ttft_p90_ms=120, ttft_p99_ms=11500,
                  itl_p50_ms=9.13)]},
        "events": [], **more}


def text(view, width=80, height=24, **more):
    return top_frame.plain(top_frame.frame(view, width, height, **more)[0])


class Frames(unittest.TestCase):
    def test_top_frame_of_80_by_24_is_complete(self):
        shown = text(top_frame.View(snapshot([worker("d-0"), missing("p-0")])))
        for part in ("r1 ready  Baton 0.1.0, up 1:02:03", "17:31:48 UTC", "queue: 1 waiting, 7 running, 2 arriving, most 4096",
                     "requests/s 2 begun, 4 ended  tokens/s 820 in, 440 out", "first token 83.1/120/11.5s  between 9.1/-/-",
                     "10 begun, 20 ended, 0 failed", "model  m ready  7 running, 1 waiting",
                     "d-0     decode   up       5/64    2     1+4    1024/4096  25%"):
            self.assertIn(part, shown)
        self.assertRegex(shown, r"p-0 +prefill +missing +3\n")
        self.assertLessEqual(max(map(len, shown.split("\n"))), 80)
        self.assertLessEqual(shown.count("\n"), 24)

    def test_top_frame_fits_any_terminal_size(self):
        view = top_frame.View(snapshot([worker(f"w-{i}") for i in range(40)] + [missing("p-0")], events=[
            {"id": f"x-{i}", "unix_ms": 1, "kind": "worker_lost", "text": "long " * 60} for i in range(30)]))
        for width in (1, 7, 40, 79, 80, 100, 131, 220):
            for height in (1, 2, 5, 12, 24, 60, 200):
                lines, furthest = top_frame.frame(view, width, height, scroll=10**6)
                self.assertLessEqual(len(lines), height)
                self.assertTrue(all(sum(len(t) for t, _ in line) <= width for line in lines), (width, height))
                self.assertGreaterEqual(furthest, 0)

    def test_workers_scroll_to_the_last_and_no_further(self):
        view = top_frame.View(snapshot([worker(f"w-{i:02}") for i in range(40)]))
        self.assertIn("w-00", text(view))
        _, furthest = top_frame.frame(view, 80, 24)
        shown = text(view, scroll=furthest)
        self.assertIn("w-39", shown)
        self.assertNotIn("w-00", shown)
        self.assertEqual(shown, text(view, scroll=furthest + 5))
        self.assertRegex(shown, r"\.\.\. \d+ of 40 workers are above or below")

    def test_wider_terminals_show_more(self):
        view = top_frame.View(snapshot([worker("d-0")]))
        self.assertNotIn("VERSION", text(view, 80))
        for name in ("MODEL", "CTX", "CACHED", "LEASES", "TOK/S", "CPU", "VERSION", "ID"):
            self.assertIn(name, text(view, 200))

    def test_top_rates_reset_when_a_worker_restarts(self):
        view = top_frame.View(snapshot([worker("d-0")]))
        later = snapshot([worker("d-0", prompt_tokens=150, generated_tokens=350, cpu_ms=1500)])
        later["now_unix_ms"] += 2000
        view.take("state", later)
        self.assertRegex(text(view, 200), r" 100 +25% ")  # (50 + 150) / 2 s; 0.5 s of CPU in 2 s
        again = snapshot([worker("d-0", id="another", prompt_tokens=1, generated_tokens=1)])
        again["now_unix_ms"] += 4000
        view.take("state", again)
        self.assertEqual(view.rates, {})

    def test_points_events_and_hand_overs_add_to_what_is_known(self):
        view = top_frame.View(snapshot([worker("d-0")]))
        view.take("point", {"step_ms": 5000, "unix_ms": [2], "series": [point(begun=5, out_tokens=10)]})
        view.take("event", {"id": "x-1", "unix_ms": 1764178300456, "kind": "worker_lost", "text": "worker d-0 is gone"})
        view.take("handover", {"left_out": 2, "list": [
            {"phase": "begun", "from": "p-0", "to": "d-0", "bytes": None, "length_ms": None},
            {"phase": "ended", "from": "p-0", "to": "d-0", "bytes": 4096, "length_ms": 1.5}]})
        view.take("something new", {})
        shown = text(view)
        self.assertIn("requests/s 1 begun", shown)
        self.assertIn("15 begun", shown)
        self.assertIn("17:31:40 worker d-0 is gone", shown)
        self.assertIn("1 hand-overs seen, 4096B, 0 given up; last p-0 > d-0 4096B 1.5 ms", shown)

    def test_top_escapes_terminal_control_characters(self):
        view = top_frame.View(snapshot([worker("d\x1b[2J\x07", model="\x9b1m")], events=[
            {"id": "x-1", "unix_ms": 1, "kind": "x", "text": "a\x1b]0;b\x07\nc"}],
            refused=[{"name": "e\x1b", "address": None, "why": "f\x00"}]))
        shown = text(view, 200, notice="g\x1b")
        self.assertFalse([c for c in shown if c != "\n" and (c < " " or "\x7f" <= c < "\xa0")], shown)

    def test_bars_are_of_the_highest(self):
        self.assertEqual(top_frame.bars([0, 1, 4, 8], 10), " ▂▅█")
        self.assertEqual(top_frame.bars([0, 1, 4, 8], 2, unicode=False), "+#")
        self.assertEqual(top_frame.bars([0, 0], 5), "  ")
        self.assertEqual(top_frame.bars([], 5), "")

    def test_numbers_are_short_and_exact_while_small(self):
        said = [top_frame.count(n) for n in (0, 9999, 10000, 123456, 12345678, None)]
        self.assertEqual(said, ["0", "9999", "10.0k", "123k", "12.3M", "-"])
        self.assertEqual([top_frame.milliseconds(n) for n in (0.04, 9.13, 123.4, 12345, None)],
                         ["0.0", "9.1", "123", "12.3s", "-"])


class Server(http.server.BaseHTTPRequestHandler):
    """Tells one snapshot to who has the key."""

    def do_GET(self):  # noqa: N802
        known = self.headers.get("Authorization") == "Bearer right"
        body = json.dumps(snapshot([worker("d-0")]) if known else {"error": "this needs a key"}).encode()
        status = 200 if known and self.path == "/v2/cluster" else 401 if not known else 404
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.url = f"127.0.0.1:{cls.server.server_address[1]}"

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def top(self, *words, **environment):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("BATON_", "OPENAI_", "COLUMNS"))}
        done = subprocess.run([sys.executable, os.path.join(CLI, "top.py"), *words], capture_output=True, text=True, timeout=60,
                              env={**clean, "PYTHONUTF8": "1", **environment}, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def test_one_frame_is_plain_text(self):
        code, out, said = self.top("--once", "--url", self.url, BATON_API_KEY="right")
        self.assertEqual((code, said), (0, ""))
        self.assertIn("1024/4096", out)
        self.assertNotIn("\x1b", out)
        self.assertEqual(self.top("--once", BATON_URL=self.url, BATON_API_KEY="right")[1], out)
        self.assertEqual(self.top("--once", "--api-key", "right", BATON_HTTP=self.url.removeprefix("http://"))[1], out)
        self.assertIn("VERSION", self.top("--once", "--url", self.url, BATON_API_KEY="right", COLUMNS="200")[1])

    def test_top_reports_errors_with_status_1(self):
        code, out, said = self.top("--once", "--url", self.url)
        self.assertEqual((code, out), (1, ""))
        self.assertIn("HTTP 401: this needs a key", said)
        code, out, said = self.top("--once", "--url", "127.0.0.1:1")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("127.0.0.1:1", said)
        code, out, said = self.top("--url", self.url, BATON_API_KEY="right")
        self.assertEqual((code, out), (1, ""))
        self.assertIn("this is no terminal; baton top --once", said)
        self.assertEqual(self.top("--onse")[0], 2)


if __name__ == "__main__":
    unittest.main()
