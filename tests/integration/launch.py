# SPDX-License-Identifier: Apache-2.0
"""A whole launch as `./baton serve` makes it, and a stream that is read step by step."""
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile

from harness import BUILD, Cluster, wait_until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
import admin_socket  # noqa: E402

ADMIN_SECONDS = 120
# Models with random weights fall into loops of tokens without text when they are greedy.
DRAWN = dict(temperature=0.9, top_p=0.95, top_k=40, seed=5, ignore_eos=True)


class Launch:
    """with Launch("--model", ...) as l: l.admin("status")"""

    def __init__(self, *args, http="127.0.0.1:0", silence=Cluster.PATIENT, folder="", environment=None):
        """@param folder  the name of the one that it writes into, where that matters
        @param environment  how to tell it of that folder, as a function of its path (XDG_RUNTIME_DIR and the weight cache)"""
        self.top = tempfile.mkdtemp(prefix="baton-test-")
        self.dir = os.path.join(self.top, folder) if folder else self.top
        os.makedirs(self.dir, exist_ok=True)
        self.environment = (environment or (lambda d: {"XDG_RUNTIME_DIR": d, "BATON_WEIGHT_CACHE": d + "/weights"}))(self.dir)
        self.logs_dir = os.path.join(self.dir, "logs")
        self.args = [os.path.join(BUILD, "launcher/baton-launch"), *args, "--http", http,
                     "--metrics", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--prefill-threads", "1", "--decode-threads", "1",
                     "--suspect-ms", str(silence[0]), "--dead-ms", str(silence[1]),
                     "--kv-memory", "192m", "--drain-ms", "2000", "--log-dir", self.logs_dir]
        self.popen = None

    def __enter__(self):
        environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"} | self.environment
        with open(os.path.join(self.dir, "out"), "wb") as out:
            self.popen = subprocess.Popen(self.args, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                          env=environment)
        try:
            wait_until("the launch is ready", lambda: "Baton is ready" in self.output() or self._check_alive(), 120)
            return self
        except BaseException:
            self.__exit__(AssertionError, None, None)
            raise

    def __exit__(self, kind, value, trace):
        self.popen.terminate()
        try:
            self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        if kind is not None:
            print(self.output()[-4000:])
            for name in sorted(os.listdir(self.logs_dir) if os.path.isdir(self.logs_dir) else []):
                with open(os.path.join(self.logs_dir, name), encoding="utf-8", errors="replace") as f:
                    print(f"--- {name}\n{f.read()[-3000:]}")
        shutil.rmtree(self.top, ignore_errors=True)

    def output(self):
        with open(os.path.join(self.dir, "out"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def _check_alive(self):
        if self.popen.poll() is not None:
            raise AssertionError(f"the launcher ended with {self.popen.returncode}")
        return False

    def admin(self, *words):
        """@return the answer to an admin command."""
        run_dir = [d for d in os.listdir(self.dir) if d.startswith("baton-")][0]
        return admin_socket.ask(os.path.join(self.dir, run_dir, admin_socket.NAME), " ".join(words), ADMIN_SECONDS)

    def processes(self):
        return {process["name"]: process for process in self.admin("status")["processes"]}

    def process(self, name):
        return self.processes()[name]

    def post(self, address, path, body, timeout=60):
        conn = http.client.HTTPConnection(address, timeout=timeout)
        try:
            conn.request("POST", path, json.dumps(body))
            answer = conn.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            conn.close()

    def get(self, address, path, headers=None):
        """@return the status"""
        conn = http.client.HTTPConnection(address, timeout=60)
        try:
            conn.request("GET", path, headers=headers or {})
            return conn.getresponse().status
        finally:
            conn.close()

    def ask(self, address, path):
        """@return the status and the JSON of the answer"""
        conn = http.client.HTTPConnection(address, timeout=60)
        try:
            conn.request("GET", path)
            answer = conn.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            conn.close()

    def complete(self, address, prompt, max_tokens=16, **more):
        body = dict(prompt=prompt, max_tokens=max_tokens, **DRAWN, **more)
        status, answer = self.post(address, "/v1/completions", body)
        assert status == 200, (status, answer)
        return answer["choices"][0]["text"]

    def metric(self, address, name, **labels):
        """@return the one series of a family whose labels include these, None when it is not on the page."""
        conn = http.client.HTTPConnection(address, timeout=60)
        try:
            conn.request("GET", "/metrics")
            found = [float(line.rpartition(" ")[2]) for line in conn.getresponse().read().decode().split("\n")
                     if line.split("{")[0] == name and all(f'{k}="{v}"' in line for k, v in labels.items())]
        finally:
            conn.close()
        assert len(found) <= 1, (name, labels, found)
        return found[0] if found else None


class Reading:
    """A completion that streams, read event by event: it goes on only as far as it is asked to."""

    def __init__(self, address, prompt, max_tokens, **more):
        self.conn = http.client.HTTPConnection(address, timeout=60)
        body = dict(prompt=prompt, max_tokens=max_tokens, stream=True, **DRAWN, **more)
        self.conn.request("POST", "/v1/completions", json.dumps(body))
        self.answer = self.conn.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.text, self.n_events = "", 0

    def read(self, n):
        """n events more; a stream that breaks or ends with an error fails."""
        for _ in range(n):
            line = self.answer.readline()
            while line == b"\n" or line.startswith(b":"):
                line = self.answer.readline()
            assert line.startswith(b"data: {"), line
            event = json.loads(line[6:])
            assert "error" not in event, event
            self.text += "".join(c["text"] for c in event["choices"])
            self.n_events += 1
        return self

    def close(self):
        self.conn.close()
