# SPDX-License-Identifier: Apache-2.0
"""People at a terminal and pages in a browser: ./baton ask, ./baton load-test, the path / and CORS, with real programs."""
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

from harness import Cluster, endless_model, small_model

CLI = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools", "cli")
PAGE, LOCAL = "https://page.example", "http://localhost:3000"
CALL = {"prompt": "a", "max_tokens": 2}


def names(answer):
    return {name.lower() for name in answer}


def command(c, program, *arguments, piped=""):
    """@return (exit status, standard output, standard error)"""
    env = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
    env.update(BATON_URL="http://%s:%d/v1" % c.http)
    run = subprocess.run([sys.executable, os.path.join(CLI, program), *arguments], env=env, input=piped, check=False,
                         capture_output=True, text=True, errors="replace", timeout=120)
    return run.returncode, run.stdout, run.stderr


def check_root(c):
    status, answer, data = c.request("GET", "/")
    found = json.loads(data)
    assert status == 200 and answer["Content-Type"] == "application/json", (status, answer, data)
    assert found["ready"] and [m["ready"] for m in found["models"]] == [True], found
    status, answer, data = c.request("GET", "/", headers={"Accept": "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"})
    assert status == 200 and answer["Content-Type"] == "text/html; charset=utf-8", (status, answer)
    assert b'src="page/page.js"' in data and "unsafe" not in answer["Content-Security-Policy"], (answer, data)
    check_files(c, data)
    assert c.request("HEAD", "/")[2] == b""
    assert c.request("GET", "/", headers={"Host": "evil.example"})[0] == 403


def check_files(c, page):
    """What the page names is there, of its type, and not sent twice."""
    for name in re.findall(rb'"(page/[^"]+)"', page):
        status, answer, data = c.request("GET", "/" + name.decode())
        assert status == 200 and answer["X-Content-Type-Options"] == "nosniff" and data, (name, status, answer)
        packed = c.request("GET", "/" + name.decode(), headers={"Accept-Encoding": "gzip"})
        assert gzip.decompress(packed[2]) == data and packed[1]["ETag"] != answer["ETag"], packed[1]
        again = c.request("GET", "/" + name.decode(), headers={"If-None-Match": answer["ETag"]})
        assert (again[0], again[2]) == (304, b"") and "Content-Type" not in again[1], again


def check_pages(c):
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for page in (PAGE, LOCAL):
        status, answer, data = c.request("OPTIONS", "/v1/chat/completions", headers=dict(ask, Origin=page))
        assert (status, data, answer["Access-Control-Allow-Origin"]) == (204, b"", page), (status, answer)
        assert answer["Access-Control-Allow-Headers"] == ask["Access-Control-Request-Headers"], answer
        for body, status in ((CALL, 200), (dict(CALL, stream=True), 200), ({"prompt": 7}, 400)):
            got, answer, data = c.request("POST", "/v1/completions", body, {"Origin": page})
            assert (got, answer.get("Access-Control-Allow-Origin")) == (status, page), (got, answer, data)
            assert "x-request-id" in names(answer) and "Vary" in answer, answer
        got, answer, _ = c.request("POST", "/v1/completions", "x" * 70000, {"Origin": page})
        assert (got, answer.get("Access-Control-Allow-Origin")) == (413, page), (got, answer)


def check_strangers(c):
    """Pages that are nearly the ones that may."""
    for page in ("https://evil.example", "null", "http://page.example", PAGE + ":444", PAGE + ".evil.example",
                 "https://evil-page.example", "https://sub.page.example", "http://localhost.evil.example:3000",
                 f"{PAGE}, https://evil.example"):
        for method, path, body, more in (
                ("OPTIONS", "/v1/completions", None, {"Access-Control-Request-Method": "POST"}),
                ("POST", "/v1/completions", CALL, {}), ("GET", "/", None, {}), ("GET", "/v1/models", None, {})):
            status, answer, data = c.request(method, path, body, dict(more, Origin=page))
            assert status == 403, (page, method, status, data)
            assert not any(name.startswith("access-control") for name in names(answer)), answer
    # One that may, beside one that may not; by a name that is not ours; at a port that is not for pages.
    assert c.request("POST", "/v1/completions", CALL, {"Origin": PAGE, "Host": "evil.example"})[0] == 403
    assert c.request("GET", "/metrics", headers={"Origin": PAGE}, at=c.metrics_at)[0] == 403
    assert c.request("OPTIONS", "/metrics", headers={"Origin": PAGE, "Access-Control-Request-Method": "GET"},
                     at=c.metrics_at)[0] == 405
    assert c.request("OPTIONS", "/v1/models")[0] == 405


