#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./baton check: options with their sources, and all that is wrong with them, without a start."""
import ctypes
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import unittest

from serving import ROOT

BUILD = os.environ.get("BATON_BUILD", os.path.join(ROOT, "build"))
LAUNCH = os.path.join(BUILD, "launcher/baton-launch")


class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="baton-test-")
        cls.model = cls.path("tiny.gguf")
        subprocess.run([os.path.join(BUILD, "tests/support/baton-tiny-model"), cls.model, "--layers", "2", "--dim", "64",
                        "--heads", "4", "--kv-heads", "2", "--ffn", "128", "--context", "256"], check=True,
                       stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name, text=None, mode=0o600):
        path = os.path.join(cls.folder.name, name)
        if text is not None:
            with open(path, "w", encoding="ascii") as f:
                f.write(text)
            os.chmod(path, mode)
        return path

    def run_check(self, *args, code, environment=None, before=None):
        where = {k: v for k, v in os.environ.items() if not k.startswith("BATON_")}
        where.update(environment or {}, XDG_CACHE_HOME=self.folder.name, XDG_RUNTIME_DIR=self.folder.name)
        done = subprocess.run([LAUNCH, "--check", *args], capture_output=True, text=True, timeout=120, env=where, check=False,
                              preexec_fn=before)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual([n for n in os.listdir(self.folder.name) if n.startswith("baton-")], [])  # no run directory is left
        return done.stdout

    def check(self, *args, code, **more):
        """@return the options by name, and the findings"""
        said = json.loads(self.run_check(*args, "--json", code=code, **more))
        return {o["name"]: o for o in said["options"]}, said["findings"]

    def texts(self, *args, code=1, level="problem", **more):
        return [f["text"] for f in self.check(*args, code=code, **more)[1] if f["level"] == level]

    def assert_one(self, part, texts):
        self.assertEqual(len([t for t in texts if part in t]), 1, (part, texts))

    def test_check_prints_every_option_with_its_source(self):
        conf = self.path("ok.conf", "# a comment\n\nmax-batch-size = 8\nkv-memory = 64m\nport = 9000\n")
        options, findings = self.check("--config", conf, "--prefill=2", "--model", "m=" + self.model, code=0,
                                       environment={"BATON_DECODE": "3", "BATON_MAX_BATCH_SIZE": "16"})
        self.assertEqual([f for f in findings if f["level"] == "problem"], [])
        for name, value, source, where in (
                ("model", "m=" + self.model, "command line", "--model"), ("prefill", "2", "command line", "--prefill"),
                ("decode", "3", "environment", "BATON_DECODE"), ("max-batch-size", "16", "environment", "BATON_MAX_BATCH_SIZE"),
                ("kv-memory", "64m", "file", conf + ":4"), ("http", "127.0.0.1:9000", "file", conf + ":5"),
                ("kv-dtype", "bf16", "default", None), ("log-dir", "", "default", None)):
            self.assertEqual(options[name], {"name": name, "value": value, "source": source, "where": where})
        # Pools of two prefill workers and a decode worker.
        said = json.loads(self.run_check("--kv-memory", "64m", "--prefill=2", "--model", self.model, "--json", code=0))
        self.assertEqual(said["shm_bytes"], 3 * (64 << 20))
        self.assertIsNone(json.loads(self.run_check("--json", code=0))["shm_bytes"])
        # Those of --help are all there.
        named = subprocess.run([LAUNCH, "--help"], capture_output=True, text=True, check=True).stdout
        helped = {line.split()[0][2:].rstrip(",") for line in named.splitlines() if line.startswith("  --")} - {"config", "help", "version"}
        self.assertEqual(helped - set(options), set())

    def test_check_reports_all_errors(self):
        conf = self.path("bad.conf", "kv-memory = 2x\nprefil = 3\nmax-batch-size = 9999\nmax-batch-size = 1\nno line\n")
        texts = self.texts("--config", conf, "--bogus", "5", "--heartbeat-ms", "2000", "--tokens-per-block", "15",
                           "--http", "nowhere", "--tls-cert", "x", "--model", self.model, environment={"BATON_DECODE": "none"})
        for part in (f"{conf}:1: kv-memory: '2x' is not a size", f"{conf}:2: unknown key 'prefil'; did you mean prefill",
                     f"{conf}:3: max-batch-size: '9999' is not a whole number from 1 to 4096",
                     f"{conf}:4: 'max-batch-size' was given already in line 3", f"{conf}:5: 'no line' is not `key = value`",
                     "unknown option --bogus", "must rise in this order", "--tokens-per-block 15 must be an even number",
                     "--http: 'nowhere' is not ADDR:PORT", "--tls-cert needs --tls-key, too", "BATON_DECODE: 'none' is not"):
            self.assert_one(part, texts)
        self.assertEqual(len(texts), 11, texts)

    def test_check_reports_errors_in_files(self):
        with open(self.model, "rb") as f, open(self.path("cut.gguf"), "wb") as cut:
            cut.write(f.read(600))
        key = self.path("tls.key", "no key")
        cert = self.path("tls.pem", "no certificate", 0o644)
        keys = self.path("api-keys", "key nobody rubbish\n")
        headers = self.path("headers", "no header\n")
        texts = self.texts("--model", "a=" + self.path("cut.gguf"), "--model", "b=" + self.path("not.gguf"), "--model",
                           "c=" + self.model, "--tls-key", key, "--tls-cert", cert, "--api-keys", keys,
                           "--trace-file", "/nowhere/trace", "--log-dir", "/nowhere/logs", "--cors-origins", "x",
                           "--kv-net-devices", "eth-none", "--otlp-traces-endpoint", "http://127.0.0.1:1", "--otlp-headers-file", headers)
        for part in ("cannot open the model " + self.path("not.gguf"), "model " + self.path("cut.gguf") + ": ",
                     "TLS certificate " + cert, "--api-keys " + keys, "--otlp-headers-file " + headers, "--trace-file /nowhere/trace cannot be written: No such file",
                     "--log-dir /nowhere/logs cannot be written", "--cors-origins: \"x\" is not an origin",
                     "--kv-net-devices eth-none: there is no such interface"):
            self.assert_one(part, texts)
        self.assertEqual(len(texts), 9, texts)

    def test_check_reports_a_readable_tls_key_with_its_mode(self):
        key, cert = self.path("open.key"), self.path("open.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x", "-keyout",
                        key, "-out", cert], check=True, capture_output=True)
        args = ["--model", self.model, "--tls-key", key, "--tls-cert", cert]
        os.chmod(key, 0o600)
        self.assertEqual(self.texts(*args, code=0), [])
        os.chmod(key, 0o644)
        self.assert_one("its mode is 0644, which lets others at it: chmod 600", self.texts(*args))
        os.chmod(key, 0o600)
        if os.geteuid() == 0:  # root may read it all the same, and is told whose it is
            os.chown(key, 12345, 12345)
            self.assert_one("it belongs to user 12345, and this is user 0", self.texts(*args))
        other = self.path("other.key")
        subprocess.run(["openssl", "genrsa", "-out", other, "2048"], check=True, capture_output=True)
        os.chmod(other, 0o600)
        texts = self.texts("--model", self.model, "--tls-key", other, "--tls-cert", cert)
        self.assertEqual(len(texts), 1, texts)
        self.assertIn(other, texts[0])

    def test_programs_without_launcher_have_check_too(self):
        key = self.path("cluster-key", "0123456789abcdef0123456789abcdef\n")

        def ask(program, *args):
            done = subprocess.run([os.path.join(BUILD, program), "--check", "--cluster-key-file", key, *args], capture_output=True, text=True,
                                  timeout=60, check=False, env={"PATH": os.environ["PATH"], "HOME": self.folder.name})
            return done.returncode, [json.loads(line)["message"] for line in done.stderr.splitlines()], done.stdout

        router = ("router/baton-router", "--model", self.model)
        worker = ("worker/main/baton-decode-worker", "--model", self.model)
        code, words, out = ask(*router)
        self.assertEqual((code, out), (0, ""))
        self.assert_one("model tiny: the chat template shows no tools", words)
        code, words, out = ask(*worker, "--kv-memory", "64m")
        self.assertEqual((code, words, json.loads(out)["pool_bytes"], json.loads(out)["ranks"]), (0, [], 64 << 20, 1))
        os.chmod(key, 0o640)
        for program in (router, worker):
            code, words, _ = ask(*program)
            self.assertEqual(code, 78)
            self.assert_one(f"cluster key {key}: its mode is 0640, which lets others at it: chmod 600", words)
        os.chmod(key, 0o600)
        if os.geteuid() == 0:
            os.chown(key, 12345, 12345)
            for program in (router, worker):
                self.assert_one(f"cluster key {key}: it belongs to user 12345, and this is user 0", ask(*program)[1])
            os.chown(key, 0, 0)
        code, words, _ = ask(*worker, "--served-model-name", "a/b", "--max-batch-size", "x")
        self.assertEqual(code, 2)
        self.assertEqual(len(words), 2, words)

    def test_check_compares_ranks_with_the_model(self):
        self.assertEqual(self.texts("--model", self.model, "--decode-tp", "2", code=0), [])
        texts = self.texts("--model", self.model, "--decode-tp", "4", "--prefill-pp", "3")
        self.assert_one("tensor parallelism over 4 ranks: the model has 2 KV heads, and each rank needs one", texts)
        self.assert_one("pipeline parallelism over 3 stages: the model has 2 layers", texts)

    def test_check_reports_missing_memory_with_a_fitting_pool(self):
        options = ["--model", self.model, "--kv-transport", "network"]
        _, findings = self.check(*options, "--kv-memory", "30t", code=1)
        wrong = [f for f in findings if f["about"] == "memory"]
        self.assertEqual(len(wrong), 1, findings)
        self.assertRegex(wrong[0]["text"], r"KV pools \d+\), and \d+ MiB are available: \d+ MiB are missing")
        word, size = wrong[0]["fix"].split()
        self.assertEqual(word, "--kv-memory")
        # A little less, for others take memory meanwhile.
        self.assertEqual(self.texts(*options, "--kv-memory", f"{int(size[:-1]) // 2}m", code=0), [])

    def test_host_name_too_long_for_ucx_is_reported(self):
        if os.geteuid() != 0 or subprocess.run(["unshare", "--uts", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no UTS namespaces here, or not as root")

        def of_length(n):
            if ctypes.CDLL(None).unshare(0x04000000) != 0:  # CLONE_NEWUTS
                raise OSError("unshare")
            socket.sethostname("n" * n)

        args = ["--model", self.model, "--cors-origins", "x"]
        texts = self.texts(*args, before=lambda: of_length(64))
        self.assert_one("the name of this host has 64 characters", texts)
        self.assert_one("hostname NAME, or hostnamectl set-hostname NAME, with a shorter one", texts)
        self.assert_one('--cors-origins: "x" is not an origin', texts)  # the router is asked all the same
        self.assertEqual(len(texts), 2, texts)
        self.assertEqual(self.texts(*args[:2], code=0, before=lambda: of_length(63)), [])

    def test_check_hides_passwords(self):
        out = self.run_check("--otlp-traces-endpoint", "http://me:secret@host:4318/x", "--model", self.model, code=1)
        self.assertIn("the URL has a name or password", out)
        self.assertNotIn("secret", out)
        self.assertRegex(out, r"--otlp-traces-endpoint +http://\*+@host:4318/x +command line")

    def test_check_ignores_ports_in_use(self):
        """What runs may be this very server; ./baton doctor says who has it."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.assertEqual(self.texts("--model", self.model, "--http", f"127.0.0.1:{taken.getsockname()[1]}", code=0), [])

    def test_without_a_model_and_without_descriptors(self):
        out = self.run_check(code=0)
        self.assertIn("note     model: no model is named", out)
        self.assertTrue(out.endswith("\n0 problems, 0 warnings\n"), out[-200:])
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))  # pylint: disable=unnecessary-lambda-assignment
        done = subprocess.run([LAUNCH, "--check", "--model", self.model], capture_output=True, text=True, timeout=120,
                              preexec_fn=few, check=False)
        self.assertIn(done.returncode, (1, 2), done.stdout + done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
