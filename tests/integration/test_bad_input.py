# SPDX-License-Identifier: Apache-2.0
"""Bad input gets a clear error and harms nobody."""
import json
import os
import socket
import tempfile

from harness import ROOT, Cluster, small_model

G = "/v2/models/ensemble/generate"
C = "/v1/completions"
CASES = [
    # path, body, status, words of the error
    (G, "this is not json", 400, []),
    (G, "[1,2]", 400, []),
    (G, {"max_tokens": 4}, 400, ["text_input"]),
    (G, {"text_input": "", "max_tokens": 4}, 400, []),
    (G, {"text_input": 5, "max_tokens": 4}, 400, ["text_input"]),
    (G, {"text_input": "a", "max_tokens": "four"}, 400, ["max_tokens"]),
    (G, {"text_input": "a", "max_tokens": 0}, 400, ["max_tokens"]),
    (G, {"text_input": "a", "max_tokens": -3}, 400, ["max_tokens"]),
    (G, {"text_input": "a", "max_tokens": 4, "temperature": -1}, 400, ["temperature"]),
    (G, {"text_input": "a", "max_tokens": 4, "top_p": 7}, 400, ["top_p"]),
    (G, {"text_input": "a", "max_tokens": 4, "beam_width": 65}, 400, ["beam_width"]),
    (G, {"text_input": "a", "max_tokens": 100000}, 400, ["100000", "256"]),
    (G, '{"text_input": "a", "max_tokens": 4, "temperature": NaN}', 400, []),
    (G, '{"text_input": "a", "max_tokens": 4, "temperature": 1e999}', 400, []),
    (G, b'{"text_input": "\xff\xfe", "max_tokens": 4}', 400, []),
    ("/v2/models/nothing/generate", {"text_input": "a", "max_tokens": 4}, 404, ["nothing"]),
    (C, {"max_tokens": 4}, 400, ["prompt"]),
    (C, b'{"prompt": "\xc3\x28", "max_tokens": 4}', 400, []),
    (C, {"prompt": "a", "max_tokens": 4, "model": "nobody"}, 404, ["nobody"]),
    (C, {"prompt": "word " * 400, "max_tokens": 4}, 400, ["256"]),
    (C, {"prompt": [999999999], "max_tokens": 4}, 400, []),
    (C, {"prompt": "a", "max_tokens": 4, "n": 0}, 400, ["n"]),
    (C, {"prompt": "a", "max_tokens": 4, "logprobs": 21}, 400, ["logprobs"]),
    ("/v1/chat/completions", {"messages": [], "max_tokens": 4}, 400, ["messages"]),
    ("/v1/chat/completions", {"messages": "hi", "max_tokens": 4}, 400, ["messages"]),
    ("/nowhere", {}, 404, []),
]


def raw(address, data):
    """@return what comes until the server ends it; that it does not is an error"""
    with socket.create_connection(address, timeout=60) as s:
        out = b""
        try:
            s.sendall(data)
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                out += piece
        except ConnectionError:
            pass
        return out


def drip(address, head, piece):
    """Send small pieces with pauses (they are the input, not a wait for something) until the server ends it.

    @return the answer, empty when it was patient with a thousand
    """
    answer = b""
    with socket.create_connection(address) as s:
        try:
            s.sendall(head)
            for _ in range(1000):
                s.settimeout(60)
                s.sendall(piece)
                s.settimeout(0.02)
                try:
                    answer += s.recv(65536)
                    if not answer:
                        break
                except socket.timeout:
                    continue
        except ConnectionError:
            pass
    return answer


