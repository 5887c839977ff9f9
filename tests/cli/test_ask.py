#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./baton ask` against a server of the test's own on the loopback address."""
import contextlib
import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from serving import CLI, DONE, LIMIT_S, Server, closed_port, delta, event, usage

ASK = os.path.join(CLI, "ask.py")


class AskBase(unittest.TestCase):
    def setUp(self):
        self.server = Server().begin(self)

    def stream(self, *pieces):
        self.server.answer = lambda handler, body, number: handler.stream(*pieces)

    def env(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
        env.update({"LC_ALL": "C", "BATON_HTTP": f"127.0.0.1:{self.server.server_port}"}, **more)
        return env

    def ask(self, *arguments, piped=b"", **env):
        done = subprocess.run([sys.executable, ASK, *arguments], env=self.env(**env), capture_output=True,
                              timeout=LIMIT_S, check=False, input=piped)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def assert_refused(self, said, *arguments, status=1, **env):
        self.assertEqual(self.ask(*arguments, **env), (status, "", said))


class OneQuestion(AskBase):
    def test_answer_is_printed_as_it_streams(self):
        self.stream(event(choices=[{"delta": {"role": "assistant"}}]), delta("Par"), delta("is \u00e9\U0001f600"),
                    event(choices=[], usage={}), DONE)
        self.assertEqual(self.ask("Where?", "--max-tokens", "5"), (0, "Paris \u00e9\U0001f600\n", ""))
        self.assertEqual(self.server.asked, [{
            "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 5,
            "messages": [{"role": "user", "content": "Where?"}]}])

    def test_trailing_newline_is_not_doubled(self):
        self.stream(delta("a\n"), DONE)
        self.assertEqual(self.ask("x"), (0, "a\n", ""))

    def test_prompt_words_need_no_quotes_and_mix_with_options(self):
        self.assertEqual(self.ask("why", "is", "--temperature", "0", "the", "sky", "blue")[0], 0)
        self.assertEqual(self.server.asked[0]["messages"][0]["content"], "why is the sky blue")
        self.assertEqual(self.ask("--", "--why", "-x")[0], 0)
        self.assertEqual(self.server.asked[1]["messages"][0]["content"], "--why -x")

    def test_piped_input_follows_the_prompt_words(self):
        for words, piped, text in ((("Summarise",), "\u00e9 b\n\nc\n", "Summarise\n\n\u00e9 b\n\nc"),
                                   ((), "hi\n", "hi"), (("a",), "\n", "a")):
            self.assertEqual(self.ask(*words, piped=piped.encode())[0], 0)
            self.assertEqual(self.server.asked.pop()["messages"], [{"role": "user", "content": text}])
        self.assert_refused('baton: nothing was asked: ./baton ask "TEXT"\n')
        self.assertEqual(self.server.asked, [])

    def test_invalid_utf8_input_is_replaced(self):
        self.assertEqual(self.ask(b"\xff", piped=b"\xfe")[0], 0)
        self.assertEqual(self.server.asked[0]["messages"][0]["content"], "\ufffd\n\n\ufffd")

    def test_only_given_options_are_sent(self):
        self.assertEqual(self.ask("x", "--temperature", "0.25", "--top-p=0.5", "--seed", "-7", "--model", "b",
                                  "--system", "Be brief.", "--max-tokens", "9")[0], 0)
        self.assertEqual(self.server.asked, [{
            "model": "b", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 9,
            "temperature": 0.25, "top_p": 0.5, "seed": -7,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]}])
        self.assertEqual(self.server.paths, ["/v1/chat/completions"])

    def test_raw_text_bypasses_the_template(self):
        self.stream(event(choices=[{"text": "ab"}]), DONE)
        self.assertEqual(self.ask("--raw", "x"), (0, "ab\n", ""))
        self.assertEqual(self.server.asked[0]["prompt"], "x")
        self.assertNotIn("messages", self.server.asked[0])
        self.assertEqual(self.server.paths[-1], "/v1/completions")
        status, _, said = self.ask("--raw", "--system", "s", "x")
        self.assertEqual(status, 2)
        self.assertIn("--system is part of a chat, and --raw is none", said)

    def test_truncated_answer_names_the_limit(self):
        self.stream(delta("a"), delta("b", "length"), usage(17), DONE)
        self.assertEqual(self.ask("x"), (0, "ab\n", "[cut at 17 tokens]\n"))
        self.stream(delta("a"), delta("b", "length"), DONE)
        self.assertEqual(self.ask("x"), (0, "ab\n", "[cut at 2 tokens]\n"))

    def test_stats_are_printed_on_request(self):
        self.stream(delta("a"), delta("b"), usage(5), DONE)
        status, text, said = self.ask("x", "--stats")
        self.assertEqual((status, text), (0, "ab\n"))
        self.assertRegex(said, r"\A\[5 tokens, ([\d.]+ tokens/s|no rate of one piece), first token after \d+ ms\]\n\Z")
        self.stream(delta(""), DONE)
        self.assertEqual(self.ask("x", "--stats"), (0, "", "[no tokens]\n"))

    def test_address_forms_are_normalized(self):
        at = f"127.0.0.1:{self.server.server_port}"
        for address, base in ((at, "/v1"), (f"http://{at}", "/v1"), (f"http://{at}/", "/v1"),
                              (f"http://{at}/v1", "/v1"), (f"HTTP://{at}/v1/", "/v1"), (f"{at}/v1", "/v1"),
                              (f"0.0.0.0:{self.server.server_port}", "/v1"), (f"http://{at}/any/way", "/any/way/v1")):
            self.assertEqual(self.ask("x", BATON_URL=address)[0], 0, address)
            self.assertEqual(self.server.paths[-1], base + "/chat/completions", address)
        for address in ("nowhere", "a:b", ":80", "a:99999", "http://", "http://a:1/?q", "http://u:p@a:1"):
            self.assert_refused(f"baton: BATON_URL is '{address}', not ADDR:PORT or http://ADDR:PORT/v1\n", "x",
                                BATON_URL=address)
        self.assert_refused("baton: BATON_URL is 'ftp://a:1', and neither http nor https\n", "x",
                            BATON_URL="ftp://a:1")

    def test_url_option_overrides_the_running_server(self):
        at = f"127.0.0.1:{self.server.server_port}"
        closed = f"127.0.0.1:{closed_port()}"
        for words, env in (((), {"BATON_HTTP": at}), ((), {"BATON_URL": at, "BATON_HTTP": closed}),
                           (("--url", f"http://{at}/v1"), {"BATON_URL": closed, "BATON_HTTP": closed})):
            self.assertEqual(self.ask("x", *words, **env)[0], 0, (words, env))
        # It is what serve listens at, to every command.
        for address in (f"http://{at}", f"{at}/v1"):
            self.assert_refused(f"baton: BATON_HTTP is '{address}', and not ADDR:PORT, where a server serves; BATON_URL (or --url) "
                                "says which one to ask\n", "x", BATON_HTTP=address)

    def test_api_key_is_sent_if_configured(self):
        self.ask("x", BATON_API_KEY="secret")
        self.ask("x")
        self.assertEqual(self.server.keys, ["Bearer secret", None])

    def test_api_key_precedence_is_option_baton_openai(self):
        self.ask("x", OPENAI_API_KEY="theirs")
        self.ask("x", OPENAI_API_KEY="theirs", BATON_API_KEY="ours")
        self.ask("--api-key", "said", "x", BATON_API_KEY="ours")
        self.assertEqual(self.server.keys, ["Bearer theirs", "Bearer ours", "Bearer said"])

    def test_api_key_invalid_in_a_header_is_not_sent(self):
        self.assert_refused("baton: the API key has a character that no header can have\n", "x",
                            BATON_API_KEY="a\nHost: evil")
        self.assertEqual(self.server.keys, [])

    def test_server_without_models_is_named(self):
        self.server.models = []
        self.assert_refused("baton: the server has no model loaded\n", "Where?")

    def test_server_error_is_shown(self):
        self.server.answer = lambda handler, body, number: handler.send_body(
            400, b'{"error": {"message": "too long: 9 > 8"}}')
        self.assert_refused("baton: HTTP 400: too long: 9 > 8\n", "Where?")

    def test_unknown_model_error_lists_the_models(self):
        self.server.models = ["SmolLM2", "other"]
        self.server.answer = lambda handler, body, number: handler.send_body(404, b'{"error": {"message": "no model"}}')
        self.assert_refused("baton: HTTP 404: no model; did you mean SmolLM2?\n", "x", "--model", "SmolLm")
        self.assert_refused("baton: HTTP 404: no model; it has SmolLM2, other\n", "x", "--model", "zzz")

    def test_answer_without_its_end_is_an_error(self):
        self.stream(delta("Par"))
        self.assertEqual(self.ask("x"), (1, "Par", "baton: the server ended the answer in the middle\n"))

    def test_error_inside_the_stream_is_shown(self):
        self.stream(delta("P"), event(error={"message": "w"}))
        self.assertEqual(self.ask("x"), (1, "P", "baton: w\n"))

    def test_broken_stream_is_an_error(self):
        for broken in (b"data: {\n\n", b"data: 7\n\n", event(choices=[7]), event(choices={"a": 1}),
                       event(choices=[{"delta": {"content": 7}}])):
            self.stream(delta("P"), broken, DONE)
            status, text, said = self.ask("x")
            self.assertEqual((status, text), (1, "P"), broken)
            self.assertIn("does not answer as a server of OpenAI's API does", said)

    def test_non_streaming_server_is_supported(self):
        self.server.answer = lambda handler, body, number: handler.send_body(
            200, b'{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}')
        self.assertEqual(self.ask("x"), (0, "whole\n", ""))

    def test_non_http_server_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            def answer():
                with other.accept()[0] as client:
                    client.sendall(b"220 mail\r\n")
            thread = threading.Thread(target=answer)
            thread.start()
            port = other.getsockname()[1]
            status, _, said = self.ask("x", BATON_HTTP=f"127.0.0.1:{port}")
            thread.join()
        self.assertEqual(status, 1)
        self.assertIn(f"the server at 127.0.0.1:{port} does not answer as a server of OpenAI's API does", said)

    def test_unreachable_server_is_named(self):
        port = closed_port()
        self.assert_refused(f"baton: nobody answers at 127.0.0.1:{port}; start a server with ./baton serve, or name "
                            "the one that runs in BATON_URL\n", "x", BATON_URL=f"http://127.0.0.1:{port}/v1")

    def test_misspelt_options_name_the_closest(self):
        for arguments, said in ((("x", "--temprature", "1"), "unknown option --temprature; did you mean --temperature?"),
                                (("x", "--zzzz=1"), "unknown option --zzzz (a text that begins so stands behind --)"),
                                (("x", "--max-tokens", "0"), "invalid count from 1 value: '0'"),
                                (("x", "--temperature", "nan"), "invalid number from 0 value: 'nan'")):
            status, text, complaint = self.ask(*arguments)
            self.assertEqual((status, text), (2, ""))
            self.assertIn(said, complaint)
        self.assertEqual(self.server.asked, [])

    def test_closed_output_pipe_is_no_error(self):
        self.server.answer = lambda handler, body, number: handler.stream_for_ever()
        process = subprocess.Popen([sys.executable, ASK, "x"], env=self.env(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.read(2), b"x ")
        process.stdout.close()
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()
        self.assertEqual(process.wait(LIMIT_S), 1)
        self.assertTrue(self.server.left.wait(LIMIT_S))

    def test_ctrl_c_ends_the_request_at_the_server(self):
        self.server.answer = lambda handler, body, number: handler.stream_for_ever()
        process = subprocess.Popen([sys.executable, ASK, "x"], env=self.env(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.read(2), b"x ")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LIMIT_S)[1]
        self.assertEqual((process.returncode, said), (130, b"\n"))
        self.assertTrue(self.server.left.wait(LIMIT_S))


class OnATerminal(AskBase):
    def begin(self, *arguments, **env):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, ASK, *arguments], self.env(TERM="dumb", **env))
        self.shown = ""
        self.addCleanup(os.close, self.terminal)

    def read(self, until):
        """Wait for that text. @return what came up to it"""
        deadline = time.monotonic() + LIMIT_S
        while until not in self.shown:
            if not select.select([self.terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                self.fail(f"no {until!r} in {self.shown!r}")
            try:
                self.shown += os.read(self.terminal, 65536).decode()
            except OSError:
                self.fail(f"ended without {until!r}: {self.shown!r}")
        before, _, self.shown = self.shown.partition(until)
        return before

    def type(self, text):
        os.write(self.terminal, text.encode())

    def end(self):
        deadline = time.monotonic() + LIMIT_S
        with contextlib.suppress(OSError):
            while True:
                if not select.select([self.terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    os.kill(self.pid, signal.SIGKILL)
                    self.fail(f"does not end: {self.shown!r}")
                piece = os.read(self.terminal, 65536)
                if not piece:
                    break
                self.shown += piece.decode()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def test_conversation_remembers_both_sides(self):
        self.server.answer = lambda handler, body, number: handler.stream(delta(f"answer {number}"), DONE)
        self.begin("--system", "Be brief.")
        self.read("Talking to m at 127.0.0.1:")
        self.read(">>> ")
        self.type("one\n")
        self.read("answer 1")
        self.read(">>> ")
        self.type("two \\\n")
        self.read("... ")
        self.type("lines\n")
        self.read("answer 2")
        self.read(">>> ")
        self.type('"""\n')
        self.read("... ")
        self.type("a\n")
        self.read("... ")
        self.type('b"""\n')
        self.read("answer 3")
        self.read(">>> ")
        self.type("/clear\n")
        self.read(">>> ")
        self.type("new\n")
        self.read("answer 4")
        self.read(">>> ")
        self.type("\x04")
        self.assertEqual(self.end(), 0)
        said = [[m["content"] for m in body["messages"]] for body in self.server.asked]
        self.assertEqual(said, [
            ["Be brief.", "one"], ["Be brief.", "one", "answer 1", "two \nlines"],
            ["Be brief.", "one", "answer 1", "two \nlines", "answer 2", "a\nb"], ["Be brief.", "new"]])

    def test_ctrl_c_stops_only_the_answer_in_a_chat(self):
        self.server.answer = lambda handler, body, number: (
            handler.stream_for_ever() if number == 1 else handler.stream(delta("short"), DONE))
        self.begin()
        self.read(">>> ")
        self.type("long\n")
        self.read("x x ")
        self.type("\x03")
        self.read("[stopped]")
        self.read(">>> ")
        self.assertTrue(self.server.left.wait(LIMIT_S))
        self.type("half a line\x03")
        self.read("(Ctrl-D leaves)")
        self.read(">>> ")
        self.type("next\n")
        self.read("short")
        self.read(">>> ")
        self.type("\x04")
        self.assertEqual(self.end(), 0)
        roles = [m["role"] for m in self.server.asked[1]["messages"]]
        self.assertEqual(roles, ["user", "assistant", "user"])
        self.assertIn("x x", self.server.asked[1]["messages"][1]["content"])

    def test_chat_continues_after_an_error(self):
        self.server.answer = lambda handler, body, number: (
            handler.send_body(400, b'{"error": {"message": "too long"}}') if number == 1
            else handler.stream(delta("fine"), DONE))
        self.begin()
        self.read(">>> ")
        self.type("one\n")
        self.read("baton: HTTP 400: too long")
        self.read(">>> ")
        self.type("/clearr\n")
        self.read("no command /clearr; did you mean /clear?")
        self.read(">>> ")
        self.type("two\n")
        self.read("fine")
        self.read(">>> ")
        self.type("\x04")
        self.assertEqual(self.end(), 0)
        self.assertEqual([m["content"] for m in self.server.asked[1]["messages"]], ["two"])

    def test_chat_reports_a_missing_server_before_input(self):
        port = closed_port()
        self.begin(BATON_HTTP=f"127.0.0.1:{port}")
        self.read(f"baton: nobody answers at 127.0.0.1:{port}")
        self.assertEqual(self.end(), 1)

    def test_model_output_cannot_send_terminal_escapes(self):
        self.stream(delta("a\x1b]0;title\x07b\x9bc\td\n"), DONE)
        self.begin("x")
        self.read("a\ufffd]0;title\ufffdb\ufffdc\td")
        self.assertEqual(self.end(), 0)
        self.assertNotIn("\x1b", self.shown)
        self.assertEqual(self.ask("x")[1], "a\x1b]0;title\x07b\x9bc\td\n")  # a pipe gets every byte

    def test_chat_history_is_kept_on_request(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "history")
            self.begin("--history", path)
            self.read(">>> ")
            self.type("remember me\n")
            self.read("hello")
            self.read(">>> ")
            self.type("\x04")
            self.assertEqual(self.end(), 0)
            with open(path, encoding="utf-8") as file:
                self.assertIn("remember me\n", file.read())
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main()
