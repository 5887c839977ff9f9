# SPDX-License-Identifier: Apache-2.0
"""What a live view reads (docs/CLUSTER_API.md) against what the cluster does."""
import http.client
import json
import os
import signal
import socket
import tempfile
import threading
import time
from contextlib import ExitStack

from harness import PACED, Cluster, small_model, wait_until
from launch import Launch

PROMPT = "one two three"
SECRET = "xylophone quartz"


class Watcher:
    """Reads GET /v2/cluster/events in a thread: `events` is a list of (name, id, data)."""

    def __init__(self, address, last_id=None):
        self.connection = http.client.HTTPConnection(*address, timeout=60)
        self.connection.request("GET", "/v2/cluster/events", headers={"Last-Event-ID": last_id} if last_id else {})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, (self.answer.status, self.answer.read())
        assert self.answer.getheader("Content-Type").startswith("text/event-stream")
        self.events, self.over = [], False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        fields = {}
        try:
            for line in iter(self.answer.readline, b""):
                line = line.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    self.events.append((fields.get("event"), fields.get("id"), json.loads(fields["data"])))
                    fields = {}
        except (OSError, http.client.HTTPException, ValueError, AttributeError):
            pass
        self.over = True

    def of(self, name):
        return [data for event, _, data in list(self.events) if event == name]

    def kinds(self, worker=None):
        return [e["kind"] for e in self.of("event") if worker is None or e["worker"] == worker]

    def handovers(self):
        return [one for event in self.of("handover") for one in event["list"]]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.connection.sock is not None:
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)
        self.connection.close()


def get(address, path):
    connection = http.client.HTTPConnection(*address, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
        assert answer.status == 200, (path, answer.status, data)
        return json.loads(data)
    finally:
        connection.close()


def named(state, name):
    found = [w for w in state["workers"] if w["name"] == name]
    return found[0] if found else None


def test_live_view_shows_a_killed_worker_leave_and_return():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Launch("--model", "m=" + small_model(directory)) as launch:
        host, _, port = launch.process("router")["http"].rpartition(":")
        address = (host, int(port))
        name = [n for n in launch.processes() if "decode" in n][0]
        with Watcher(address) as watcher:
            wait_until("the launcher's word is here", lambda: (
                lambda w: w and w["expected"] and w["launched"] and w["state"] == "up")(named(get(address, "/v2/cluster"), name)))
            wait_until("the model's readiness is told", lambda: "model_ready" in [
                event["kind"] for event in get(address, "/v2/cluster")["events"]])
            first = named(get(address, "/v2/cluster"), name)
            os.kill(launch.process(name)["pid"], signal.SIGKILL)
            wait_until("its loss is told", lambda: "worker_lost" in watcher.kinds(name))
            wait_until("its return is told", lambda: watcher.kinds(name)[-1:] == ["worker_joined"])
            wait_until("the model's loss and return are told", lambda: (
                lambda k: "model_not_ready" in k and "model_ready" in k[k.index("model_not_ready"):])(watcher.kinds()))
            state = wait_until("its restart is counted", lambda: (
                lambda s: s if (named(s, name) or {}).get("restarts") == 1 and named(s, name)["state"] == "up" else None)(
                    get(address, "/v2/cluster")))
            assert named(state, name)["id"] != first["id"]
            # The same are in the snapshot, and who comes back with an id gets those behind it.
            told = [e for e in watcher.of("event") if e["worker"] == name]
            lost = [e for e in told if e["kind"] == "worker_lost"][0]
            assert lost in state["events"]
            with Watcher(address, lost["id"]) as late:
                wait_until("what came behind it", lambda: "worker_joined" in late.kinds(name))
                assert "worker_lost" not in late.kinds(name)


def check_waterfall(one):
    at = 0
    for phase in one["phases"]:
        assert abs(phase["start_ms"] - at) < 0.0005, one
        at += phase["length_ms"]
    assert abs(at - one["duration_ms"]) < 0.0005 * (len(one["phases"]) + 1), (at, one)


def test_request_waterfall_adds_up_and_names_its_workers():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(small_model(directory), worker_args=PACED) as cluster, Watcher(cluster.http) as watcher:
        begin = time.monotonic()
        status, answer = cluster.post("/v1/completions", {"prompt": SECRET, "max_tokens": 20, "ignore_eos": True})
        elapsed_ms = (time.monotonic() - begin) * 1000
        assert status == 200, answer
        n_prompt, n_output = answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]
        listed = wait_until("it is listed", lambda: get(cluster.http, "/v2/cluster/requests")["requests"])
        assert len(listed) == 1, listed
        one = get(cluster.http, f"/v2/cluster/requests/{listed[0]['id']}")
        assert one == get(cluster.http, f"/v2/cluster/requests/{answer['id']}")
        more = {"phases", "overlapped", "tries", "prompt_text", "answer_text"}
        assert {k: v for k, v in one.items() if k not in more} == listed[0] and more <= one.keys(), one
        assert one["prompt_text"] is None and one["answer_text"] is None, one
        check_waterfall(one)
        assert 0 < one["first_token_ms"] < one["duration_ms"] <= elapsed_ms, (one, elapsed_ms)
        assert (one["prompt_tokens"], one["output_tokens"], one["finish"]) == (n_prompt, n_output, "length"), one
        assert (one["prefill"], one["decode"]) == ("prefill-0", "decode-0"), one
        phases = {s["name"]: s for s in one["phases"]}
        assert phases["prefill"]["worker"] == "prefill-0" and phases["prefill"]["chunks"] >= 1, one
        assert phases["decode"]["worker"] == "decode-0", one
        data = [b for b in one["overlapped"] if b["name"] == "kv_transfer_data"][0]
        assert data["bytes"] == cluster.total("baton_kv_transfer_bytes_total") > 0, one
        knew = one["tries"][0]
        assert (knew["prefill"]["of_workers"], knew["decode"]["of_workers"]) == (1, 1), one
        assert knew["decode"]["seats"] >= 1 and knew["cause"] == "pair", one
        # Neither prompt nor answer is anywhere.
        text = json.dumps([one, get(cluster.http, "/v2/cluster"), watcher.events])
        assert SECRET.split()[0] not in text and (answer["choices"][0]["text"].strip() or SECRET) not in text

        wait_until("the hand-over is told", lambda: len(watcher.handovers()) == 2)
        begun, ended = watcher.handovers()
        assert (begun["phase"], ended["phase"]) == ("begun", "ended"), (begun, ended)
        assert (ended["from"], ended["to"], ended["bytes"]) == ("prefill-0", "decode-0", data["bytes"]), ended
        assert begun["request"] == one["id"]
        # The step in which it was has all of it.
        def points():
            return [p["series"][0] for p in watcher.of("point")]
        wait_until("the history has its tokens and its end", lambda: sum(sum(p["out_tokens"]) for p in points()) == n_output
                   and sum(sum(p["ended"]) for p in points()) == 1)
        assert sum(sum(p["in_tokens"]) for p in points()) == n_prompt
        series = get(cluster.http, "/v2/cluster")["history"]["series"]
        assert sum(series[0]["out_tokens"]) == n_output and len(series) == 2, series


