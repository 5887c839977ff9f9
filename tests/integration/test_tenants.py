# SPDX-License-Identifier: Apache-2.0
"""API keys and the tenants behind them: who gets in, what they may have, and that they do not notice each other."""
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

from harness import ENDLESS, PACED, ROOT, Cluster, Skip, endless_model, small_model, wait_until
from launch import Launch
from other_user import passed_on

KEY = os.path.join(ROOT, "tools", "cli", "key.py")
PATH = "/v2/models/ensemble/generate"


class Keys:
    """A file for --api-keys with a key for each tenant, made as an operator does."""

    def __init__(self, directory, **limits):
        self.path = os.path.join(directory, "api-keys")
        self.keys, self.lines = {}, {}
        for tenant in limits:
            run = subprocess.run([sys.executable, KEY, "new", tenant], capture_output=True, text=True, check=True)
            self.keys[tenant] = run.stdout.strip()
            self.lines[tenant] = next(line for line in run.stderr.splitlines() if line.startswith("key "))
        self.write(**limits)

    def write(self, more="", **limits):
        """These tenants alone, and a line of the test's."""
        with open(self.path + ".new", "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            for tenant, text in limits.items():
                f.write(f"tenant {tenant} {text}\n{self.lines[tenant]}\n")
            f.write(more)
        os.rename(self.path + ".new", self.path)

    def of(self, tenant):
        return {"Authorization": "Bearer " + self.keys[tenant]}


@contextlib.contextmanager
def served(model=small_model, cluster=(), **limits):
    """@return (a cluster with keys for these tenants, their Keys)"""
    with tempfile.TemporaryDirectory() as directory:
        keys = Keys(directory, **limits)
        options = dict(cluster)
        options["router_args"] = ["--api-keys", keys.path, *options.get("router_args", ())]
        with Cluster(model(directory), **options) as c:
            yield c, keys


def ask(c, headers, prompt="once upon a time", path="/v1/completions", **more):
    """@return (status, headers, JSON)"""
    body = dict(prompt=prompt, max_tokens=4, temperature=0, ignore_eos=True)
    body.update(more)
    status, answered, data = c.request("POST", path, body, headers)
    return status, {k.lower(): v for k, v in answered.items()}, json.loads(data or b"{}")


def hang_up(c, keys, text):
    """SIGHUP, and wait until the router says this."""
    seen = c.router.log().count(text)
    c.router.kill(signal.SIGHUP)
    wait_until(f"the router says {text}", lambda: c.router.log().count(text) > seen)


class Reader:
    """A stream that is read line by line, of a tenant."""

    def __init__(self, c, headers, **more):
        self.connection = http.client.HTTPConnection(*c.http, timeout=300)
        body = dict(prompt="a", max_tokens=8, stream=True, temperature=0.9, seed=3, ignore_eos=True, return_token_ids=True)
        body.update(more)
        self.connection.request("POST", "/v1/completions", json.dumps(body), headers)
        self.response = self.connection.getresponse()
        self.status = self.response.status

    def line(self):
        while True:
            line = self.response.readline()
            if line.strip() and not line.startswith(b":"):
                return line

    def rest(self):
        return self.response.read()

    def close(self):
        self.connection.close()


def test_api_key_allows_everything_but_admin_commands():
    with served(acme="", ops="admin") as (c, keys):
        for path in ("/v2/health/live", "/v2/health/ready", "/health", "/ping"):
            assert c.request("GET", path)[0] == 200, path
        # The page is the same for everybody: a browser asks for it without a key, and it asks for one itself.
        for path, accept in (("/", "text/html"), ("/page/page.js", "*/*")):
            status, headers, data = c.request("GET", path, headers={"Accept": accept})
            assert status == 200 and "Content-Security-Policy" in headers and b"acme" not in data, (path, status, headers)
        for method, path in (("GET", "/v1/models"), ("GET", "/v2"), ("GET", "/"), ("GET", "/metrics"), ("GET", "/version"),
                             ("GET", "/v2/models/ensemble"), ("GET", "/v2/models/ensemble/ready"),
                             ("POST", "/v2/repository/index"), ("GET", "/v2/logging"), ("POST", "/tokenize"),
                             ("POST", PATH), ("POST", "/v1/chat/completions"), ("POST", "/invocations")):
            status, headers, data = c.request(method, path, "{}" if method == "POST" else None)
            assert status == 401, (path, status, data)
            assert headers["WWW-Authenticate"] == 'Bearer realm="baton"', headers
        status, _, error = ask(c, {})
        assert (status, error["error"]["code"], error["error"]["type"]) == (401, "invalid_api_key", "invalid_request_error")
        assert "Authorization: Bearer KEY" in error["error"]["message"], error
        # Before its body is read: nobody reads 8 MiB of a stranger's.
        with contextlib.closing(http.client.HTTPConnection(*c.http, timeout=300)) as connection:
            connection.putrequest("POST", "/v1/completions")
            connection.putheader("Content-Length", str(8 << 20))
            connection.endheaders()
            assert connection.getresponse().status == 401
        for headers in (keys.of("acme"), {"x-api-key": keys.keys["acme"]}, {"api-key": keys.keys["acme"]}):
            assert ask(c, headers)[0] == 200, headers
        assert c.request("GET", "/v1/models", headers=keys.of("acme"))[0] == 200
        # Commands, and everybody's figures, are for those who may give commands.
        for method, path in (("POST", "/v2/repository/models/x/unload"), ("POST", "/v2/logging"), ("GET", "/metrics"),
                             ("GET", "/v2/cluster"), ("POST", "/v2/cluster/workers/decode-0"), ("GET", "/is_paused"), ("POST", "/resume"),
                             ("GET", "/is_sleeping"), ("POST", "/sleep"), ("POST", "/wake_up"), ("POST", "/reset_prefix_cache")):
            body = "{}" if method == "POST" else None
            assert c.request(method, path, body, keys.of("acme"))[0] == 403, path
            assert c.request(method, path, body, keys.of("ops"))[0] not in (401, 403), path
        assert c.request("GET", "/v2/logging", headers=keys.of("acme"))[0] == 200
        # On loopback the port for metrics is open, and says who asked for what.
        assert c.metric("baton_tenant_requests_total", tenant="acme") == 3
        assert c.metric("baton_tenant_generation_tokens_total", tenant="acme") == 12
        assert c.metric("baton_tenant_requests_total", tenant="ops") == 0
        assert c.metric("baton_requests_unauthorized_total") == 15


ADMIN_COMMANDS = (("/v2/repository/models/ensemble/unload", "{}"), ("/v2/repository/models/ensemble/load", "{}"),
          ("/v2/logging", '{"log_verbose_level": 0}'), ("/v2/trace/setting", "{}"), ("/v2/models/ensemble/trace/setting", "{}"),
          ("/v2/cluster/workers/decode-0", '{"role": "decode"}'), ("/resume", ""), ("/pause", ""), ("/resume", ""),
          ("/sleep", ""), ("/wake_up", ""), ("/reset_prefix_cache", ""))


def post_to(address, path, body):
    with contextlib.closing(http.client.HTTPConnection(*address, timeout=300)) as connection:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_commands_without_keys_are_those_of_the_servers_own_user():
    """Another user of the host may ask, and read settings, and gives no commands; unless the operator says so."""
    if os.geteuid() != 0:
        raise Skip("only root has another user")
    ask_of = "/v1/completions", '{"prompt": "a", "max_tokens": 1}'
    with tempfile.TemporaryDirectory(prefix="baton-test-") as folder:
        model = small_model(folder)
        with Cluster(model) as c, passed_on(c.http) as other:
            for path, body in ADMIN_COMMANDS:
                status, data = post_to(other, path, body)
                assert status == 403 and b"--admin-without-keys anybody" in data, (path, status, data)
                status, data = post_to(c.http, path, body)
                assert status != 403, (path, status, data)
            assert post_to(other, *ask_of)[0] == 200
            with contextlib.closing(http.client.HTTPConnection(*other, timeout=300)) as connection:
                connection.request("GET", "/v2/logging")
                assert connection.getresponse().status == 200
        with Cluster(model, router_args=["--admin-without-keys", "anybody"]) as c, passed_on(c.http) as other:
            for path, body in ADMIN_COMMANDS:
                status, data = post_to(other, path, body)
                assert status != 403, (path, status, data)


def test_wrong_keys_do_not_affect_others():
    """Long, of strange bytes, many: all of them 401, and the server goes on."""
    with served(acme="") as (c, keys):
        good = keys.keys["acme"]
        for key in (good + "x", good[:-1], good.upper(), "", " ", "x" * 60000, good + "\u00e9", "\t" + good * 3, "Bearer " + good):
            with contextlib.closing(http.client.HTTPConnection(*c.http, timeout=300)) as connection:
                connection.putrequest("POST", "/v1/completions")
                connection.putheader("Authorization", ("Bearer " + key).encode("utf-8"))
                connection.putheader("Content-Length", "2")
                connection.endheaders(b"{}")
                assert connection.getresponse().status == 401, key[:80]
        with contextlib.closing(http.client.HTTPConnection(*c.http, timeout=300)) as connection:
            connection.connect()  # a zero byte is no header's
            connection.sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + good.encode()
                                    + b"\0\r\nContent-Length: 2\r\n\r\n{}")
            assert b" 400 " in connection.sock.recv(64)
        before = c.metric("baton_requests_unauthorized_total")
        failed = []

        def knock():
            for _ in range(100):
                if ask(c, {"Authorization": "Bearer wrong"})[0] != 401:
                    failed.append(1)

        crowd = [threading.Thread(target=knock) for _ in range(4)]
        for one in crowd:
            one.start()
        while any(one.is_alive() for one in crowd):
            assert ask(c, keys.of("acme"))[0] == 200
        for one in crowd:
            one.join()
        assert not failed
        assert c.metric("baton_requests_unauthorized_total") - before == 400