def check_ask(c):
    greedy = ("--temperature", "0", "--max-tokens", "8", "--raw")
    status, text, said = command(c, "ask.py", "a", "b", *greedy)
    assert (status, said) == (0, "[cut at 8 tokens]\n"), (status, text, said)
    assert command(c, "ask.py", *greedy, piped="a b\n") == (status, text, said)
    assert command(c, "ask.py", "--model", "tiney", "x")[0] == 1
    status, text, said = command(c, "ask.py", "--stats", *greedy, "a", "b")
    assert status == 0 and "first token after" in said, (status, text, said)


def check_load(c):
    status, text, said = command(c, "load.py", "--json", "--rate", "200", "--requests", "30", "--prompt-tokens", "5:2",
                                 "--output-tokens", "6", "--ignore-eos", "--ttft-ms", "60000")
    out = json.loads(text)
    assert (status, said) == (0, "") and out["requests"]["answered"] == 30, (status, text, said)
    assert (out["tokens"]["out"], out["tokens"]["counted_by"]) == (180, "server"), out
    assert out["goodput"]["of_offered"] == 1.0 and out["ttft_ms"]["n"] == 30, out
    status, text, said = command(c, "load.py", "--requests", "2", "--chat", "--max-tokens", "3")
    assert status == 2 and "unknown option --max-tokens" in said, (status, said)
    status, text, said = command(c, "load.py", "--json", "--requests", "3", "--chat", "--prompt-tokens", "400")
    assert status == 1 and json.loads(text)["errors"]["HTTP 400"]["n"] == 3, (status, text, said)
    assert "no request gave a token: HTTP 400" in said, said


def test_browsers_and_curl_are_served():
    with tempfile.TemporaryDirectory() as d:
        options = ["--cors-origins", f"{PAGE}, {LOCAL}", "--max-body-bytes", "65536", "--http-memory", "4m"]
        with Cluster(small_model(d), router_args=options) as c:
            check_root(c)
            check_pages(c)
            check_strangers(c)
            check_ask(c)
            check_load(c)
            c.wait_idle()


def test_rejected_requests_count_against_goodput():
    """Two seats in the router, answers that do not end: what more is offered gets 429."""
    with tempfile.TemporaryDirectory() as d, Cluster(endless_model(d), router_args=["--max-concurrent-requests", "2"]) as c:
        status, text, said = command(c, "load.py", "--json", "--warmup", "0", "--rate", "1000", "--requests", "6",
                                     "--output-tokens", "20000", "--ignore-eos", "--timeout", "3", "--ttft-ms", "60000")
        out = json.loads(text)
        assert status == 1 and "no request gave a token" in said, (status, text, said)
        assert out["errors"]["HTTP 429"]["n"] == 4 and out["errors"]["timed out"]["n"] == 2, out["errors"]
        assert (out["requests"]["offered"], out["goodput"]["good"]) == (6, 0), out
        c.wait_idle()


def test_invalid_cors_origins_fail_the_start():
    with tempfile.TemporaryDirectory() as d:
        c = Cluster(small_model(d), router_args=["--cors-origins", f"{PAGE}/app"])
        try:
            router = c.start_router()
            assert router.popen.wait(60) == 2 and f"{PAGE}/app" in router.log(), router.log()
        finally:
            c.__exit__(None, None, None)
