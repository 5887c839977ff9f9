#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./baton pull, list, rm, against a server of the test's own."""
import fcntl
import hashlib
import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLI = os.path.join(ROOT, "tools", "cli")
sys.dont_write_bytecode = True
sys.path.insert(0, CLI)

import hub as hubs  # noqa: E402
import model_fetch  # noqa: E402
import model_http  # noqa: E402
import model_source  # noqa: E402
import model_store  # noqa: E402
import models as models_command  # noqa: E402
import progress  # noqa: E402
import pull as pull_command  # noqa: E402
import words  # noqa: E402

MODEL = hubs.gguf(300000)
OTHER = hubs.gguf(250000, file_type=7, seed=1)
LIMIT_S = 20  # guards against hanging alone


class PullTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="bt-models-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.hub = hubs.Hub()
        self.addCleanup(self.hub.close)
        self.hub.repos = {
            "we/Tiny-GGUF": {"README.md": b"hi", "Tiny-Q4_K_M.gguf": MODEL, "Tiny-Q8_0.gguf": OTHER,
                             "Tiny-UD-Q4_K_M.gguf": OTHER, "mmproj-F16.gguf": OTHER},
            "we/Tiny": {"config.json": b'{"model_type": "llama", "torch_dtype": "bfloat16"}', "tokenizer.json": b"{}" * 900,
                        "model.safetensors": MODEL[4:], "consolidated.safetensors": OTHER, "code.py": b"evil",
                        "pytorch_model.bin": OTHER, "onnx/model.json": b"{}"},
            "we/Parts": {f"Q8_0/P-Q8_0-0000{i}-of-00003.gguf": hubs.gguf(3000 + i, seed=i) for i in (1, 2, 3)}}
        self.environment = {"HF_ENDPOINT": self.hub.url, "BATON_MODELS_DIR": self.folder, "BATON_FETCH_PAUSE_S": "0",
                            "no_proxy": "127.0.0.1", "PATH": os.environ["PATH"], "HOME": self.folder,
                            "PYTHONDONTWRITEBYTECODE": "1"}

    def command(self, module, *words, **environment):
        """@return exit status, standard output, standard error"""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, {**self.environment, **environment}, clear=True), \
                mock.patch.object(sys, "argv", ["baton", *words]), \
                mock.patch.object(sys, "stdout", out), mock.patch.object(sys, "stderr", err):
            status = module.main()
        return status, out.getvalue(), err.getvalue()

    def pull(self, *words, **environment):
        return self.command(pull_command, *words, **environment)

    def pulled(self, *words, **environment):
        status, out, err = self.pull(*words, **environment)
        self.assertEqual(status, 0, err)
        return out, err

    def refused(self, pattern, *words, **environment):
        status, out, err = self.pull(*words, **environment)
        self.assertEqual((status, out), (1, ""), err)
        self.assertRegex(err, pattern)
        self.assertNotIn("Traceback", err)
        return err

    def read(self, *names):
        with open(os.path.join(self.folder, *names), "rb") as f:
            return f.read()

    def entries(self):
        return sorted(os.listdir(self.folder))

    # --- what is fetched ---

    def test_quantization_of_a_repository(self):
        out, err = self.pulled("we/Tiny-GGUF:q4_k_m")
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)
        self.assertIn("Tiny-Q4_K_M is here: 300.0 kB, llama Q4_K_M, ", out)
        self.assertIn("./baton serve --model Tiny-Q4_K_M serves it", out)
        self.assertIn("Tiny-Q4_K_M: 100 % of 300.0 kB\n", err)
        self.assertEqual(self.entries(), ["Tiny-Q4_K_M"])
        manifest = json.loads(self.read("Tiny-Q4_K_M", ".baton.json"))
        self.assertEqual(manifest, {"source": "we/Tiny-GGUF:q4_k_m", "commit": self.hub.commit, "files": {
            "Tiny-Q4_K_M.gguf": {"bytes": len(MODEL), "sha256": hashlib.sha256(MODEL).hexdigest()}}})
        before = len(self.hub.files_asked())
        self.assertIn("was here already", self.pulled("we/Tiny-GGUF:q4_k_m")[0])
        self.assertEqual(len(self.hub.files_asked()), before)

    def test_folder_without_code_and_other_formats(self):
        self.pulled("we/Tiny@v1")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "Tiny"))),
                         [".baton.json", "config.json", "model.safetensors", "tokenizer.json"])
        self.assertEqual(self.read("Tiny", "model.safetensors"), MODEL[4:])
        files = json.loads(self.read("Tiny", ".baton.json"))["files"]
        self.assertEqual(files["tokenizer.json"]["git"], hubs.git_id(b"{}" * 900))
        _, out, _ = self.command(models_command, "list", "--json")
        row, = json.loads(out)
        self.assertEqual((row["name"], row["kind"], row["path"], row["source"]),
                         ("Tiny", "llama bfloat16", os.path.join(self.folder, "Tiny"), "we/Tiny@v1"))

    def test_all_parts_of_a_split_file(self):
        for word in ("we/Parts", f"{self.hub.url}/we/Parts/blob/main/Q8_0/P-Q8_0-00002-of-00003.gguf"):
            self.pulled(word, "--name", "parts")
            for i in (1, 2, 3):
                self.assertEqual(self.read("parts", f"P-Q8_0-0000{i}-of-00003.gguf"), hubs.gguf(3000 + i, seed=i))
            path = model_store.find(self.folder, "parts").path
            self.assertEqual(os.path.basename(path), "P-Q8_0-00001-of-00003.gguf")
            self.command(models_command, "rm", "parts")
        del self.hub.repos["we/Parts"]["Q8_0/P-Q8_0-00003-of-00003.gguf"]
        self.refused("we/Parts lacks Q8_0/P-Q8_0-00003-of-00003.gguf", "we/Parts")

    def test_pull_names_resolve_as_in_the_server(self):
        n_found = 0
        with open(os.path.join(ROOT, "tests", "support", "model_folder.txt"), encoding="utf-8") as f:
            rows = [line.split() for line in f if not line.startswith("#")]
        for kind, word, *what in rows:
            path = os.path.join(self.folder, word, ".baton.json") if kind == "from" else os.path.join(self.folder, word)
            if kind == "find":
                found = model_store.find(self.folder, word)
                self.assertEqual(os.path.relpath(found.path, self.folder) if found else "-", what[0], word)
                n_found += found is not None
            else:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as f:
                    f.write(json.dumps({"source": what[0]}) if what else "")
        self.assertGreater(n_found, 5)

    def test_pull_of_a_listed_name_works(self):
        path = os.path.join(self.folder, "names.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write("# ours\ntiny  we/Tiny-GGUF:Q8_0   a small one\n")
        with mock.patch.object(model_source, "LIST", path):
            self.pulled("tiny")
            self.refused("no model 'tine' in the list.*did you mean tiny\\?", "tine")
            self.assertIn("tiny  a small one  we/Tiny-GGUF:Q8_0\n", self.command(models_command, "list", "--known")[1])
        self.assertEqual(self.read("tiny", "Tiny-Q8_0.gguf"), OTHER)

    def test_every_line_of_the_list_can_be_read(self):
        names = model_source.known()
        self.assertGreater(len(names), 3)
        for name, (source, about) in names.items():
            self.assertTrue(model_store.is_name(name) and model_source.WORD.match(source) and about, name)

    def test_pull_of_a_url_works(self):
        self.hub.plain["/some where/m.gguf"] = MODEL
        url = self.hub.url + "/some%20where/m.gguf?download=true"
        self.hub.cuts = [100000]
        with mock.patch.dict(os.environ, {"HF_ENDPOINT": "http://127.0.0.1:1"}):
            self.pulled(url, HF_ENDPOINT="http://127.0.0.1:1", HF_TOKEN="good")
        self.assertEqual(self.read("m", "m.gguf"), MODEL)
        asked = self.hub.files_asked()
        self.assertEqual([row[1] for row in asked], ["bytes=0-0", None, "bytes=100000-"])
        self.assertEqual(asked[2][3], f'"{hubs.git_id(MODEL)}"')  # If-Range
        self.assertEqual({row[2] for row in asked}, {None})  # the token is not theirs
        self.pulled(url, "--name", "checked", "--sha256", hashlib.sha256(MODEL).hexdigest())
        self.refused("m.gguf does not match its checksum, twice", url, "--name", "x", "--sha256", "0" * 64)
        self.hub.plain["/page.gguf"] = b"<html>log in</html>"
        self.refused("page.gguf is no GGUF file", self.hub.url + "/page.gguf")
        self.assertEqual(self.entries(), [".pull-page", ".pull-x", "checked", "m"])

    # --- what goes wrong on the way ---

    def test_interrupted_download_resumes(self):
        self.hub.cuts = [100000, 50000, 1]
        _, err = self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)
        self.assertEqual([row[1] for row in self.hub.files_asked() if row[0] == "store"],
                         [None, "bytes=100000-", "bytes=150000-", "bytes=150001-"])
        self.assertIn("was cut; going on in 0 s", err)

    def test_download_restarts_without_range_support(self):
        for ranges in (True, False):
            self.hub.ranges = True
            self.hub.cuts = [100000] + [0] * model_fetch.TRIES
            self.refused("was cut; the same command goes on from here", "we/Tiny-GGUF:Q4_K_M")
            _, out, err = self.command(models_command, "list")
            self.assertEqual((out, err), ("", "Tiny-Q4_K_M: 100.0 kB of 300.0 kB are here; ./baton pull we/Tiny-GGUF:Q4_K_M "
                                          "goes on\n"))
            self.hub.asked, self.hub.cuts, self.hub.ranges = [], [], ranges
            self.assertIn("going on after 100.0 kB of 300.0 kB", self.pulled("we/Tiny-GGUF:Q4_K_M")[1])
            self.assertEqual(self.hub.files_asked()[-1][1], "bytes=100000-")
            self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)
            self.command(models_command, "rm", "Tiny-Q4_K_M")
            self.assertEqual(self.entries(), [])

    def test_changed_remote_file_is_not_resumed(self):
        url = self.hub.url + "/m.gguf"
        self.hub.plain["/m.gguf"] = MODEL
        self.hub.cuts = [100000] + [0] * model_fetch.TRIES
        self.refused("was cut", url)
        self.hub.plain["/m.gguf"], self.hub.cuts = hubs.gguf(len(MODEL), seed=9), []
        self.pulled(url)
        self.assertEqual(self.read("m", "m.gguf"), hubs.gguf(len(MODEL), seed=9))

    def test_busy_server_is_retried(self):
        self.hub.errors = [503, 429, 500]
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.hub.errors = [503] * model_fetch.TRIES
        self.refused("HTTP 503 of 127.0.0.1.*same command goes on", "we/Tiny-GGUF:Q8_0")

    def test_corrupt_download_never_gets_its_final_name(self):
        self.hub.served["Tiny-Q4_K_M.gguf"] = hubs.gguf(len(MODEL), seed=5)
        err = self.refused("does not match its checksum, twice; nothing of it is kept", "we/Tiny-GGUF:Q4_K_M")
        self.assertIn("it is fetched anew", err)
        self.hub.served["Tiny-Q4_K_M.gguf"] = MODEL + b"more"
        self.refused("sends 300.0 kB for Tiny-Q4_K_M.gguf, which should have", "we/Tiny-GGUF:Q4_K_M")
        self.hub.served, self.hub.longer = {}, 7
        self.refused("which should have", "we/Tiny-GGUF:Q4_K_M")
        self.assertEqual([name for name in self.entries() if not name.startswith(".")], [])

    def test_server_that_states_checksums_only_when_it_redirects(self):
        self.hub.describes = False
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)
        self.hub.repos["we/Tiny-GGUF"]["Tiny-Q4_K_M.gguf"], self.hub.commit = OTHER, "d" * 40
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), OTHER)
        self.hub.served["Tiny-Q8_0.gguf"] = hubs.gguf(len(OTHER), seed=5)
        self.refused("does not match its checksum, twice", "we/Tiny-GGUF:Q8_0")
        self.pulled("we/Tiny")
        self.assertEqual(self.read("Tiny", "tokenizer.json"), b"{}" * 900)

    def test_unrequested_part_is_dropped(self):
        self.hub.cuts, self.hub.shift = [100000], 1
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)
        self.assertEqual([row[1] for row in self.hub.files_asked() if row[0] == "store"], [None, "bytes=100000-", None])

    def test_ctrl_c_keeps_the_partial_download(self):
        self.hub.stalls, self.hub.cuts = True, [100000]
        child = subprocess.Popen([sys.executable, os.path.join(CLI, "pull.py"), "we/Tiny-GGUF:Q4_K_M"], env=self.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertTrue(self.hub.stalled.wait(LIMIT_S))
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=LIMIT_S)
        self.assertEqual(child.returncode, 130, err)
        self.assertIn("stopped; the same command goes on from here", err)
        self.hub.stalls = False
        self.hub.go_on.set()
        self.hub.asked = []
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)

    def test_second_pull_waits_and_fetches_nothing(self):
        os.makedirs(self.folder, exist_ok=True)
        lock = open(os.path.join(self.folder, ".pull-Tiny-Q4_K_M.lock"), "w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
        child = subprocess.Popen([sys.executable, os.path.join(CLI, "pull.py"), "we/Tiny-GGUF:Q4_K_M"], env=self.environment,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertIn("another process is pulling Tiny-Q4_K_M; waiting for it", child.stderr.readline())
        status, _, err = self.command(models_command, "rm", "Tiny-Q4_K_M")
        self.assertEqual((status, err), (1, f"baton: no model 'Tiny-Q4_K_M' in {self.folder}\n"))
        os.unlink(lock.name)  # as who had it does
        lock.close()
        out, err = child.communicate(timeout=LIMIT_S)
        self.assertEqual(child.returncode, 0, err)
        self.assertIn("is here", out)
        self.assertEqual(self.entries(), ["Tiny-Q4_K_M"])

    # --- who may have what ---

    def test_gated_repository_error_explains_access(self):
        self.hub.gated.add("we/Tiny-GGUF")
        self.refused("only for accounts that accepted its terms at .*/we/Tiny-GGUF: then make a token at .*settings/tokens and "
                     "put it into HF_TOKEN", "we/Tiny-GGUF:Q8_0")
        self.refused("does not let the account of HF_TOKEN have we/Tiny-GGUF", "we/Tiny-GGUF:Q8_0", HF_TOKEN="bad")
        self.pulled("we/Tiny-GGUF:Q8_0", HF_TOKEN="good")
        asked = self.hub.files_asked()
        self.assertEqual([row[2] for row in asked if row[0] == "hub"], ["Bearer good"])
        self.assertEqual([row[2] for row in asked if row[0] == "store"], [None])  # not to another host

    def test_token_never_crosses_a_network_in_clear_text(self):
        self.refused("HF_TOKEN would go to models.example in clear text", "we/T", HF_ENDPOINT="http://models.example",
                     HF_TOKEN="good")
        self.refused("HF_TOKEN has a character", "we/T", HF_TOKEN="a\nb")

    def test_unknown_model_names_the_closest(self):
        self.refused(r"has no repository we/Tiny-GGUG \(or it is private: then HF_TOKEN says who asks\); did you mean "
                     r"we/Tiny-GGUF\?", "we/Tiny-GGUG:Q4_K_M")
        self.refused("we/Tiny-GGUF has no revision 'v9'", "we/Tiny-GGUF@v9:Q4_K_M")
        self.refused("we/Tiny-GGUF has no file 'Tiny-Q4_K_N'; did you mean Tiny-Q4_K_M\\?; it has Tiny-Q4_K_M, ",
                     "we/Tiny-GGUF:Tiny-Q4_K_N")
        self.refused("we/Tiny-GGUF has 3 models; name one, as we/Tiny-GGUF:FILE: Tiny-Q4_K_M, Tiny-Q8_0, Tiny-UD-Q4_K_M",
                     "we/Tiny-GGUF")
        self.refused("README.md is no GGUF file; we/Tiny-GGUF alone", "we/Tiny-GGUF:README.md")
        self.refused("cannot be reached: connection refused", "we/Tiny", HF_ENDPOINT="http://127.0.0.1:1")
        self.refused("is not OWNER/REPO", "we/Tiny/GGUF")
        self.refused("no http:// or https:// address", "file:///etc/passwd")

    def test_names_of_files_stay_in_their_folder(self):
        for evil in ("../../evil.gguf", "/evil.gguf", "a/../../evil.gguf", ".evil.gguf", "e\x1b[2Jvil.gguf", "a\\..\\e.gguf",
                     "..gguf"):
            self.hub.repos["we/Evil"] = {evil: MODEL}
            err = self.refused("so it shall not be called here|has neither", "we/Evil")
            self.assertNotIn("\x1b", err)
        self.hub.repos["we/Evil"] = {"config.json": b"{}", "../x.safetensors": MODEL, "m.safetensors": MODEL, "../x.json": b"{}",
                                     "/x.json": b"{}"}
        self.pulled("we/Evil")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "Evil"))), [".baton.json", "config.json", "m.safetensors"])
        for name in ("../up", ".hidden", "a/b", "-x", "a b", "x.gguf", "n" * 64):
            self.refused("is no name for a model", "we/Tiny", f"--name={name}")
        self.assertEqual(self.entries(), ["Evil"])

    def test_redirect_to_a_local_file_is_refused(self):
        for where in ("file:///etc/passwd", "ftp://127.0.0.1/x"):
            self.hub.redirect = where
            self.refused("127.0.0.1.* sends us to .*(file|ftp):.*, which is not safe", "we/Tiny-GGUF:Q8_0")

    def test_redirect_takes_the_token_to_the_same_server_alone_and_never_leaves_tls(self):
        redirects = model_http._Redirects()
        for where, expected in (("https://a.example/y", "Bearer t"), ("https://a.example:443/y", "Bearer t"),
                                ("https://b.example/y", None), ("https://a.example:444/y", None)):
            request = urllib.request.Request("https://a.example/x", headers={"Range": "bytes=5-"})
            request.add_unredirected_header("Authorization", "Bearer t")
            following = redirects.redirect_request(request, None, 302, "Found", {}, where)
            self.assertEqual(following.get_header("Authorization"), expected, where)
            self.assertEqual(following.get_header("Range"), "bytes=5-")
        with self.assertRaisesRegex(words.Trouble, "which is not safe"):
            redirects.redirect_request(request, None, 302, "Found", {}, "http://a.example/y")

    def test_symlink_in_place_of_a_part_is_not_followed(self):
        victim = os.path.join(self.folder, "victim")
        with open(victim, "w", encoding="utf-8") as f:
            f.write("mine")
        with mock.patch.dict(os.environ, self.environment):
            web = model_http.from_environment()
            fetch = model_fetch.Fetch(self.folder, model_source.plan_for("we/Tiny-GGUF:Q8_0", web), web, lambda _: None)
        os.mkdir(fetch.staging)
        os.symlink(victim, fetch._path(fetch.plan.files[0]) + ".part")
        self.assertNotEqual(self.pull("we/Tiny-GGUF:Q8_0")[0], 0)
        self.assertEqual(self.read("victim"), b"mine")

    def test_invalid_server_replies_are_reported(self):
        for listing in ({"sha": "x"}, {"siblings": [{}]}, {"siblings": [{"rfilename": 3}]}, [],
                        {"siblings": [{"rfilename": "a.gguf", "size": -1}]}):
            with mock.patch.object(model_http.Web, "json", lambda *_, reply=listing: reply):
                self.refused("does not describe we/Tiny as the API", "we/Tiny")

    def test_insufficient_disk_space_is_reported_before_download(self):
        with mock.patch.object(shutil, "disk_usage", lambda _: mock.Mock(free=1000)):
            self.refused("Tiny-Q4_K_M takes 300.0 kB more, and .* has 1.0 kB free", "we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.hub.files_asked(), [])

    def test_full_disk_keeps_the_partial_download(self):
        real = model_fetch.write_all

        def full(file, piece):
            if os.fstat(file.fileno()).st_size > 0:
                raise OSError(28, "No space left on device")
            real(file, piece[:1000])
        with mock.patch.object(model_fetch, "write_all", full), mock.patch.object(model_fetch, "PIECE", 1000):
            self.refused("No space left on device; with more room the same command goes on", "we/Tiny-GGUF:Q4_K_M")
        self.assertIn("going on after 1.0 kB", self.pulled("we/Tiny-GGUF:Q4_K_M")[1])
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)

    # --- what is there ---

    def test_newer_commit_fetches_what_changed(self):
        self.pulled("we/Tiny")
        self.hub.asked, self.hub.commit = [], "d" * 40
        self.hub.repos["we/Tiny"]["tokenizer.json"] = b"[]"
        self.pulled("we/Tiny")
        self.assertEqual(self.read("Tiny", "tokenizer.json"), b"[]")
        self.assertEqual(self.read("Tiny", "model.safetensors"), MODEL[4:])
        self.assertEqual(len(self.hub.files_asked()), 1)
        self.assertEqual(json.loads(self.read("Tiny", ".baton.json"))["commit"], "d" * 40)
        self.assertEqual(self.entries(), ["Tiny"])

    def test_pull_never_overwrites_another_model(self):
        self.hub.repos["you/Tiny"] = self.hub.repos["we/Tiny"]
        self.pulled("we/Tiny")
        self.refused("a model Tiny already, from we/Tiny; --name gives", "you/Tiny")
        self.pulled("you/Tiny", "--name", "yours")
        os.mkdir(os.path.join(self.folder, "photos"))
        self.refused("photos is there and is no model", "we/Tiny", "--name", "photos")

    def test_pull_stopped_between_renames_loses_nothing(self):
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        with mock.patch.dict(os.environ, self.environment):
            web = model_http.from_environment()
            fetch = model_fetch.Fetch(self.folder, model_source.plan_for("we/Tiny-GGUF:Q4_K_M", web), web, lambda _: None)
        os.mkdir(fetch.staging)
        os.rename(fetch.home, fetch.tree)
        os.unlink(os.path.join(fetch.tree, ".baton.json"))
        self.hub.asked = []
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.hub.files_asked(), [])
        os.mkdir(fetch.staging)
        os.rename(fetch.home, fetch.old)
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.hub.files_asked(), [])
        self.assertEqual(self.read("Tiny-Q4_K_M", "Tiny-Q4_K_M.gguf"), MODEL)

    def test_list_and_rm(self):
        self.assertIn("no models in", self.command(models_command, "list")[2])
        with open(os.path.join(self.folder, "mine.gguf"), "wb") as f:
            f.write(OTHER)
        for name in ("two", "none", "by-hand"):
            os.mkdir(os.path.join(self.folder, name))
        for name in ("two/a.gguf", "two/b.gguf", "by-hand/config.json"):
            with open(os.path.join(self.folder, name), "wb") as f:
                f.write(b"{}")
        self.pulled("we/Tiny-GGUF:Q4_K_M")
        self.assertEqual(self.command(models_command, "list")[1].splitlines(),
                         ["NAME             SIZE  KIND          FROM",
                          "by-hand       2 bytes  folder        -",
                          "mine         250.0 kB  llama Q8_0    -",
                          "Tiny-Q4_K_M  300.0 kB  llama Q4_K_M  we/Tiny-GGUF:Q4_K_M"])
        status, out, _ = self.command(models_command, "rm", "mine", "we/Tiny-GGUF:Q4_K_M")
        self.assertEqual((status, out), (0, "mine is removed: 250.0 kB\nTiny-Q4_K_M is removed: 300.0 kB\n"))
        for name, pattern in (("by-hand", "was not pulled by Baton"), ("by-hard", "did you mean by-hand"), ("..", "no model"),
                              ("two", "no model"), ("../" + os.path.basename(self.folder), "no model")):
            status, _, err = self.command(models_command, "rm", name)
            self.assertEqual(status, 1)
            self.assertIn(pattern, err)
        self.assertEqual(self.entries(), ["by-hand", "none", "two"])

    def test_damaged_model_headers_are_listed(self):
        for n in (0, 3, 12, 24, 40, 70, 100):
            path = os.path.join(self.folder, "x.gguf")
            with open(path, "wb") as f:
                f.write(MODEL[:n] + b"\xff" * 16)
            self.assertIsInstance(model_store.gguf_kind(path), str)


class ProgressTest(unittest.TestCase):
    def test_bar_on_a_terminal(self):
        master, slave = pty.openpty()
        now = [0.0]
        with os.fdopen(slave, "w", encoding="utf-8") as stream:
            bar = progress.Progress("m", 1000000000, 250000000, stream, lambda: now[0])
            now[0] = 10.0
            bar.add(250000000)
            bar.end()
        with os.fdopen(master, "rb", buffering=0) as f:
            text = f.read(4096).decode()
        # 250 MB in 10 s, 500 MB are left: 20 s
        self.assertIn("\r\x1b[Km [############............]  50 %  500.0 MB of 1.0 GB, 25.0 MB/s, 0:20 left", text)

    def test_sizes_and_times(self):
        self.assertEqual([progress.size_text(n) for n in (999, 1000, 98362432, 999950000, 4 * 10**12)],
                         ["999 bytes", "1.0 kB", "98.4 MB", "1.0 GB", "4.0 TB"])
        self.assertEqual([progress.time_text(s) for s in (3, 59.6, 754, 3723)], ["0:03", "1:00", "12:34", "1:02:03"])


if __name__ == "__main__":
    unittest.main()