def test_keys_change_while_streams_run():
    with served(endless_model, acme="", late="") as (c, keys):
        keys.write(acme="")  # "late" comes later
        hang_up(c, keys, "1 keys of 1 tenants")
        assert ask(c, keys.of("late"))[0] == 401
        stream = Reader(c, keys.of("acme"), max_tokens=ENDLESS)
        assert stream.status == 200
        stream.line()
        # A file that is broken leaves those before in force, and its line is named.
        keys.write(more="key acme oops\n", late="")
        hang_up(c, keys, "those before stay in force")
        assert f"API keys {keys.path}: line 3: behind the tenant's name stands blake2b:" in c.router.log()
        assert ask(c, keys.of("late"))[0] == 401
        assert ask(c, keys.of("acme"))[0] == 200
        os.chmod(keys.path, 0o644)
        keys.write(late="")
        os.chmod(keys.path, 0o644)
        hang_up(c, keys, "its mode is 0644, which lets others at it: chmod 600")
        wait_until("the new keys are in force", lambda: ask(c, keys.of("late"))[0] == 200)
        # Whose key is gone gets no more, but the stream that it began goes on.
        assert ask(c, keys.of("acme"))[0] == 401
        for _ in range(5):
            assert b"data: {" in stream.line()
        stream.close()
        c.wait_idle()


