# SPDX-License-Identifier: Apache-2.0
"""The Debian package: what it has, that a server of it runs, and, in a long run, its life on a bare machine."""
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from installed import BUILD, ROOT, Home, Server, hidden, prefix, small_model

HERE = os.path.dirname(os.path.abspath(__file__))
CANNOT = 77  # bare.sh


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


@unittest.skipUnless(shutil.which("dh"), "no debhelper")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if prefix() != "/usr":
            raise unittest.SkipTest("the build is not for /usr: meson configure BUILD --prefix=/usr")
        cls.dir = tempfile.mkdtemp(prefix="bt-deb-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.deb = output(os.path.join(ROOT, "packaging/deb.sh"), BUILD, os.path.join(cls.dir, "out")).strip()
        cls.model = small_model(cls.dir)

    def field(self, name):
        return output("dpkg-deb", "--field", self.deb, name).strip()

    def test_deb_passes_lintian(self):
        if shutil.which("lintian") is None:
            self.skipTest("no lintian")
        done = subprocess.run(["lintian", "--allow-root", self.deb], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual([line for line in done.stdout.splitlines() if re.match("[EW]: ", line)], [])

    def test_deb_depends_on_runtime_packages_only(self):
        names = {word.split()[0] for word in self.field("Depends").split(", ")}
        self.assertTrue({"libc6", "libnng1", "libopenmpi3", "libucx0", "libssl3", "python3"} <= names, names)
        self.assertFalse([name for name in names if re.search("-dev$|gcc|meson|ninja|git|pip", name)], names)

    def test_deb_names_its_cuda_support_and_recommends_the_model_fetcher(self):
        has_cuda = "baton_cuda.so" in output("dpkg-deb", "--contents", self.deb)
        self.assertIn("or on GPUs by CUDA" if has_cuda else "this package has no CUDA", " ".join(self.field("Description").split()))
        self.assertIn("python3-pip-whl", self.field("Recommends").split(", "))

    def test_later_commit_is_a_later_version(self):
        version = self.field("Version")
        self.assertRegex(version, r"\A[0-9.]+(\+[0-9]+\.g[0-9a-f.a-z]+)?\Z")
        number, _, rest = version.partition("+")
        if rest:
            count, _, commit = rest.partition(".")
            for earlier in (number, f"{number}+{int(count) - 1}.gffffffffffff"):
                subprocess.run(["dpkg", "--compare-versions", earlier, "lt", version], check=True)
            self.assertEqual(count, output("git", "-C", ROOT, "rev-list", "--count", "HEAD").strip())
            self.assertEqual(commit, "g" + output(os.path.join(ROOT, "setup/commit.sh")).strip().replace("-", "."))

    def test_deb_server_runs(self):
        home = Home()
        self.addCleanup(home.remove)
        tree = os.path.join(self.dir, "tree")
        subprocess.run(["dpkg-deb", "--extract", self.deb, tree], check=True)
        for path in ("etc/baton/baton.conf", "lib/systemd/system/baton.service", "usr/bin/baton", "usr/libexec/baton/baton-router",
                     "usr/share/man/man1/baton.1.gz", "usr/share/bash-completion/completions/baton.bash",
                     "usr/share/zsh/vendor-completions/_baton", "usr/share/doc/baton/copyright"):
            self.assertTrue(os.path.exists(os.path.join(tree, path)), path)
        self.assertEqual(output("dpkg-deb", "--info", self.deb, "conffiles"), "/etc/baton/baton.conf\n")
        baton = os.path.join(tree, "usr/bin/baton")
        with Server(home, hidden([baton, "serve"]), self.model) as server:
            self.assertTrue(home.run(baton, "ask", "Hello", "--max-tokens", "8", BATON_HTTP=server.http))
            self.assertEqual(server.stop(), 0)

    @unittest.skipUnless(os.environ.get("BATON_TEST_LONG"), "for --long: it downloads a Debian")
    def test_deb_installs_serves_and_purges_on_a_bare_machine(self):
        cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "baton-test", "debs")
        done = subprocess.run([os.path.join(HERE, "bare.sh"), self.deb, self.model, cache], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        print(done.stdout)
        if done.returncode == CANNOT and os.environ.get("CI") != "true":
            self.skipTest(done.stdout.strip().splitlines()[-1])
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
