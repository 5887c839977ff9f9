#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `baton test` prints of its stages, and how it comes to the clients."""
import contextlib
import glob
import http.server
import io
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "setup"))

import fetch_clients  # noqa: E402
import fetch_model  # noqa: E402


class EmptyIndex(http.server.BaseHTTPRequestHandler):
    """A package index that has nothing."""

    def log_message(self, *_arguments):
        pass

    def do_GET(self):
        self.send_error(404)


class FetchClientsTest(unittest.TestCase):
    def setUp(self):
        self.cache = tempfile.mkdtemp(prefix="bt-cache-")
        self.addCleanup(shutil.rmtree, self.cache)
        self.listed = os.path.join(self.cache, "list.txt")
        self.write_list("nobody-has-this==1")
        self.installed = []

    def write_list(self, text):
        with open(self.listed, "w") as file:
            file.write(text)

    def ensure(self, **more):
        """@return the Python, and the folders installed into by a fake."""
        def fake_install(folder, _listed):
            self.assertFalse(os.path.exists(folder))
            self.installed.append(folder)
            os.makedirs(os.path.join(folder, "bin"))
            os.symlink(sys.executable, os.path.join(folder, "bin", "python"))

        with mock.patch.object(fetch_clients, "install", fake_install), \
                contextlib.redirect_stderr(io.StringIO()):
            return fetch_clients.ensure(self.cache, self.listed, **more)

    def test_the_second_run_installs_nothing(self):
        python = self.ensure()
        self.assertEqual(self.ensure(may_install=False), python)
        self.assertEqual(self.installed,
                         [os.path.dirname(os.path.dirname(python))])

    def test_another_list_has_a_folder_of_its_own(self):
        first = self.ensure()
        self.write_list("nobody-has-this==2")
        self.assertNotEqual(self.ensure(), first)
        self.write_list("nobody-has-this==1")
        self.assertEqual(self.ensure(), first)
        self.assertEqual(len(self.installed), 2)

    def test_an_installation_that_was_cut_off_begins_anew(self):
        folder = fetch_clients.environment(self.cache, self.listed)
        os.makedirs(os.path.join(folder, "bin"))
        os.symlink(sys.executable, os.path.join(folder, "bin", "python"))
        self.ensure()
        self.assertEqual(self.installed, [folder])

    def test_where_nothing_may_be_installed_it_is_said(self):
        with self.assertRaisesRegex(fetch_clients.CannotInstall,
                                    "not installed"):
            self.ensure(may_install=False)
        self.assertEqual(self.installed, [])

    def install_from(self, port):
        """With pip itself. @return what it raised."""
        env = {"PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple",
               "PIP_CONFIG_FILE": os.devnull, "no_proxy": "127.0.0.1"}
        # pip's own words go to the standard error of this process.
        with mock.patch.dict(os.environ, env), \
                mock.patch.object(sys, "stdout", sys.__stderr__), \
                self.assertRaises(Exception) as raised:
            fetch_clients.ensure(self.cache, self.listed)
        return raised.exception

    def test_an_index_that_cannot_be_reached_is_not_a_bad_list(self):
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0),
                                             EmptyIndex) as server:
            thread = threading.Thread(target=server.serve_forever,
                                      kwargs={"poll_interval": 0.01})
            thread.start()
            port = server.server_port
            raised = self.install_from(port)
            server.shutdown()
            thread.join()
        self.assertIsInstance(raised, fetch_model.FetchError)
        self.assertIn("could not be installed", str(raised))
        raised = self.install_from(port)  # nobody listens any more
        self.assertIsInstance(raised, fetch_clients.CannotInstall)
        self.assertIn("package index cannot be reached", str(raised))

    def test_all_clients_have_a_version(self):
        with open(fetch_clients.LIST) as file:
            lines = [line.strip() for line in file
                     if line.strip() and not line.startswith("#")]
        self.assertGreater(len(lines), 5)
        for line in lines:
            self.assertRegex(line, r"^[A-Za-z0-9._-]+==[0-9][0-9.]*$")