def test_bad_input():
    with tempfile.TemporaryDirectory() as d:
        model = small_model(d)
        limits = ["--max-body-bytes", "64k", "--header-timeout-ms", "1000", "--body-timeout-ms", "1000"]
        with Cluster(model, router_args=limits) as c:
            good = c.complete("a good one", 8, temperature=0)["text"]
            for path, body, want, words in CASES:
                status, _, data = c.request("POST", path, body)
                text = data.decode(errors="replace")
                assert status == want, (path, body, status, text)
                error = json.loads(text)["error"]
                message = error if isinstance(error, str) else error["message"]
                assert message and all(w in message for w in words), (path, body, message)
                # Others are served as before.
                assert c.complete("a good one", 8, temperature=0)["text"] == good

            status, _, data = c.request("POST", C, json.dumps({"prompt": "x" * 100000, "max_tokens": 4}))
            assert status == 413 and b"error" in data, (status, data)

            # A header that dribbles, one that never ends, a body that never comes.
            for data in (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
                         b"GET / HTTP/1.1\r\n" + b"X-Long: " + b"a" * 1000000,
                         b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
                         b"\x00\x01\x02 garbage\r\n\r\n"):
                raw(c.http, data)
            post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
            for head, piece in ((post + b"X-Drip: ", b"d"), (post + b"Content-Length: 4000\r\n\r\n", b" "),
                                (chunked, b"1\r\n \r\n")):
                answer = drip(c.http, head, piece)
                assert answer.startswith(b"HTTP/1.1 408 "), (head, answer)
            answer = drip(c.http, chunked, b"4000\r\n" + b" " * 0x4000 + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 413 "), answer
            assert c.complete("a good one", 8, temperature=0)["text"] == good
            c.wait_idle()


def ignored_fields():
    """@return (route, body, fields) of each request whose fields docs/openapi.json says are taken without effect"""
    with open(os.path.join(ROOT, "docs", "openapi.json"), encoding="utf-8") as f:
        schemas = json.load(f)["components"]["schemas"]
    for name, path, body in (("CompletionRequest", C, {"prompt": "a", "max_tokens": 1}),
                             ("ChatRequest", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
                             ("ResponseRequest", "/v1/responses", {"input": "a", "max_output_tokens": 1}),
                             ("AnthropicRequest", "/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
                             ("InferenceRequest", "/inference/v1/generate", {"token_ids": [5], "sampling_params": {"max_tokens": 1}}),
                             ("OllamaChatRequest", "/api/chat", {"messages": [{"role": "user", "content": "a"}], "options": {"num_predict": 1}}),
                             ("OllamaGenerateRequest", "/api/generate", {"prompt": "a", "options": {"num_predict": 1}}),
                             ("GenerateRequest", G, {"text_input": "a", "max_tokens": 1})):
        forms = schemas[name].get("oneOf", [schemas[name]])
        yield path, body, {k for form in forms for k, v in form.get("properties", {}).items()
                           if v.get("$ref", "").endswith("/Ignored")} | {"priority"}


def test_documented_ignored_field_takes_any_value():
    with tempfile.TemporaryDirectory() as d, Cluster(small_model(d)) as c:
        for path, body, fields in ignored_fields():
            assert len(fields) > 2 or fields in ({"pad_id", "priority"}, {"keep_alive", "priority"}), (path, fields)
            for field in sorted(fields):
                for value in (-1, 0.5, "x", True, ["a", {}], {"a": [1]}):
                    status, _, data = c.request("POST", path, json.dumps(dict(body, **{field: value})))
                    assert status == 200, (path, field, value, status, data)


def test_port_in_use_is_reported():
    for option in ("--http", "--metrics", "--grpc"):
        with tempfile.TemporaryDirectory() as d, socket.create_server(("127.0.0.1", 0)) as taken:
            model = small_model(d)
            port = taken.getsockname()[1]
            c = Cluster(model, router_args=[option, f"127.0.0.1:{port}"])
            try:
                router = c.start_router()
                router.popen.wait(60)
                assert router.popen.returncode == 78
                assert str(port) in router.log() and "in use" in router.log().lower(), router.log()
            finally:
                c.__exit__(None, None, None)
