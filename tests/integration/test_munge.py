# SPDX-License-Identifier: Apache-2.0
"""A cluster key that lies in a file for all to see, as a MUNGE credential. munged is Debian's, on a socket of the test."""
import os
import pwd
import shutil
import subprocess
import tempfile

from harness import Cluster, Process, Skip, small_model, wait_until

KEY = "5d41402abc4b2a76b9719d911017c592"
NOBODY = pwd.getpwnam("nobody").pw_uid


class Munged:
    """with Munged() as m: m.seal(…), m.socket; a key of its own, so that no other munged opens what it made"""

    def __init__(self):
        if shutil.which("munged") is None or os.geteuid() != 0:
            raise Skip("needs munged, and root")
        self.dir = tempfile.mkdtemp(prefix="baton-test-")
        os.chmod(self.dir, 0o711)
        self.socket = os.path.join(self.dir, "socket", "munge")
        self.popen = None

    def __enter__(self):
        private = os.path.join(self.dir, "private")
        os.mkdir(private, 0o700)
        os.mkdir(os.path.dirname(self.socket), 0o755)
        with open(os.open(os.path.join(private, "key"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(os.urandom(128))
        files = [f"--{name}-file={private}/{name}" for name in ("key", "seed", "pid", "log")]
        self.popen = subprocess.Popen(["munged", "--foreground", "--force", "--num-threads=2", "--socket=" + self.socket, *files],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until("munged", lambda: self.popen.poll() is not None or os.path.exists(self.socket))
        assert self.popen.poll() is None, f"munged ended with {self.popen.returncode}"
        return self

    def __exit__(self, *_):
        self.popen.terminate()
        self.popen.wait()
        shutil.rmtree(self.dir)

    def seal(self, *options, key=KEY, user=None):
        as_user = ["setpriv", f"--reuid={user}", "--clear-groups"] if user else []
        return subprocess.run([*as_user, "munge", "--socket=" + self.socket, "--string=" + key, *options], check=True,
                              capture_output=True, text=True, cwd="/").stdout

    def status_of(self, credential):
        done = subprocess.run(["unmunge", "--socket=" + self.socket], input=credential, capture_output=True, text=True, check=False)
        return done.stdout


def write(path, text, mode):
    if os.path.exists(path):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)


def test_munge_cluster_key_is_readable_by_its_user_only():
    """All may read the file; each process opens the credential again, also when its time is long over."""
    with tempfile.TemporaryDirectory() as d, Munged() as munged:
        credential = munged.seal("--restrict-uid=0", "--ttl=1")
        more = ["--munge-socket", munged.socket]
        cluster = Cluster(small_model(d), worker_args=more, router_args=more)
        write(cluster.key, credential, 0o644)
        wait_until("it is expired", lambda: "Expired credential" in munged.status_of(credential))
        with cluster as c:
            body = {"prompt": "one two three", "max_tokens": 4}
            assert c.request("POST", "/v1/completions", body)[0] == 200
            # The same key, in a file that is the key itself.
            plain = os.path.join(d, "plain")
            write(plain, KEY + "\n", 0o600)
            late = Process("decode", "late", ["--model", c.model, "--join", c.url, "--cluster-key-file", plain, "--name", "late",
                                              "--run-dir", c.dir] + c.worker_args, c.dir)
            c.processes.append(late)
            wait_until("it joined", lambda: c.total("baton_workers", role="decode", state="up") == 2)


def test_unencrypted_munge_credentials_are_refused_by_name():
    with tempfile.TemporaryDirectory() as d, Munged() as munged:
        model = small_model(d)
        good = munged.seal("--restrict-uid=0")
        path = os.path.join(d, "key")
        nowhere = os.path.join(d, "nowhere")
        for name, text, mode, socket, why in (
                ("for all", munged.seal(), 0o644, munged.socket, "this credential is not for user 0 alone: make it with munge --restrict-uid=0"),
                ("of another", munged.seal("--restrict-uid=0", user=NOBODY), 0o644, munged.socket, f"user {NOBODY} made this credential"),
                ("for another", munged.seal(f"--restrict-uid={NOBODY}"), 0o644, munged.socket, "munged: Unauthorized credential"),
                ("bent", good[:40] + ("A" if good[40] != "A" else "B") + good[41:], 0o644, munged.socket, "munged: Invalid credential"),
                ("short", munged.seal("--restrict-uid=0", key="0123456789abcde"), 0o644, munged.socket, "it has 15 bytes"),
                ("writable", good, 0o664, munged.socket, "its mode is 0664"),
                ("plain", KEY, 0o644, munged.socket, "its mode is 0644"),
                ("no munged", good, 0o644, nowhere, "munged: ")):
            write(path, text, mode)
            for role, options in (("router", ["--listen", f"ipc://{d}/r.ipc", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                                              "--metrics", "127.0.0.1:0"]),
                                  ("decode", ["--join", f"ipc://{d}/r.ipc", "--name", "d"])):
                process = Process(role, name.replace(" ", "-") + "-" + role, [
                    "--model", model, "--cluster-key-file", path, "--munge-socket", socket, "--run-dir", d] + options, d)
                assert process.popen.wait(60) != 0, name
                said = process.log()
                process.close()
                assert f"cluster key {path}: " in said and why in said, (name, role, said)
                assert KEY not in said, said


def test_new_munge_credential_is_a_new_key():
    with tempfile.TemporaryDirectory() as d, Munged() as munged:
        more = ["--munge-socket", munged.socket]
        cluster = Cluster(small_model(d), worker_args=more, router_args=more)
        write(cluster.key, munged.seal("--restrict-uid=0"), 0o644)
        with cluster as c:
            for process in c.processes:
                process.kill(1)  # SIGHUP
                wait_until("the same", lambda p=process: "SIGHUP: the cluster key is the same" in p.log())
            write(c.key, munged.seal("--restrict-uid=0", key=KEY[::-1]), 0o644)
            for process in c.processes:
                process.kill(1)
                wait_until("another", lambda p=process: "new links use the new cluster key" in p.log())