def test_cross_origin_pages_take_no_event_stream_slots():
    """What a page embeds has no Origin; what the browser says of it is enough."""
    with tempfile.TemporaryDirectory() as d:
        with Cluster(small_model(d), prefill=1, router_args=["--max-event-streams", "1"]) as c:
            for site, dest, right in (("cross-site", "image", 403), ("same-site", "script", 403), ("cross-site", "iframe", 403),
                                      ("cross-site", None, 403), ("same-origin", "empty", 200), ("none", "document", 200),
                                      ("cross-site", "document", 200), (None, None, 200)):
                headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Dest": dest}
                headers = {k: v for k, v in headers.items() if v is not None}
                for path in ("/v2/cluster/events", "/v2/cluster", "/v1/models"):
                    connection = http.client.HTTPConnection(*c.http, timeout=60)
                    try:
                        # The place of the reader before is free as soon as the router sees that it is gone.
                        def status():
                            connection.request("GET", path, headers=headers)
                            found = connection.getresponse().status
                            connection.close() if found != 200 else None
                            return found
                        wait_until(f"{path} {headers}: {right}", lambda: status() == right)
                    finally:
                        connection.close()


def test_stalled_event_stream_readers_affect_nobody():
    with tempfile.TemporaryDirectory(prefix="baton-test-") as directory, \
            Cluster(small_model(directory), router_args=["--max-event-streams", "4"]) as cluster, ExitStack() as stack:
        for _ in range(3):
            stopped = stack.enter_context(socket.create_connection(cluster.http, 60))
            stopped.sendall(b"GET /v2/cluster/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stopped.recv(64).startswith(b"HTTP/1.1 200 ")
        watcher = stack.enter_context(Watcher(cluster.http))
        wait_until("four read", lambda: watcher.of("state") and watcher.of("state")[-1]["router"]["watchers"] == 4)
        status, headers, data = cluster.request("GET", "/v2/cluster/events")
        assert status == 503 and "Retry-After" in headers and b"--max-event-streams" in data, (status, data)
        before = len(watcher.of("state"))
        for _ in range(5):
            cluster.complete(PROMPT)
        wait_until("states go on", lambda: len(watcher.of("state")) >= before + 3)
        cluster.router.popen.send_signal(signal.SIGTERM)
        # Its last words are not kept up by readers who do not read.
        wait_until("the router ends", lambda: not cluster.router.alive())
        wait_until("the stream ends", lambda: watcher.over)
        assert "router_leaving" in watcher.kinds(), watcher.kinds()
