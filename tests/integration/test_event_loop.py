# SPDX-License-Identifier: Apache-2.0
"""What takes long is done beside the router's event loop, whoever asks for it."""
import http.client
import json
import os
import socket
import tempfile
import threading

from harness import Cluster, small_model, tiny_model, wait_until

N_PROCESSES = 2000  # whose series make a page long
N_PAGES = 100
N_VOCAB = 400_000  # tokens whose table takes tenths of a second


class AdminSocket:
    """In place of a launcher: sends each router a document, and changes. with AdminSocket(directory) as admin: admin.send(change)"""

    def __init__(self, directory, processes=()):
        self.path = os.path.join(directory, "admin.sock")
        self.document = {"ok": True, "launcher": {"pid": 1}, "models": [], "processes": list(processes)}
        self.clients = []
        self.lock = threading.Lock()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self._accept, daemon=True)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            client.recv(4096)  # "watch"
            with self.lock:
                client.sendall((json.dumps(self.document) + "\n").encode())
                self.clients.append(client)

    def send(self, change):
        with self.lock:
            for client in self.clients:
                client.sendall((json.dumps(change) + "\n").encode())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for client in self.clients:
            client.close()


def loop_cpu(metrics):
    """@return CPU seconds of the event loop's thread, and of the whole process"""
    return metrics["baton_event_loop_turn_seconds_sum"], metrics["process_cpu_seconds_total"]


def test_metrics_pages_are_written_off_the_event_loop():
    """One after another, and several at once, some of whom do not wait for theirs."""
    processes = [{"name": f"w-{i}", "program": "decode", "role": "decode", "model": f"m-{i}", "state": "ready", "pid": 1, "restarts": i}
                 for i in range(N_PROCESSES)]
    with tempfile.TemporaryDirectory() as d, AdminSocket(d, processes) as admin:
        with Cluster(small_model(d), router_args=["--launcher", admin.path]) as c:
            last = f'baton_worker_restarts_total{{worker="w-{N_PROCESSES - 1}"}}'
            wait_until("the page has all processes", lambda: c.metrics().get(last) == N_PROCESSES - 1)
            before = loop_cpu(c.metrics())
            conn = http.client.HTTPConnection(*c.metrics_at, timeout=60)
            for _ in range(N_PAGES):
                conn.request("HEAD", "/metrics")  # written as for GET
                answer = conn.getresponse()
                assert answer.status == 200 and int(answer.read() or answer.headers["Content-Length"]) > 100_000
            conn.close()
            after = loop_cpu(c.metrics())
            loop, whole = after[0] - before[0], after[1] - before[1]
            print(f"    {N_PAGES} pages: {loop:.3f} s of the loop, {whole:.3f} s in all")
            assert loop < whole / 2, (loop, whole)
            failed = []

            def reader():
                for i in range(N_PAGES // 4):
                    if i % 5 == 0:
                        with socket.create_connection(c.metrics_at) as s:
                            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    if c.metrics().get(last) != N_PROCESSES - 1:
                        failed.append(i)

            readers = [threading.Thread(target=reader) for _ in range(4)]
            for r in readers:
                r.start()
            for r in readers:
                r.join()
            assert not failed, failed
            # A page that is under way does not keep the router from its end.
            waiting = [socket.create_connection(c.metrics_at) for _ in range(3)]
            for s in waiting:
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert set(c.stop().values()) == {0}
            for s in waiting:
                s.close()


def test_model_is_loaded_off_the_event_loop():
    """One with a large vocabulary, while others are asked for."""
    with tempfile.TemporaryDirectory() as d, AdminSocket(d) as admin:
        with Cluster(small_model(d), router_args=["--launcher", admin.path]) as c:
            os.mkdir(os.path.join(d, "big"))
            path = tiny_model(os.path.join(d, "big"), layers=1, dim=32, heads=1, kv_heads=1, ffn=32, context=64,
                              vocab=N_VOCAB, embedding_type="Q4_0")
            wait_until("the router hears what is loaded", lambda: admin.clients)
            before, health, text = loop_cpu(c.metrics()), [], c.complete("hello", 5, temperature=0)["token_ids"]

            def is_there():
                health.append(c.request("GET", "/v2/health/live")[0])
                return b'"big"' in c.request("GET", "/v1/models")[2]

            admin.send({"models": [{"name": "big", "loaded": True, "path": path, "prefill": 1, "decode": 1}]})
            wait_until("the model is there", is_there)
            assert c.complete("hello", 5, temperature=0, model="tiny")["token_ids"] == text
            after = loop_cpu(c.metrics())
            loop, whole = after[0] - before[0], after[1] - before[1]
            print(f"    {loop:.3f} s of the loop, {whole:.3f} s in all, asked {len(health)} times meanwhile")
            assert set(health) == {200}, health
            assert loop < whole / 2, (loop, whole)
            assert set(c.stop().values()) == {0}


def test_slow_chat_template_runs_off_the_event_loop():
    """Of short requests, which are otherwise prepared there: given up after a millisecond, and the pool's."""
    slow = "{% for i in range(1000) %}{% for j in range(500) %}{% if j == 600 %}no{% endif %}{% endfor %}{% endfor %}"
    quick = "{{ messages[0].content }}"
    body = {"messages": [{"role": "user", "content": "one two", "unread": 1}], "max_tokens": 1}
    with tempfile.TemporaryDirectory() as d:
        for template, most in ((slow + quick, 0.5), (quick, None)):
            path = os.path.join(d, "template")
            with open(path, "w", encoding="ascii") as f:
                f.write(template)
            with Cluster(small_model(d), router_args=["--chat-template", path]) as c:
                status, headers, data = c.request("POST", "/v1/chat/completions", body)
                expected = (status, headers.get("X-Baton-Ignored-Fields"), json.loads(data)["usage"])
                before = loop_cpu(c.metrics())
                for _ in range(10):
                    status, headers, data = c.request("POST", "/v1/chat/completions", body)
                    assert (status, headers.get("X-Baton-Ignored-Fields"), json.loads(data)["usage"]) == expected
                loop, whole = (b - a for a, b in zip(before, loop_cpu(c.metrics())))
                print(f"    {loop:.3f} s of the loop, {whole:.3f} s in all")
                assert expected[0] == 200 and "unread" in expected[1], expected
                assert most is None or (loop < most * whole and whole > 0.02), (loop, whole)
