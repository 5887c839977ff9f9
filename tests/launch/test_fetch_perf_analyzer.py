#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""setup/fetch_perf_analyzer.py without a network: who is told that it cannot be had, and what apt is asked."""
import contextlib
import os
import shutil
import sys
import tempfile
import unittest
from unittest import mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "setup"))
sys.dont_write_bytecode = True
import fetch_clients  # noqa: E402
import fetch_perf_analyzer  # noqa: E402

# The program that the wheel has: it does not start here, as with an older glibc.
PROGRAM = "#!/bin/sh\nexit 1\n"
# apt-get: writes down what it is asked, and the private sources; its packages are empty files.
APT = """#!/bin/sh
printf '%s\\n' "$*" >>"$ASKED"
case $* in
indextargets*) [ -n "$NO_LISTS" ] || echo http://mirror.example/debian/ ;;
*--print-uris*) printf "'%s' x 0\\n" http://others.example/dists/bookworm/InRelease http://mirror.example/debian/dists/bookworm/InRelease \\
    http://mirror.example/debian/dists/bookworm-updates/InRelease ;;
*\\ update*) cat "$(dirname "$3")/sources.list" >>"$ASKED"; ! grep -q others "$(dirname "$3")/sources.list" ;;
*\\ download*) for name in libc6 libgcc-s1; do : >"$name.deb"; done ;;
esac
"""
# dpkg-deb -x PACKAGE ROOT: a loader that starts what it is given.
DPKG = """#!/bin/sh
mkdir -p "$3/usr/lib/x86_64-linux-gnu"
printf '#!/bin/sh\\nexit 0\\n' >"$3/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
chmod +x "$3/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"
"""


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


class FetchPerfAnalyzerTest(unittest.TestCase):
    def setUp(self):
        self.cache = tempfile.mkdtemp(prefix="bt-cache-")
        self.addCleanup(shutil.rmtree, self.cache)
        programs = os.path.join(self.cache, "programs")
        os.mkdir(programs)
        write(os.path.join(programs, "apt-get"), APT)
        write(os.path.join(programs, "dpkg-deb"), DPKG)
        self.asked = os.path.join(self.cache, "asked")

        def fetch_program(_where, folder):
            program = os.path.join(folder, "bin", "perf_analyzer")
            os.makedirs(os.path.dirname(program))
            write(program, PROGRAM)
            return program
        for patch in (mock.patch.object(fetch_perf_analyzer, "fetch_program", fetch_program),
                      mock.patch.object(fetch_perf_analyzer, "KEYRING", os.path.join(programs, "apt-get")),
                      mock.patch.object(os, "uname", lambda: mock.Mock(machine="x86_64")),
                      mock.patch.dict(os.environ, {"PATH": programs + os.pathsep + os.environ["PATH"], "ASKED": self.asked})):
            patch.start()
            self.addCleanup(patch.stop)

    def ensure(self, distribution="debian", **options):
        with open(os.devnull, "w", encoding="utf-8") as quiet, contextlib.redirect_stderr(quiet), \
                mock.patch.object(fetch_perf_analyzer, "system", lambda: (distribution, "bookworm")):
            return fetch_perf_analyzer.ensure(self.cache, **options)

    def test_debians_mirror_is_asked_for_the_newer_glibc_once(self):
        program = self.ensure()
        with open(self.asked, encoding="utf-8") as file:
            asked = file.read()
        self.assertIn("Origin: Debian Codename: bookworm", asked)
        self.assertRegex(asked, r"deb \[signed-by=\S+\] http://mirror.example/debian/ trixie main\n")
        self.assertIn("download libc6 libstdc++6 libgcc-s1", asked)
        self.assertTrue(fetch_perf_analyzer.runs(program), "started by the loader that was unpacked")
        self.assertEqual(self.ensure(may_install=False), program)
        with open(self.asked, encoding="utf-8") as file:
            self.assertEqual(file.read(), asked)

    def test_before_apt_has_lists_the_mirrors_of_this_release_are_tried_in_turn(self):
        with mock.patch.dict(os.environ, {"NO_LISTS": "1"}):
            self.assertTrue(fetch_perf_analyzer.runs(self.ensure()))
        with open(self.asked, encoding="utf-8") as file:
            tried = [line.split()[2] for line in file if line.startswith("deb ")]
        self.assertEqual(tried, ["http://others.example/", "http://mirror.example/debian/"])

    def test_who_cannot_have_it_is_told_why(self):
        with self.assertRaisesRegex(fetch_clients.CannotInstall, "is not there"):
            self.ensure(may_install=False)
        with self.assertRaisesRegex(fetch_clients.CannotInstall, "only on Debian"):
            self.ensure("other")
        with mock.patch.object(os, "uname", lambda: mock.Mock(machine="aarch64")), \
                self.assertRaisesRegex(fetch_clients.CannotInstall, "this processor"):
            self.ensure()
        write(os.path.join(self.cache, "programs", "apt-get"), "#!/bin/sh\nexit 100\n")
        with self.assertRaisesRegex(fetch_clients.CannotInstall, "no mirror"):
            self.ensure()


if __name__ == "__main__":
    unittest.main()
