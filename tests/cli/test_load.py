#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./baton load-test` against servers of the test's own, some of them broken, and its figures worked by hand."""
import contextlib
import itertools
import json
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import xml.dom.minidom

from serving import CLI, DONE, LIMIT_S, Server, closed_port, delta, event, usage

import load_plan
import load_report
import load_svg
import load_wire
from words import Trouble

LOAD = os.path.join(CLI, "load.py")


def record(due, first, gaps=(), end=None, error=None, usage=None):
    made = load_wire.Record(due)
    if first is not None:
        made.first = made.last = first
        made.n_events = 1 + len(gaps)
        for gap in gaps:
            made.gaps.append(gap)
            made.last += gap
    made.end = end if end is not None else made.last
    made.usage = usage
    if error:
        made.fail(error)
    return made


class Figures(unittest.TestCase):
    def test_percentiles_are_of_the_nearest_rank(self):
        # ceil(p / 100 * n), by hand: of 10 values p50 is the 5th, p90 the 9th, p95 and p99 the 10th.
        found = load_report.summary([5, 1, 4, 2, 3, 10, 9, 8, 7, 6])
        self.assertEqual(found, {"p50": 5, "p90": 9, "p95": 10, "p99": 10, "max": 10, "mean": 5.5, "n": 10})
        self.assertIsNone(load_report.summary([]))

    def test_times_count_from_when_a_request_was_due(self):
        one = record(10.0, 10.5, [0.1, 0.3], end=11.0)
        found = load_report.latencies([one, record(0, None, end=1, error="HTTP 429")])
        for name, values in {"ttft_ms": [500], "itl_ms": [100, 300], "tpot_ms": [200], "e2e_ms": [1000]}.items():
            self.assertEqual(len(found[name]), len(values), name)
            for got, want in zip(found[name], values):
                self.assertAlmostEqual(got, want, places=6)
        # The server counted 5 tokens in 3 events: (0.1 + 0.3) / 4
        one.usage = (7, 5)
        self.assertAlmostEqual(load_report.tpot_ms(one), 100.0)

    def test_goodput_counts_all_offered_requests(self):
        records = [record(0, 0.1, [0.01], end=0.2), record(0, 0.3, [0.01], end=0.4), record(0, 0.1, [0.05], end=0.2),
                   record(0, None, end=0.1, error="HTTP 429"), record(0, 0.1, [0.01], end=0.2, error="cut off")]
        for targets, good in (({}, 3), ({"ttft_ms": 200}, 2), ({"itl_ms": 20}, 2), ({"ttft_ms": 200, "itl_ms": 20}, 1),
                              ({"e2e_ms": 150}, 0), ({"tpot_ms": 50.001}, 3)):
            self.assertEqual(sum(load_report.is_good(r, targets) for r in records), good, targets)

    def test_picture_is_a_file_of_xml_whatever_the_names(self):
        values = {"ttft_ms": [1.0, 20.0, 3000.0], "itl_ms": [7.0], "tpot_ms": [], "e2e_ms": [5.0, 5.5, 6.0]}
        drawn = load_svg.draw("<script>&\"", values, {"ttft_ms": 100})
        document = xml.dom.minidom.parseString(drawn)
        self.assertEqual(document.getElementsByTagName("script"), [])
        words = [t.firstChild.data for t in document.getElementsByTagName("text")]
        self.assertIn("<script>&\"", words)
        self.assertIn("p50 20", words)
        self.assertIn("target 100", words)
        self.assertEqual(words.count("no values"), 1)