def test_launcher_passes_api_keys_to_routers():
    with tempfile.TemporaryDirectory() as directory:
        keys = Keys(directory, acme="")
        with Launch("--model", small_model(directory), "--api-keys", keys.path) as launch:
            address = launch.process("router")["http"]
            assert launch.get(address, "/v1/models") == 401
            assert launch.get(address, "/v1/models", keys.of("acme")) == 200
            other = Keys(tempfile.mkdtemp(dir=directory), next="")
            os.rename(other.path, keys.path)
            launch.popen.send_signal(signal.SIGHUP)
            wait_until("the routers have the new keys",
                       lambda: launch.get(address, "/v1/models", other.of("next")) == 200)
            assert launch.get(address, "/v1/models", keys.of("acme")) == 401


def test_unreadable_api_keys_fail_the_start():
    with tempfile.TemporaryDirectory() as directory:
        keys = Keys(directory, acme="")
        keys.write(more="tenant acme weight=0\n", acme="")
        cluster = Cluster(small_model(directory), router_args=["--api-keys", keys.path])
        try:
            router = cluster.start_router()
            assert router.popen.wait(60) == 78, router.log()
            assert f"API keys {keys.path}: line 3: tenant acme is in line 1 already" in router.log(), router.log()
        finally:
            cluster.__exit__(None, None, None)


