# SPDX-License-Identifier: Apache-2.0
"""What an operator sees of a real cluster: tokens that rise while they are
generated, each worker's KV blocks, the access log, logs as JSON."""
import asyncio
import json
import os
import re
import signal
import subprocess
import tempfile
import urllib.request

from harness import BUILD, ENDLESS, Cluster, Stream, children_of, endless_model, small_model, wait_until

COMPLETIONS = "/v1/completions"
FIELDS = ["time", "id", "client", "method", "route", "path", "status", "model", "prompt", "output", "ttft_ms",
          "total_ms", "prefill", "decode", "finish", "tenant", "answer", "trace"]


def test_token_and_block_metrics_change_during_a_request():
    with tempfile.TemporaryDirectory() as d:
        with Cluster(endless_model(d), kv_memory="128m") as c:
            async def go():
                s = Stream(c.http, COMPLETIONS, {"prompt": "tell me everything", "max_tokens": ENDLESS, "stream": True,
                                                 "ignore_eos": True})
                task = asyncio.ensure_future(s.run())
                tokens, used = set(), 0
                while len(tokens) < 5 or used == 0:
                    assert not task.done(), (sorted(tokens), used, s.events[-1:])
                    m = await asyncio.to_thread(c.metrics)
                    tokens.add(m['baton_generation_tokens_total{model="tiny"}'])
                    used = max([used] + [v for k, v in m.items() if k.startswith("baton_kv_blocks{") and
                                         'worker="decode-0",role="decode"' in k and 'state="used"' in k])
                    await asyncio.sleep(0.01)
                s.writer.transport.abort()
                task.cancel()
                await asyncio.wait([task])

            asyncio.run(go())
            c.wait_idle()
            before = c.metric("baton_generation_tokens_total")
            c.complete("tell me more", 40, ignore_eos=True)
            assert c.metric("baton_generation_tokens_total") == before + 40
            assert c.metric("baton_prompt_tokens_total") > 0
            c.wait_idle()

            def split():
                return [sum(v for k, v in c.metrics().items()
                            if k.startswith("baton_kv_blocks{") and 'worker="decode-0"' in k and f'state="{state}"' in k)
                        for state in ("used", "quarantined", "cached", "free")]
            wait_until("blocks are free, some with their prefix", lambda: split()[:2] == [0, 0] and split()[2] > 0)


def fields_of(line):
    pairs = [word.split("=", 1) for word in line.split(" ")]
    assert [name for name, _ in pairs] == FIELDS, line
    return dict(pairs)


def test_access_log_has_a_line_for_each_exchange():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "access.log")

        def lines(n):
            wait_until(f"{n} lines", lambda: os.path.exists(path) and
                       sum("/metrics" not in x and "/health" not in x for x in open(path, encoding="utf-8")) >= n)
            with open(path, encoding="utf-8") as f:
                return [fields_of(x) for x in f.read().splitlines() if "/metrics" not in x and "/health" not in x]

        with Cluster(small_model(d), router_args=["--access-log", path]) as c:
            secret = "swordfish"
            status, headers, data = c.request("POST", COMPLETIONS, json.dumps(
                {"prompt": secret, "max_tokens": 5, "ignore_eos": True}).encode(), headers={"X-Request-Id": "my-id-7"})
            assert status == 200 and headers["X-Request-Id"] == "my-id-7", (status, headers)
            usage = json.loads(data)["usage"]
            status, headers, _ = c.request("GET", "/v1/nothing")
            assert status == 404 and len(headers["X-Request-Id"]) == 32, (status, headers)
            done, refused = lines(2)
            assert done["id"] == "my-id-7" and done["client"] == "127.0.0.1" and done["method"] == "POST", done
            assert done["route"] == done["path"] == COMPLETIONS and done["status"] == "200", done
            assert done["model"] == "tiny" and done["finish"] == "length", done
            assert (done["prompt"], done["output"]) == (str(usage["prompt_tokens"]), "5"), (done, usage)
            assert 0 < float(done["ttft_ms"]) <= float(done["total_ms"]), done
            assert done["prefill"] == "prefill-0" and done["decode"] == "decode-0", done
            assert refused["status"] == "404" and refused["path"] == "/v1/nothing", refused
            assert refused["model"] == refused["output"] == refused["ttft_ms"] == refused["decode"] == "-", refused
            assert c.metric("baton_http_requests_total", route=COMPLETIONS, method="POST", code="200") == 1
            # Whoever asks without a name is a tenant, too.
            for name, n in (("prompt", usage["prompt_tokens"]), ("generation", 5)):
                assert c.metric(f"baton_tenant_{name}_tokens_total", tenant="default") == n, name

            os.rename(path, path + ".1")
            c.router.kill(signal.SIGHUP)
            wait_until("the new file", lambda: os.path.exists(path))
            c.request("GET", "/v1/models")
            assert lines(1)[0]["path"] == "/v1/models"
            assert c.metric("baton_access_log_lines_dropped_total") == 0
            c.stop()
            for name in (path, path + ".1"):
                with open(name, encoding="utf-8") as f:
                    assert secret not in f.read()