class Plans(unittest.TestCase):
    def test_arrivals_have_their_rate_and_come_from_the_seed(self):
        def some(kind, n, **more):
            return list(itertools.islice(load_plan.arrival_times(kind, chance=random.Random(7), **more), n))
        self.assertEqual(some("constant", 4, rate=4, burst=8), [0, 0.25, 0.5, 0.75])
        self.assertEqual(some("bursts", 5, rate=4, burst=2), [0, 0, 0.5, 0.5, 1.0])
        times = some("poisson", 20000, rate=50, burst=1)
        self.assertEqual(times, some("poisson", 20000, rate=50, burst=1))
        self.assertEqual(times, sorted(times))
        # 20,000 exponential gaps of mean 20 ms: their mean is within 1 % with 1.4 sigma; the seed is fixed.
        self.assertAlmostEqual(times[-1] / 20000, 0.02, delta=0.0005)

    def test_lengths_are_fixed_or_normal(self):
        self.assertEqual({load_plan.Length("128").draw(random.Random(i)) for i in range(9)}, {128})
        drawn = [load_plan.Length("100:20").draw(random.Random(i)) for i in range(2000)]
        self.assertAlmostEqual(sum(drawn) / 2000, 100, delta=2)
        self.assertGreater(min(load_plan.Length("2:50").draw(random.Random(i)) for i in range(100)), 0)
        for bad in ("0", "-1", "x", "5:", "5:-1", "5:inf", ""):
            with self.assertRaises(ValueError, msg=bad):
                load_plan.Length(bad)

    def test_data_sets_have_several_forms_and_their_mistakes_a_line(self):
        def read(text):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write(text)
                file.flush()
                try:
                    return load_plan.read_dataset(file.name)
                except Trouble as error:
                    return str(error).replace(file.name, "FILE")
        chat = [{"role": "user", "content": "c"}]
        lines = ['"a"', '{"prompt": "b", "output_tokens": 5}', json.dumps({"messages": chat, "max_tokens": True}), "",
                 '{"conversations": [{"from": "human", "value": "d"}]}', '{"text": "e", "max_tokens": -1}']
        self.assertEqual(read("\n".join(lines)), [("a", None), ("b", 5), (chat, None), ("d", None), ("e", None)])
        self.assertIn("FILE:2: no JSON", read('"a"\n{'))
        self.assertIn("FILE:1: has none of prompt", read('{"prompt": 7}\n'))
        self.assertEqual(read("\n"), "FILE has no line")


class FakeTransport:
    def __init__(self):
        self.closed = False

    def write(self, _data):
        pass

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