def test_prefix_cache_is_separate_for_each_tenant():
    prompt = "the quick brown fox jumps over the lazy dog " * 4

    def cached(c, headers, **more):
        status, _, answer = ask(c, headers, prompt, **more)
        assert status == 200, answer
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    with served(one="", two="") as (c, keys):
        assert cached(c, keys.of("one")) == 0
        assert cached(c, keys.of("one")) > 0
        assert cached(c, keys.of("two")) == 0
        assert cached(c, keys.of("two")) > 0
        assert cached(c, keys.of("one"), cache_salt="a") == 0
        assert cached(c, keys.of("two"), cache_salt="a") == 0
        assert cached(c, keys.of("two"), cache_salt="a") > 0
    with tempfile.TemporaryDirectory() as directory, \
            Cluster(small_model(directory), router_args=["--tenant-header", "X-Baton-Tenant"]) as c:
        assert cached(c, {}) == 0
        assert cached(c, {"X-Baton-Tenant": "default"}) > 0  # the same
        assert cached(c, {"X-Baton-Tenant": "shop"}) == 0
        assert cached(c, {"x-baton-tenant": "shop"}) > 0
        assert ask(c, {"X-Baton-Tenant": "a b"})[0] == 400
        assert c.metric("baton_tenant_requests_total", tenant="shop") == 2