class StagesTest(unittest.TestCase):
    """`baton test` with stages that only count."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="bt-stages-")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_stages(self, script, *arguments, **environment):
        """@return exit status, lines of standard output, standard error."""
        env = {k: v for k, v in os.environ.items() if k != "CI" and not k.startswith("BATON_TEST_")}
        text = (f"set -euo pipefail; root={ROOT}; . {ROOT}/setup/common.sh\n"
                f"build={self.folder}; assume_yes=no; no_install=no\n"
                f". {ROOT}/setup/test.sh\n"
                "ensure_packages() { :; }; fetch_model() { echo /m; }; fetch_gemma() { :; }\n"
                f"{script}\ntest_main \"$@\"\n")
        done = subprocess.run(["bash", "-c", text, "baton", *arguments],
                              env=dict(env, **environment), text=True,
                              capture_output=True, timeout=60, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def test_a_table_tells_what_each_stage_took_of_its_budget(self):
        status, lines, said = self.run_stages(
            "budgets[lint]=30; budgets[gcc]=100\n"
            "stage_lint() { add 2 0 1; }\n"
            "stage_gcc() { add 5 0 0; SECONDS=$((SECONDS + 101)); }",
            "lint", "gcc")
        self.assertEqual(status, 0, said)  # late is no failure
        table = [line.split() for line in lines]
        self.assertEqual(table[0], ["stage", "passed", "failed", "skipped",
                                    "seconds", "budget"])
        self.assertEqual(table[1][:4] + table[1][5:],
                         ["lint", "2", "0", "1", "30"])
        self.assertEqual(table[2][:4] + table[2][5:],
                         ["gcc", "5", "0", "0", "100"])
        self.assertGreaterEqual(int(table[2][4]), 101)
        self.assertRegex(lines[3],
                         "^warning: gcc took 10[1-9] s, its budget is 100 s$")
        self.assertEqual(table[4][:4] + table[4][5:],
                         ["whole", "7", "0", "1", "130"])
        self.assertEqual(lines[-1], "7 passed, 0 failed, 1 skipped")
        self.assertEqual(len(lines), 6)

    def test_failures_are_told_again_with_their_errors_before_the_table(self):
        with open(os.path.join(self.folder, "unit.txt"), "w") as file:
            file.write("ok a: first\nnot ok a: second\n--- a: FAIL, exit status 1\n"
                       "    [ RUN      ] second\n    [  ERROR   ] --- 0x1 != 0x2\n"
                       "    [   LINE   ] --- ../a.c:7: error: Failure!\n1 passed, 1 failed, 0 skipped\n")
        with open(os.path.join(self.folder, "client.log"), "w") as file:
            file.write("Traceback (most recent call last):\n  File \"a.py\"\nAssertionError: 3\nnot ok test_b (0.1 s)\n"
                       "ok test_c (0.2 s)\n1 passed, 1 failed, 0 skipped\n")
        with open(os.path.join(self.folder, "well.log"), "w") as file:
            file.write("KeyError: of a program that has it printed\n1 passed, 0 failed, 0 skipped\n")
        status, lines, said = self.run_stages(
            "stage_gcc() { add_log $build/unit.txt; check build-x $build/x.log false || true; }\n"
            "stage_clients() { add_printed client; add_printed well; }\nlogs=$build", "gcc", "clients")
        self.assertEqual(status, 1, said)
        self.assertEqual(lines[:8], [
            "failed:", "not ok a: second", "    [  ERROR   ] --- 0x1 != 0x2",
            "    [   LINE   ] --- ../a.c:7: error: Failure!", "not ok build-x", "AssertionError: 3",
            "not ok test_b (0.1 s)", lines[7]])
        self.assertEqual(lines[7].split()[:2], ["stage", "passed"])
        self.assertEqual(lines[-1], "3 passed, 3 failed, 0 skipped")

    def test_every_stage_has_a_budget_and_the_whole_is_30_minutes(self):
        status, lines, said = self.run_stages(
            'for stage in "${stages[@]}"; do\n'
            '    eval "stage_$stage() { add 1 0 0; }"\ndone')
        self.assertEqual(status, 0, said)
        table = [line.split() for line in lines[1:-1]]
        self.assertTrue(all(int(row[5]) > 0 for row in table), table)
        self.assertEqual(table[-1][0], "whole")
        self.assertEqual(int(table[-1][5]),
                         sum(int(row[5]) for row in table[:-1]))
        self.assertLessEqual(int(table[-1][5]), 30 * 60)

    def test_tests_by_name_have_no_budget(self):
        status, lines, _ = self.run_stages("stage_named() { add 1 1 0; }",
                                           "first_prompt")
        self.assertEqual(status, 1)
        self.assertEqual(lines[1].split()[:4], ["named", "1", "1", "0"])
        self.assertEqual(lines[1].split()[5], "-")
        self.assertEqual(lines[-1], "1 passed, 1 failed, 0 skipped")

    NAMED = ("ensure_packages() { basename -a \"$@\" >>$build/asked; }\n"
             "fetch_model() { echo model >>$build/asked; }\n"
             "set_up_gcc() { :; }; find_targets() { wanted=(target); }\n"
             "compile() { echo \"compile $*\" >>$build/asked; add 1 0 0; }\n"
             "run_meson() { echo \"run $*\" >>$build/asked; add 3 0 0; }\n"
             "python3() { case $2 in names) echo $TESTS ;; suites) echo $SUITE ;; esac; }\n")

    def test_a_named_test_installs_and_fetches_what_its_suite_needs_alone(self):
        base = ["packages.txt", "packages-unit.txt"]
        for word, name, suite, more in (
                ("stops", "stops", "unit", []), ("router/text/stops.c", "stops", "unit", []),
                ("test_stops", "stops", "unit", []), ("tests/unit/common/wire/test_wire.c", "wire", "unit", []),
                ("accuracy_ranks", "accuracy_ranks", "accuracy", ["model"]),
                ("replay_http1", "replay_http1", "setup", [*base, "packages-test.txt", "model"])):
            status, lines, said = self.run_stages(self.NAMED, word, TESTS=name, SUITE=suite)
            self.assertEqual((status, lines[-1]), (0, "3 passed, 0 failed, 0 skipped"), (word, said))
            with open(os.path.join(self.folder, "asked"), encoding="utf-8") as file:
                self.assertEqual(file.read().splitlines(),
                                 [*base, *more, "compile gcc target", f"run gcc named {name}"], word)
            os.remove(os.path.join(self.folder, "asked"))

    def test_a_source_without_a_test_of_its_name_is_named(self):
        status, _, said = self.run_stages(self.NAMED, "setup/fetch_model.py")
        self.assertEqual((status, said), (1, "baton: no test is named after setup/fetch_model.py\n"))

    CLIENTS = ("add 1 0 0\nfind_python() { echo fetch; }\n"
               "fetch() { echo pip says; echo no index >&2; return 3; }")

    def test_clients_that_cannot_be_installed_are_skipped_and_said(self):
        n = 0
        for path in glob.glob(os.path.join(ROOT, "tests/clients/test_*.py")):
            with open(path, encoding="utf-8") as file:
                n += file.read().count("\ndef test_")
        status, lines, said = self.run_stages(self.CLIENTS, "clients")
        self.assertEqual((status, lines[-1]),
                         (0, f"1 passed, 0 failed, {n} skipped"))
        self.assertIn("skip clients: no index\n", said)

    def test_a_build_machine_must_have_the_clients(self):
        status, lines, said = self.run_stages(self.CLIENTS, "clients",
                                              CI="true")
        self.assertEqual((status, lines[-1]),
                         (1, "1 passed, 1 failed, 0 skipped"))
        self.assertIn("not ok install-clients:\nno index\n", said)


if __name__ == "__main__":
    unittest.main()