def chunked(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


class Answers(unittest.IsolatedAsyncioTestCase):
    """The reader of answers, whatever pieces they come in."""

    async def feed(self, data, step, end=False):
        stream = load_wire.Stream()
        stream.connection_made(FakeTransport())
        made = load_wire.Record(time.perf_counter())
        over = stream.send(b"", made)
        for at in range(0, len(data), step):
            if not over.done():
                stream.data_received(data[at:at + step])
        if end:
            stream.connection_lost(None)
        self.assertTrue(over.done())
        return made, stream

    async def test_answer_is_the_same_in_any_pieces(self):
        events = [delta("a"), b": comment\n\n", delta(""), delta("b") + delta("c", "length"), usage(3, 9), DONE]
        whole = b"".join(events)
        for data, end, again in ((CHUNKED + chunked(*events), False, True),
                                 (CHUNKED + chunked(whole[:5], whole[5:70], whole[70:]), False, True),
                                 (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Content-Length: %d\r\n\r\n" % len(whole)
                                  + whole, False, True),
                                 (HEAD + b"\r\n" + whole, True, False),
                                 (HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(*events),
                                  False, False)):
            for step in (1, 2, 7, len(data)):
                made, stream = await self.feed(data, step, end)
                self.assertIsNone(made.error, (made.error, made.why))
                self.assertEqual((made.n_events, made.usage, made.finish, len(made.gaps)), (3, (9, 3), "length", 2))
                self.assertEqual(stream.reusable, again)
                self.assertEqual(stream.transport.closed, not again)

    async def test_malformed_streams_are_named(self):
        cases = (
            (CHUNKED + chunked(delta("a")), False, "cut off"),
            (CHUNKED + b"5\r\ndata:", True, "cut off"),
            (b"", True, "connection closed"),
            (CHUNKED + chunked(b"data: {\n\n"), False, "bad answer"),
            (CHUNKED + chunked(b"data: [1]\n\n"), False, "bad answer"),
            (CHUNKED + b"zz\r\n", False, "bad answer"),
            (CHUNKED + chunked(DONE) + b"more", False, "bad answer"),
            (HEAD + b"Content-Length: 3\r\n\r\ndata: [DONE]\n\n", False, "bad answer"),
            (b"SSH-2.0-x\r\n\r\n", False, "bad answer"),
            (b"x" * 70000, False, "bad answer"),
            (CHUNKED + b"1" * 70000, False, "bad answer"),
            (CHUNKED + chunked(delta("a"), event(error={"message": "worker lost"}), DONE), False, "error in the stream"),
            (b'HTTP/1.1 429 Too Many Requests\r\nContent-Length: 28\r\n\r\n{"error":{"message":"full"}}', False,
             "HTTP 429"))
        for data, end, error in cases:
            steps = (1, len(data) or 1) if len(data) < 1000 else (len(data),)
            for step in steps:
                # What comes behind the end is another piece of the same read, or the next read.
                if step == 1 and data.endswith((b"more", b"[DONE]\n\n")) and error == "bad answer":
                    continue
                made, stream = await self.feed(data, step, end)
                self.assertEqual(made.error, error, data[:80])
                self.assertFalse(stream.reusable and error not in ("HTTP 429", "cut off", "error in the stream"))


class Runs(unittest.TestCase):
    def setUp(self):
        self.server = Server().begin(self)
        self.server.answer = lambda handler, body, number: handler.stream(
            delta("a"), delta("b"), delta("c", "length"), usage(4, 6), DONE)

    def argv(self, *arguments):
        return [sys.executable, LOAD, "--warmup", "0", *arguments]

    def env(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
        return dict(env, BATON_URL=f"http://127.0.0.1:{self.server.server_port}/v1", LC_ALL="C", **more)

    def load(self, *arguments, **env):
        done = subprocess.run(self.argv(*arguments), env=self.env(**env), capture_output=True, text=True,
                              timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def figures(self, *arguments, status=0, said=""):
        got = self.load("--json", *arguments)
        self.assertEqual((got[0], got[2]), (status, said), got)
        return json.loads(got[1])

    def test_closed_loop_counts_completed_requests(self):
        out = self.figures("--concurrency", "3", "--requests", "10", "--ttft-ms", "60000", "--e2e-ms", "0.000001")
        self.assertEqual(out["requests"], {"offered": 10, "answered": 10, "refused": 0, "failed": 0, "given_up": 0})
        self.assertEqual((out["tokens"]["out"], out["tokens"]["in"], out["tokens"]["counted_by"]), (40, 60, "server"))
        self.assertEqual((out["itl_ms"]["n"], out["ttft_ms"]["n"]), (20, 10))
        self.assertEqual((out["goodput"]["good"], out["goodput"]["of_offered"]), (0, 0.0))
        self.assertLessEqual(out["client"]["most_streams"], 3)
        for body in self.server.asked:
            self.assertEqual((body["model"], body["stream"], body["max_tokens"], len(body["prompt"].split())),
                             ("m", True, 64, 128))
        self.assertEqual(len({body["prompt"] for body in self.server.asked}), 10)

    def test_equal_seeds_send_equal_requests(self):
        def asked(*more):
            self.server.asked.clear()
            self.figures("--requests", "5", "--concurrency", "1", "--prompt-tokens", "9:3", "--output-tokens", "20:5",
                         *more)
            return list(self.server.asked)
        first = asked()
        self.assertEqual(asked(), first)
        self.assertNotEqual(asked("--seed", "2"), first)
        self.assertEqual([b["prompt"] for b in asked("--rate", "500")], [b["prompt"] for b in first])

    def test_every_kind_of_request_is_sent_as_configured(self):
        self.figures("--requests", "1", "--chat", "--ignore-eos", "--temperature", "0.5", "--extra", '{"top_k": 3}')
        body = self.server.asked.pop()
        self.assertEqual((body["ignore_eos"], body["temperature"], body["top_k"]), (True, 0.5, 3))
        self.assertEqual(body["messages"][0]["role"], "user")
        self.assertEqual(self.server.paths[-1], "/v1/chat/completions")
        self.figures("--requests", "1", "--prompt-ids", "--prompt-tokens", "7", "--no-usage", "--model", "b")
        body = self.server.asked.pop()
        self.assertEqual([type(x) for x in body["prompt"]], [int] * 7)
        self.assertNotIn("stream_options", body)
        self.assertEqual((body["model"], self.server.paths[-1]), ("b", "/v1/completions"))
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"prompt": "one", "output_tokens": 5}\n{"prompt": "two"}\n')
            file.flush()
            self.figures("--requests", "3", "--concurrency", "1", "--dataset", file.name)
        self.assertEqual([(b["prompt"], b["max_tokens"]) for b in self.server.asked],
                         [("one", 5), ("two", 64), ("one", 5)])

    def test_rejected_requests_miss_the_goodput(self):
        answer = self.server.answer
        self.server.answer = lambda handler, body, number: (
            answer(handler, body, number) if number % 2 else
            handler.send_body(429, b'{"error": {"message": "too many"}}'))
        out = self.figures("--requests", "8", "--rate", "1000", "--ttft-ms", "60000")
        self.assertEqual((out["requests"]["answered"], out["requests"]["refused"]), (4, 4))
        self.assertEqual(out["goodput"]["of_offered"], 0.5)
        self.assertEqual(out["errors"], {"HTTP 429": {"n": 4, "example": "too many"}})
        status, text, _ = self.load("--requests", "2", "--concurrency", "1", "--ttft-ms", "60000")
        self.assertEqual(status, 0)
        self.assertIn("HTTP 429: 1 (too many)", text)
        self.assertIn("goodput       1 of 2 offered (50.0 %)", text)

    def test_streams_that_break_are_named_one_by_one(self):
        def answer(handler, body, number):
            if number == 1:
                handler.stream(delta("a"))
            elif number == 2:
                handler.stream(delta("a"), b"data: {\n\n")
            elif number == 3:
                handler.stream(delta("a"), event(error={"message": "worker lost"}), DONE)
            elif number == 4:
                handler.stream(delta(""), delta("", "stop"), DONE)
            else:
                handler.stream(delta("a"), delta("b", "stop"), DONE)
        self.server.answer = answer
        out = self.figures("--requests", "6", "--concurrency", "1")
        self.assertEqual({error: found["n"] for error, found in out["errors"].items()},
                         {"cut off": 1, "bad answer": 1, "error in the stream": 1, "no token": 1})
        self.assertEqual((out["requests"]["answered"], out["tokens"]["out"], out["tokens"]["counted_by"]),
                         (2, 4, "events"))

    def test_run_without_a_token_is_an_error(self):
        self.server.answer = lambda handler, body, number: handler.send_body(503, b'{"error": "no worker"}')
        self.figures("--requests", "3", status=1, said="baton: no request gave a token: HTTP 503 (no worker)\n")
        self.server.answer = lambda handler, body, number: handler.stream(delta("", "stop"), DONE)
        self.figures("--requests", "1", status=1, said="baton: no request gave a token: no token\n")

    def test_unreachable_server_is_named(self):
        port = closed_port()
        self.assertEqual(self.load("--url", f"127.0.0.1:{port}"), (
            1, "", f"baton: nobody answers at 127.0.0.1:{port}; start a server with ./baton serve, or name the one that "
            "runs in BATON_URL\n"))
        out = self.load("--json", "--url", f"127.0.0.1:{port}", "--model", "m", "--requests", "2")
        self.assertEqual(out[0], 1)
        self.assertEqual(json.loads(out[1])["errors"]["connection refused"]["n"], 2)

    def test_stalled_server_is_charged_for_waiting_requests(self):
        stall_s = 0.3
        answer = self.server.answer

        def stalls(handler, body, number):
            if number == 1:
                time.sleep(stall_s)  # the server's own slowness, not the test's wait
            answer(handler, body, number)
        self.server.answer = stalls
        # Due 1 ms apart, one at a time: each waits for the first, from its own time by the schedule.
        out = self.figures("--requests", "5", "--rate", "1000", "--arrivals", "constant", "--concurrency", "1")
        self.assertEqual(out["requests"]["answered"], 5)
        self.assertGreaterEqual(out["ttft_ms"]["p50"], 1e3 * stall_s - 4)
        self.assertGreaterEqual(out["client"]["waited_for_us"], 1)

    def test_timed_out_request_counts_as_failed(self):
        self.server.answer = lambda handler, body, number: handler.stream_for_ever()
        self.figures("--requests", "1", "--timeout", "0.2", status=1,
                     said="baton: no request gave a token: timed out (after 0.2 s)\n")
        self.assertTrue(self.server.left.wait(LIMIT_S))

    def test_non_streaming_server_is_reported(self):
        self.server.answer = lambda handler, body, number: handler.send_body(
            200, b'{"choices": [{"text": "abc", "finish_reason": "stop"}], "usage": {"completion_tokens": 3}}')
        status, text, _ = self.load("--requests", "2")
        self.assertEqual(status, 0)
        self.assertIn("2 answers came whole: the server does not stream", text)
        self.assertIn("6 out", text)

    def test_ctrl_c_prints_partial_results(self):
        answer = self.server.answer

        def first_few(handler, body, number):
            if number <= 3:
                answer(handler, body, number)
            else:
                handler.stream_for_ever()
        self.server.answer = first_few
        process = subprocess.Popen(self.argv("--concurrency", "1", "--duration", "1000", "--json"), env=self.env(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        self.assertTrue(self.server.started.wait(LIMIT_S))
        process.send_signal(signal.SIGINT)
        text, said = process.communicate(timeout=LIMIT_S)
        self.assertEqual((process.returncode, said), (130, b""))
        out = json.loads(text)
        self.assertEqual((out["requests"]["offered"], out["requests"]["given_up"], out["interrupted"]), (3, 1, True))
        self.assertTrue(self.server.left.wait(LIMIT_S))

    def test_terminal_has_a_bar_and_a_pipe_has_none(self):
        self.assertEqual(self.load("--requests", "2")[2], "")
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(sys.executable, self.argv("--requests", "2"), self.env())
        shown = b""
        with contextlib.suppress(OSError):
            while piece := os.read(terminal, 65536):
                shown += piece
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertIn(b"] 0 done, ", shown)
        self.assertIn(b"TTFT ms", shown)

    def test_warm_up_is_excluded_from_results(self):
        out = self.figures("--warmup", "4", "--requests", "2", "--concurrency", "2")
        self.assertEqual((out["requests"]["offered"], len(self.server.asked)), (2, 6))

    def test_chart_is_written_to_the_given_path(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.svg")
            self.figures("--requests", "2", "--svg", path, "--e2e-ms", "5")
            self.assertEqual(xml.dom.minidom.parse(path).documentElement.tagName, "svg")
        status, _, said = self.load("--requests", "1", "--svg", "/nowhere/x.svg")
        self.assertEqual((status, said), (1, "baton: cannot write /nowhere/x.svg: No such file or directory\n"))

    def test_mistakes_in_options_are_named(self):
        for arguments, said in ((("--rat", "0"), "invalid number above 0 value: '0'"),
                                (("--concurency", "3"), "unknown option --concurency; did you mean --concurrency?"),
                                (("--prompt-tokens", "x"), "invalid length, N or MEAN:DEVIATION, value: 'x'"),
                                (("--shuffle",), "--shuffle needs --dataset"), (("--extra", "[]"), "JSON object"),
                                (("--prompt-ids", "--chat"), "--prompt-ids is for prompts that are drawn")):
            status, text, complaint = self.load(*arguments)
            self.assertEqual((status, text), (2, ""), arguments)
            self.assertIn(said, complaint)
        self.assertEqual(self.server.asked, [])

    def test_over_a_thousand_concurrent_streams_run(self):
        n = 1200
        all_there = threading.Barrier(n)

        def answer(handler, body, number):
            handler.begin()
            handler.wfile.write(delta("a"))
            all_there.wait(LIMIT_S)  # nobody is answered before all of them are here
            handler.wfile.write(delta("b", "stop") + DONE)
        self.server.answer = answer
        out = self.figures("--concurrency", str(n), "--requests", str(n), "--prompt-tokens", "1")
        self.assertEqual((out["requests"]["answered"], out["client"]["most_streams"]), (n, n))


class ReportText(unittest.TestCase):
    def test_slow_load_generator_is_reported(self):
        options = types.SimpleNamespace(chat=False, arrivals="poisson", rate=5.0, seed=1, concurrency=None, ttft_ms=None,
                                        itl_ms=None, tpot_ms=None, e2e_ms=None)
        run = types.SimpleNamespace(
            records=[record(0, 0.1, [0.01], end=0.2)], options=options, model="m", interrupted=False, n_given_up=2,
            where=types.SimpleNamespace(netloc="a:1"), offered_s=lambda: 2.0,
            client_figures=lambda: {"most_streams": 1, "cpu_percent": 99.0, "lag_p99_ms": 40.0, "late_p99_ms": 3.0,
                                    "was_limit": True, "waited_for_us": 4})
        text = "\n".join(load_report.lines(load_report.figures(run)))
        self.assertIn("warning: this client was itself slow; all latencies may be too long by some 40 ms", text)
        self.assertIn("4 requests waited because --concurrency was reached", text)
        self.assertIn("stopped by you: 2 were under way and count nowhere", text)
        self.assertIn("offered       1 requests (0.50/s) in 0.2 s", text)


if __name__ == "__main__":
    unittest.main()