def test_flooding_tenant_delays_no_other():
    """Ten at once of one tenant, all the time, and then one of another: it overtakes what the flood has waiting, so it is
    first of all that came after the flood's first, though the workers never have room for more than a few."""
    n_flood = 40
    with served(endless_model, flood="", other="",
                cluster=dict(worker_args=["--max-batch-size", "2", *PACED], kv_memory="32m")) as (c, keys):
        ended, began = [], threading.Event()

        def one(name, i):
            if i == 0:
                began.set()
            status, _, answer = ask(c, keys.of(name), prompt=f"{i} " + "word " * 60, max_tokens=40)
            assert status == 200, answer
            ended.append((name, i))

        crowd = [threading.Thread(target=one, args=("flood", i)) for i in range(n_flood)]
        for thread in crowd:
            thread.start()
        wait_until("the flood is here", lambda: c.metric("baton_tenant_requests_in_flight", tenant="flood") > n_flood // 2)
        n_before = len(ended)
        other = threading.Thread(target=one, args=("other", n_flood))
        other.start()
        other.join(120)
        n_after = len(ended)
        for thread in crowd:
            thread.join(120)
        assert len(ended) == n_flood + 1, ended
        # What was at the workers when it came ends first: two seats, and those sent ahead of their ends. Without
        # tenants it would be all of the flood.
        assert n_after - n_before < n_flood // 2, (n_before, n_after, ended)


def preprocess(c, headers, text):
    body = {"inputs": [{"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": [text]},
                       {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}
    status, answered, data = c.request("POST", "/v2/models/preprocessing/infer", body, headers)
    return status, {k.lower(): v for k, v in answered.items()}, json.loads(data or b"{}")


def test_tokenizing_is_charged():
    """Text to ids and back counts as its tokens do, at each route that does it: who has used them up comes again later."""
    limits = "tokens-per-second=1 burst-tokens=100"
    with served(to_ids=limits, to_text=limits, triton=limits, free="") as (c, keys):
        ids = list(range(60, 160)) * 2
        calls = {"to_ids": lambda: ask(c, keys.of("to_ids"), prompt="word " * 60, path="/tokenize"),
                 "to_text": lambda: ask(c, keys.of("to_text"), tokens=ids, path="/detokenize"),
                 "triton": lambda: preprocess(c, keys.of("triton"), "word " * 60)}
        for tenant, call in calls.items():
            status, headers, answer = call()
            assert status == 200, (tenant, status, answer)
            status, headers, error = call()
            assert status == 429 and int(headers["retry-after"]) > 30, (tenant, status, headers, error)
            assert c.metric("baton_tenant_refused_total", tenant=tenant, reason="tokens") == 1
        assert ask(c, keys.of("free"), prompt="word " * 60, path="/tokenize")[0] == 200
        c.wait_idle()


def test_rate_limit_answers_have_retry_after():
    with served(endless_model, few="requests=2", slow="tokens-per-second=1 burst-tokens=100", free="") as (c, keys):
        streams = [Reader(c, keys.of("few"), max_tokens=ENDLESS // 3) for _ in range(2)]
        assert [s.status for s in streams] == [200, 200]
        assert streams[1].response.getheader("x-ratelimit-limit-requests") == "2"
        assert streams[1].response.getheader("x-ratelimit-remaining-requests") == "0"
        status, headers, error = ask(c, keys.of("few"))
        assert (status, error["error"]["type"], error["error"]["code"]) == (429, "requests", "rate_limit_exceeded"), error
        assert int(headers["retry-after"]) >= 1
        assert ask(c, keys.of("free"))[0] == 200
        for stream in streams:
            stream.close()
        wait_until("its places are free again", lambda: ask(c, keys.of("few"))[0] == 200)
        # n answers are n requests.
        status, _, error = ask(c, keys.of("few"), n=3, temperature=1)
        assert status == 429 and "asked for 3" in error["error"]["message"], error

        # About 4 + 60 tokens of 100, of which 60 - 4 are not used and come back.
        status, headers, _ = ask(c, keys.of("slow"), prompt="a", max_tokens=4)
        assert status == 200 and headers["x-ratelimit-limit-tokens"] == "100", headers
        status, headers, error = ask(c, keys.of("slow"), prompt="a", max_tokens=90)
        assert status == 200, error
        status, headers, error = ask(c, keys.of("slow"), prompt="a", max_tokens=90)
        assert (status, error["error"]["type"]) == (429, "tokens"), error
        assert 60 <= int(headers["retry-after"]) <= 100, headers
        assert int(headers["x-ratelimit-remaining-tokens"]) < 15, headers
        assert headers["x-ratelimit-reset-tokens"].endswith("s")
        assert c.metric("baton_tenant_refused_total", tenant="slow", reason="tokens") == 1
        assert c.metric("baton_tenant_refused_total", tenant="few", reason="requests") >= 2
        assert c.metric("baton_tenant_refused_total", tenant="free", reason="tokens") == 0
        c.wait_idle()
        assert c.total("baton_tenant_requests_in_flight") == 0


def test_compile_time_of_grammars_is_charged():
    """Descriptions that take some ms of a millisecond a minute, until one is refused; those that are known are served."""
    def described(i, **more):
        return dict({"guided_json": {"type": "string", "title": str(i), "allOf": [{"pattern": x} for x in ("a.*b", "b.*c", "c.*d")]}}, **more)

    with served(few="grammar-ms-per-minute=1", free="") as (c, keys):
        assert ask(c, keys.of("few"), **described(0))[0] == 200
        for i in range(1, 1000):
            status, headers, error = ask(c, keys.of("few"), **described(i))
            if status != 200:
                break
        assert (status, error["error"]["code"]) == (429, "rate_limit_exceeded") and "(grammar-ms-per-minute)" in error["error"]["message"], error
        assert int(headers["retry-after"]) >= 1
        assert ask(c, keys.of("few"), **described(0))[0] == 200
        assert ask(c, keys.of("few"))[0] == 200
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "response_format": {"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}}
        assert c.request("POST", "/v1/chat/completions", body, keys.of("few"))[0] == 429
        assert c.request("POST", "/v1/chat/completions", dict(body, tools=[tool], tool_choice="none"), keys.of("few"))[0] == 429
        for i in range(3):
            assert ask(c, keys.of("free"), **described(i))[0] == 200
        assert c.request("POST", "/v1/chat/completions", body, keys.of("free"))[0] == 200
        assert c.metric("baton_tenant_refused_total", tenant="few", reason="grammars") == 3
        assert c.metric("baton_tenant_refused_total", tenant="free", reason="grammars") == 0
        assert c.metric("baton_tenant_grammar_seconds_total", tenant="few") > 0.001
        assert c.metric("baton_tenant_grammar_seconds_total", tenant="free") > 0.001
        c.wait_idle()