def test_access_log_trace_and_explain_have_the_same_request_ids():
    """Of each API's way: whoever has one of them finds the other two."""
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    with tempfile.TemporaryDirectory() as d:
        log, trace = os.path.join(d, "access.log"), os.path.join(d, "trace")
        with Cluster(small_model(d), router_args=["--access-log", log, "--trace-file", trace, "--tenant-header", "X-Tenant"]) as c:
            infer = {"inputs": [{"name": "text_input", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]},
                                {"name": "max_tokens", "shape": [1, 1], "datatype": "INT32", "data": [2]}]}
            for i, (route, body) in enumerate(((COMPLETIONS, {"prompt": "a", "max_tokens": 2}),
                                               (COMPLETIONS, {"prompt": "a", "max_tokens": 2, "stream": True}),
                                               ("/v2/models/ensemble/generate", {"text_input": "a", "max_tokens": 2}),
                                               ("/v2/models/ensemble/infer", infer))):
                headers = {"X-Request-Id": f"mine-{i}", "X-Tenant": "shop"}
                if i % 2 == 0:
                    headers["traceparent"] = f"00-{trace_id}-00f067aa0ba902b7-01"
                status, _, _ = c.request("POST", route, json.dumps(body).encode(), headers=headers)
                assert status == 200, (route, status)

                def line():
                    with open(log, encoding="utf-8") as f:
                        return next((fields_of(x.rstrip()) for x in f if f" id=mine-{i} " in x), None)

                def spans():
                    with open(trace, encoding="utf-8") as f:
                        for x in f:
                            span = json.loads(x)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
                            said = {a["key"]: a["value"].get("stringValue") for a in span["attributes"]}
                            if said.get("baton.request_id") == f"mine-{i}":
                                return span, said
                    return None
                wait_until("both lines are written", lambda: line() and spans())
                (span, said), logged = spans(), line()
                explained, = [r for r in json.loads(c.request("GET", "/v2/cluster/requests")[2])["requests"]
                              if r["request_id"] == f"mine-{i}"]
                want = (logged["answer"], logged["trace"], "shop")
                assert (said["gen_ai.response.id"], span["traceId"], said["baton.tenant"]) == want, (logged, said)
                assert (explained["answer_id"], explained["trace_id"], explained["tenant"]) == want, (logged, explained)
                assert logged["tenant"] == "shop" and len(logged["answer"]) > 8 and len(logged["trace"]) == 32, logged
                assert i % 2 or logged["trace"] == trace_id, logged


def test_logs_and_access_log_as_json():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "access.log")
        with Cluster(small_model(d), router_args=["--log-format", "json", "--access-log", path],
                     worker_args=["--log-format", "json"]) as c:
            c.complete("hello", 3, ignore_eos=True)
            c.stop()
            for p in c.processes:
                for line in p.log().splitlines():
                    said = json.loads(line)
                    assert list(said) == ["time", "level", "name", "pid", "message"], line
                    assert said["pid"] == p.popen.pid and said["time"].endswith("+00:00"), line
            with open(path, encoding="utf-8") as f:
                said = [json.loads(x) for x in f]
            done, = [x for x in said if x["route"] == COMPLETIONS]
            assert done["output"] == 3 and done["decode"] == "decode-0" and done["ttft_ms"] > 0, done


def test_page_shows_restarts_and_missing_workers():
    with tempfile.TemporaryDirectory() as d:
        command = [os.path.join(BUILD, "launcher/baton-launch"), "--model", f"one={small_model(d)}", "--decode", "2",
                   "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--kv-memory", "16m", "--weight-cache", "off",
                   "--log-dir", d]
        said = os.path.join(d, "said")
        with open(said, "wb") as out:
            launcher = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        try:
            def text():
                with open(said, encoding="utf-8") as f:
                    return f.read()
            wait_until("it is ready", lambda: "Baton is ready" in text() or launcher.poll() is not None, 120)
            page = re.search(r"http://(127\.0\.0\.1:\d+)/metrics", text())
            assert page, text()

            def metrics():
                with urllib.request.urlopen(f"http://{page.group(1)}/metrics", timeout=20) as answer:
                    return answer.read().decode()

            def has(*lines):
                return all(line in metrics().split("\n") for line in lines)

            wait_until("what the launcher means to run is there", lambda: has(
                'baton_expected_workers{role="prefill",model="one"} 1',
                'baton_expected_workers{role="decode",model="one"} 2',
                'baton_workers{model="one",role="decode",state="up"} 2',
                'baton_worker_restarts_total{worker="decode-1"} 0'))
            for pid in children_of(launcher.pid):
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                    if "--name=decode-1\0" in f.read():
                        os.kill(pid, signal.SIGKILL)
            wait_until("the restart is counted", lambda: has(
                'baton_expected_workers{role="decode",model="one"} 2',
                'baton_workers{model="one",role="decode",state="up"} 2',
                'baton_worker_restarts_total{worker="decode-1"} 1',
                'baton_worker_restarts_total{worker="decode-0"} 0'))
        finally:
            launcher.terminate()
            assert launcher.wait(60) == 0
