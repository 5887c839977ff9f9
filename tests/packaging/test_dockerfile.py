# SPDX-License-Identifier: Apache-2.0
"""packaging/Dockerfile without Docker: what it copies, installs and starts is there. Its second stage is made in a folder, by
`meson install`, and its health check asks a server that is started as its entry point is."""
import fnmatch
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/integration"))

from harness import BUILD, free_port, small_model, wait_until  # noqa: E402
from installed import prefix  # noqa: E402


def instructions():
    """[(stage, instruction, rest)], continued lines joined."""
    out, stage = [], -1
    with open(os.path.join(ROOT, "packaging/Dockerfile"), encoding="utf-8") as f:
        text = re.sub(r"^#.*\n", "", f.read(), flags=re.M).replace("\\\n", " ")
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        if word:
            stage += word == "FROM"
            out.append((stage, word, " ".join(rest.split())))
    return out


INSTRUCTIONS = instructions()


def of(stage, word):
    return [rest for s, w, rest in INSTRUCTIONS if s == stage and w == word]


def listed_packages():
    with open(os.path.join(ROOT, "setup/packages.txt"), encoding="utf-8") as f:
        return [line.split()[0].split("|")[-1] for line in f if line.strip() and not line.startswith("#")]


def install(directory):
    """The build's install folder, as the second stage has it."""
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", directory], check=True,
                   stdout=subprocess.DEVNULL)
    return directory + prefix()


class Dockerfile(unittest.TestCase):
    def test_packages_to_build_with_are_those_of_setup(self):
        script = of(0, "RUN")[0]
        found = re.search(r"sed ('[^']*') /src/setup/packages\.txt", script)
        wanted = subprocess.run(["sed", shlex.split(found.group(1))[0], os.path.join(ROOT, "setup/packages.txt")],
                                stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        self.assertEqual(wanted, listed_packages())
        self.assertIn("setup/packages.txt /src/setup/", of(0, "COPY"))

    def test_dockerfile_copies_existing_files(self):
        with open(os.path.join(ROOT, ".dockerignore"), encoding="utf-8") as f:
            ignored = [line.strip() for line in f if line.strip() and not line.startswith("#")]
        for stage in (0, 1):
            for rest in of(stage, "COPY"):
                source = rest.split()[0]
                if source.startswith("--from"):
                    self.assertEqual(rest, "--from=build /out/usr/local /usr/local")
                    continue
                self.assertTrue(os.path.exists(os.path.join(ROOT, source)), source)
                for pattern in ignored:
                    self.assertFalse(fnmatch.fnmatch(source, pattern), f"{pattern} ignores {source}")
        tracked = subprocess.run(["git", "-C", ROOT, "ls-files"], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
        for path in tracked:
            top = path.split("/")[0]
            self.assertFalse(any(fnmatch.fnmatch(top, pattern) for pattern in ignored if pattern != "*.gguf"), path)

    def test_options_of_the_build_exist(self):
        with open(os.path.join(ROOT, "meson_options.txt"), encoding="utf-8") as f:
            own = set(re.findall(r"option\(\s*'(\w+)'", f.read()))
        options = re.findall(r"-D(\w+)=", " ".join(of(0, "RUN")))
        self.assertTrue(options)
        self.assertEqual(set(options) - own, {"buildtype"})

    def test_container_does_not_run_as_root(self):
        user = of(1, "USER")[-1]
        self.assertRegex(" ".join(of(1, "RUN")), rf"useradd .*--uid [1-9]\d+ .*\b{user}\b")
        order = [w for s, w, _ in INSTRUCTIONS if s == 1]
        self.assertLess(order.index("USER"), order.index("ENTRYPOINT"))

    def test_each_library_is_installed(self):
        """Those that a program is linked to, as far as the package that has it here."""
        if shutil.which("dpkg") is None:
            self.skipTest("no dpkg")
        runtime = set(re.search(r"apt-get install -y --no-install-recommends ([^&]*)", " ".join(of(1, "RUN"))).group(1).split())
        fields = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\\t${Priority}\\t${Pre-Depends}, ${Depends}\\n"], stdout=subprocess.PIPE,
                                text=True, check=True).stdout
        depends = {line.split("\t")[0]: re.findall(r"(?:^|[,|]\s*)([a-z0-9][a-z0-9.+-]+)", line.split("\t")[2])
                   for line in fields.split("\n") if line}
        priority = {line.split("\t")[0]: line.split("\t")[1] for line in fields.split("\n") if line}
        have, todo = set(), sorted(runtime | {p for p, v in priority.items() if v == "required"})
        while todo:
            package = todo.pop()
            if package not in have:
                have.add(package)
                todo += depends.get(package, [])
        self.assertTrue({"ca-certificates", "python3"} <= runtime, "for the commands in Python")
        for package in runtime:
            self.assertIn(package, depends, "this machine has it, since Baton was built here")
        with tempfile.TemporaryDirectory() as d:
            place = install(d)
            programs = [os.path.join(place, "bin/baton-launch"),
                        *glob.glob(os.path.join(place, "libexec/baton/baton-*[!h]"))]
            self.assertIn(os.path.join(place, "libexec/baton/baton-router"), programs)
            needed = subprocess.run(["readelf", "-d", *programs],
                                    stdout=subprocess.PIPE, text=True, check=True).stdout
            needed = sorted(set(re.findall(r"\(NEEDED\).*\[(.*)\]", needed)))
            self.assertIn("libnng.so.1", needed)
            owners = subprocess.run(["dpkg", "-S", *[f"*/{library}" for library in needed]], stdout=subprocess.PIPE, text=True,
                                    check=True).stdout
            for library in needed:
                packages = set(re.findall(rf"^([^:]+):.*/{re.escape(library)}$", owners, re.M))
                self.assertTrue(packages & have, f"{library} of {packages} is not installed")

    def test_entry_point_serves_and_the_health_check_sees_it(self):
        entry, check = json.loads(of(1, "ENTRYPOINT")[0]), of(1, "HEALTHCHECK")[0]
        health = json.loads(check[check.index("CMD ") + 4:])
        environment = dict(word.split("=") for word in of(1, "ENV")[0].split())
        self.assertEqual(sorted(value.split(":")[1] for value in environment.values()), of(1, "EXPOSE")[0].split())
        ports = {name: free_port() for name in environment}
        here = dict(os.environ, BATON_LAME_DUCK_MS="0", **{name: f"127.0.0.1:{port}" for name, port in ports.items()})
        with tempfile.TemporaryDirectory() as d:
            place = install(d)
            self.assertTrue(entry[0].startswith("/usr/local/"))
            health = [health[0].replace("/usr/local", place, 1)]
            self.assertNotEqual(subprocess.run(health, env=here, stderr=subprocess.DEVNULL, check=False).returncode, 0)
            with open(os.path.join(d, "log"), "wb") as log:
                server = subprocess.Popen(
                    [entry[0].replace("/usr/local", place, 1), "--model", small_model(d), "--kv-memory", "16m", "--insecure",
                     "--weight-cache", d], env=here, stdout=log, stderr=log)
            try:
                wait_until("it is healthy", lambda: server.poll() is not None or subprocess.run(
                    health, env=here, stderr=subprocess.DEVNULL, check=False).returncode == 0)
                with open(os.path.join(d, "log"), encoding="utf-8") as f:
                    self.assertIsNone(server.poll(), f.read())
            finally:
                server.terminate()
                self.assertEqual(server.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
