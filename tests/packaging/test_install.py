# SPDX-License-Identifier: Apache-2.0
"""What `meson install` puts somewhere runs from there, without this tree: its commands, a server, what shells and systemd read."""
import glob
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from confined import settings
from installed import BUILD, ROOT, Home, Server, hidden, install, prefix, small_model, tiny_model

PYTHON = ["ask", "batch", "key", "load-test", "pull", "list", "rm"]
HERE = os.path.dirname(os.path.abspath(__file__))


def commands_of(script_help):
    return set(re.findall(r"^  (?:\./)?baton ([a-z-]+)", script_help, re.M))


def options_of(text):
    return set(re.findall(r"^  (--[a-z][a-z0-9-]*)", text, re.M))


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="bt-install-")
        cls.addClassCleanup(shutil.rmtree, cls.dir)
        cls.prefix = install(cls.dir)
        cls.configured = prefix()
        cls.sysconf = "/etc" if cls.configured == "/usr" else cls.configured + "/etc"
        cls.baton = os.path.join(cls.prefix, "bin/baton")
        cls.unit = os.path.join(cls.prefix, "lib/systemd/system/baton.service")
        cls.model = small_model(cls.dir)

    def setUp(self):
        self.home = Home()
        self.addCleanup(self.home.remove)

    def run_baton(self, *words, **more):
        return self.home.run(self.baton, *words, **more)

    def test_server_answers_and_stops(self):
        with Server(self.home, hidden([self.baton, "serve"]), self.model) as server:
            self.assertTrue(self.run_baton("ask", "Hello", "--max-tokens", "8", BATON_HTTP=server.http))
            here = ("--run-dir", server.run_dir())  # others may run launchers
            self.assertIn('"http":"%s"' % server.http, self.run_baton("status", "--json", *here))
            self.run_baton("restart", "decode-0", *here)
            self.assertRegex(self.run_baton("status", *here), r"(?m)^decode-0 +decode +\S+ +ready ")
            self.assertIn("decode-0", self.run_baton("status", "--url", f"http://{server.http}"))
            self.assertIn("decode-0", self.run_baton("top", "--once", "--url", f"http://{server.http}"))
            self.assertIn("4 answered, 0 refused", self.run_baton("load-test", "--requests", "4", "--concurrency", "2", "--output-tokens", "4",
                                                    "--prompt-tokens", "8", "--url", f"http://{server.http}/v1"))
            health = os.path.join(self.prefix, "libexec/baton/baton-health")
            self.home.run(health, BATON_HTTP=server.http)
            self.home.run(health, server.metrics, "decode-0")
            self.home.run(health, server.metrics, "decode-1", status=1)
            self.assertEqual(server.stop(), 0)
            # Who restarts it may be heard of before its router's word, or after.
            warnings = [line for line in server.log().splitlines() if " warn " in line and "the KV path to decode-0 is lost" not in line]
            self.assertEqual(warnings, [])
            self.assertIn(f'\n  BATON_URL={server.http} baton ask "', server.log())
            self.assertIn("KV goes to decode-0 by shm", server.log())
        self.run_baton("status", *here, status=1)

    def test_server_runs_under_the_service_restrictions(self):
        """As systemd starts it: with its filters of system calls, and told when it is ready."""
        try:
            subprocess.run(["systemd-analyze", "--version"], stdout=subprocess.DEVNULL, check=True)
        except FileNotFoundError:
            self.skipTest("no systemd-analyze to say what its sets of calls are")
        path = os.path.join(self.home.dir, "notify")
        confined = [sys.executable, os.path.join(HERE, "confined.py"), self.unit]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(60)
            with Server(self.home, [*confined, self.baton, "serve"], self.model, NOTIFY_SOCKET=path) as server:
                heard = ""
                while "READY=1" not in heard:
                    heard = manager.recv(4096).decode()
                self.assertTrue(self.run_baton("ask", "Hello", "--max-tokens", "8", BATON_HTTP=server.http))
                self.assertEqual(server.stop(), 0)
                self.assertNotRegex(server.log(), " warn | error |UCX")
                self.assertIn("KV goes to decode-0 by shm", server.log())
        # And they hold: such a process has no other kind of socket, and none of these calls.
        for forbidden in ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "os.chroot('/')", "os.setuid(1)"):
            done = subprocess.run([*confined, sys.executable, "-c", f"import os, socket\n{forbidden}"], cwd=self.home.dir,
                                  stderr=subprocess.PIPE, text=True, check=False)
            self.assertIn("PermissionError", done.stderr, forbidden)

    def test_missing_default_model_is_fetched_or_explained(self):
        with socket.socket() as s:  # nobody listens
            s.bind(("127.0.0.1", 0))
            index = f"http://127.0.0.1:{s.getsockname()[1]}/simple"
            said = self.run_baton("serve", status=1, PIP_INDEX_URL=index, BATON_FETCH_PAUSE_S="0", PIP_RETRIES="0")
        self.assertIn("cannot fetch the default model", said)
        self.assertIn("--model PATH", said)
        # It needs no compiler, package manager or git for that: none of them is asked for.
        self.assertNotRegex(said, "apt-get|git|gcc|built")

    def test_commands_are_those_of_the_source_tree_without_its_own(self):
        tree = subprocess.run([os.path.join(ROOT, "baton"), "help"], stdout=subprocess.PIPE, text=True, check=True).stdout
        here = self.run_baton("help")
        self.assertEqual(commands_of(tree) - commands_of(here), {"test", "bench", "package"})
        self.assertNotIn("./baton", here)
        self.assertEqual(self.run_baton("sreve", status=1),
                         "baton: no command 'sreve'; did you mean serve?\nSee baton help.\n")
        self.assertIn("no command 'bench'", self.run_baton("bench", status=1))
        for command in (*PYTHON, "serve", "check", "doctor", "top", "status", "drain", "convert", "accuracy"):
            text = self.run_baton(command, "--help")
            self.assertIn("--", text, command)
            self.assertNotIn("./baton", text, command)
        for words in (("serve", "none/none"), ("ask",), ("list",), ("pull", "none"), ("serve", "--http", "0.0.0.0:0")):
            done = subprocess.run([self.baton, *words], env=self.home.environment, cwd=self.home.dir, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertRegex(done.stdout, "baton (pull|ask|list|key|serve)|nobody answers", words)
            self.assertNotIn("./baton", done.stdout, words)
        self.assertIn("undrain is for a cluster", self.run_baton("undrain", "x", status=1))

    def test_tools_work_on_model_files(self):
        model, new = tiny_model(self.home.dir, layers=1, dim=64, heads=4, kv_heads=2, ffn=128, context=512, seed=1), self.home.dir + "/new.gguf"
        self.run_baton("convert", model, new, "--type", "q8_0")
        self.assertIn("perplexity", self.run_baton("accuracy", model, new).lower())
        self.assertRegex(self.run_baton("key", "new", "shop"), r"\Abaton-\S{43}\n\Z")
        self.assertRegex(self.run_baton("list", "--models-dir", self.home.dir), r"(?m)^new +\S")
        self.assertIn("smollm2-135m", self.run_baton("list", "--known"))

    def test_version_tells_how_it_was_built(self):
        first, *more = self.run_baton("version").splitlines()
        with open(os.path.join(ROOT, "meson.build"), encoding="utf-8") as f:
            number = re.search(r"version: '([^']*)'", f.read()).group(1)
        self.assertRegex(first, rf"\Abaton {re.escape(number)}( \([0-9a-f]{{12}}(-dirty)?\))?\Z")
        told = dict(line.split(maxsplit=1) for line in more)
        self.assertEqual(list(told), ["build", "kernels", "libraries"])
        self.assertRegex(told["build"], r"\A(debugoptimized|debug|release), (gcc|clang) [0-9.]+, linux \S+\Z")
        tiers = "plain, avx2, avx512" if os.uname().machine == "x86_64" else "plain"
        self.assertRegex(told["kernels"], rf"\A{tiers}; back ends: cpu(, cuda)?\Z")
        for package, title in (("ucx", "UCX"), ("ompi-c", "Open MPI"), ("openssl", "OpenSSL"), ("libsodium", "libsodium")):
            found = subprocess.run(["pkg-config", "--modversion", package], stdout=subprocess.PIPE, text=True, check=True)
            self.assertIn(f"{title} {found.stdout.strip()},", told["libraries"] + ",")
        with open("/usr/include/nng/nng.h", encoding="utf-8") as f:
            parts = re.findall(r"#define NNG_(?:MAJOR|MINOR|PATCH)_VERSION +(\d+)", f.read())
        self.assertIn(f"nng {'.'.join(parts)},", told["libraries"])
        self.assertEqual(self.run_baton("--version"), self.run_baton("serve", "--version"))

    def test_every_file_has_a_place_and_none_leads_back(self):
        found = {os.path.relpath(os.path.join(folder, name), self.prefix)
                 for folder, _, names in os.walk(self.prefix) for name in names}
        self.assertFalse([path for path in found if "__pycache__" in path])
        self.assertEqual({path for path in found if path.startswith("bin/")}, {"bin/baton", "bin/baton-launch"})
        programs = {"libexec/baton/baton-" + name for name in
                    ("router", "prefill-worker", "decode-worker", "orchestrator", "convert", "accuracy", "health")}
        self.assertEqual({path for path in found if path.startswith("libexec/")} - {"libexec/baton/baton_cuda.so"}, programs)
        for source, target in (("tools/cli/*.py", "share/baton/tools/cli"), ("tools/cli/*.txt", "share/baton/tools/cli"), ("slurm/*", "share/baton/slurm"),
                               ("examples/*.*", "share/baton/examples"),
                               ("packaging/observability/*.yml", "share/baton/observability"), ("docs/*.md", "share/doc/baton/docs"),
                               ("docs/man/*.1", "share/man/man1"), ("docs/man/*.5", "share/man/man5"),
                               ("LICENSE", "share/doc/baton"), ("README.md", "share/doc/baton")):
            for path in glob.glob(os.path.join(ROOT, source)):
                self.assertIn(os.path.join(target, os.path.basename(path)), found)
        for path in found:
            with open(os.path.join(self.prefix, path), "rb") as f:
                content = f.read()
            if content[:4] != b"\x7fELF":
                for tree in (ROOT, os.path.abspath(BUILD)):
                    self.assertNotIn(tree.encode(), content, path)

    def test_programs_in_libexec_are_found_by_jobs_and_examples(self):
        script = os.path.join(self.prefix, "share/baton/examples/mpirun.sh")
        self.assertIn("there is no model", self.home.run(script, "none.gguf", status=2))
        said = self.home.run("bash", "-c", "set -u; die() { echo \"$*\"; exit 1; }; SLURM_SUBMIT_DIR=/nowhere\n"
                             f". {shlex.quote(self.prefix)}/share/baton/slurm/steps.bash; find_programs; printf '%s\\n' "
                             "\"$router_program\" \"$prefill_program\" \"$decode_program\"")
        for path in said.splitlines():
            self.assertTrue(os.access(path, os.X_OK), path)
        self.assertEqual(len(said.splitlines()), 3)
        launch = os.path.join(self.prefix, "share/baton/examples/launch_triton_server.py")
        said = "".join(self.home.run(sys.executable, launch, "--help").split())  # argparse breaks lines within words
        self.assertIn("".join(os.path.join(self.prefix, "bin/baton").split()), said)

    def test_bash_completes_commands_options_and_values(self):
        path = os.path.join(self.prefix, "share/bash-completion/completions/baton.bash")

        def complete(*words):
            script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _baton; '
                      'printf "%s\\n" "${COMPREPLY[@]}"')
            return set(self.home.run("bash", "-c", script, "-", path, *words).split())

        self.assertIn("-F _baton baton", self.home.run("bash", "-c", f". {shlex.quote(path)}; complete -p baton"))
        self.assertEqual(complete("baton", "s"), {"serve", "status", "start", "stop"})
        text = self.run_baton("help")
        self.assertEqual(commands_of(text) - complete("baton", ""), set())
        self.assertEqual({word for word in complete("baton", "") if not re.search(rf"\b{word}\b", text)}, set())
        listed = options_of(self.run_baton("serve", "--help-all"))
        self.assertEqual(complete("baton", "serve", "--"), listed | {"--help", "--help-all", "--version"})
        self.assertEqual(complete("baton", "check", "--"), complete("baton", "serve", "--"))
        self.assertEqual(complete("baton", "serve", "--kv"), {option for option in listed if option.startswith("--kv")})
        for words in (("--kv-dtype", ""), ("--kv-dtype", "=", ""), ("--kv-dtype", "=")):
            self.assertEqual(complete(self.baton, "serve", *words), {"bf16", "f16", "int8", "fp8"})
        self.assertEqual(complete("baton", "serve", "--kv-memory", ""), set())
        with open(os.path.join(self.home.dir, "some.pem"), "w", encoding="ascii"):
            pass
        self.assertEqual(complete("baton", "serve", "--tls-cert", "so"), {"some.pem"})
        self.assertEqual(complete("baton", "serve", "--log-dir", "so"), set())
        self.assertIn("--max-tokens", complete(self.baton, "ask", "--m"))
        self.assertEqual(complete("baton", "role", "decode-0", "p"), {"prefill"})

    def test_zsh_completes_the_same(self):
        path = os.path.join(self.prefix, "share/zsh/site-functions/_baton")
        if shutil.which("zsh", path="/usr/bin:/bin") is None:
            self.skipTest("no zsh")
        self.home.run("zsh", "-n", path)
        # What the completion system would be told, by functions in its place.
        script = ('compdef() { }; _arguments() { print -rl -- "$@" }; _files() { print files }\n'
                  'compadd() { shift; print -rl -- "$@" }\n. "$1"; shift; words=("$@"); CURRENT=$#; _baton')

        def complete(*words):
            return self.home.run("zsh", "-f", "-c", script, "-", path, *words).splitlines()

        self.assertIn("serve", complete("baton", ""))
        found = complete("baton", "serve", "")
        options = set(re.findall(r"^\*?(--[a-z0-9-]+)", "\n".join(found), re.M))
        self.assertEqual(options, options_of(self.run_baton("serve", "--help-all")) | {"--help", "--help-all", "--version"})
        kv_type = next(line for line in found if line.startswith("--kv-dtype="))
        self.assertTrue(kv_type.endswith(":NAME:(bf16 f16 int8 fp8)"), kv_type)
        self.assertTrue(next(line for line in found if line.startswith("--tls-cert=")).endswith(":FILE:_files"))
        self.assertIn("--max-tokens", complete(self.baton, "ask", "--m"))
        self.assertEqual(complete("baton", "role", "x", ""), ["prefill", "decode", "both"])

    def test_systemd_understands_the_unit(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("no systemd-analyze")
        unit = os.path.join(self.home.dir, "baton.service")
        with open(self.unit, encoding="utf-8") as f:
            text = f.read()
        start = f"ExecStart={self.configured}/bin/baton serve --config {self.sysconf}/baton/baton.conf"
        self.assertIn(f"\n{start}\n", text)
        with open(unit, "w", encoding="utf-8") as f:
            f.write(text.replace(start, f"ExecStart=\"{self.baton}\" serve").replace("/bin/kill", shutil.which("true")))
        done = subprocess.run(["systemd-analyze", "--man=no", "verify", unit], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        # A machine without systemd's own units cannot say more.
        said = [line for line in done.stdout.splitlines() if "Unit sysinit.target not found" not in line]
        self.assertEqual(said, [])
        done = subprocess.run(["systemd-analyze", "security", "--offline=true", unit], stdout=subprocess.PIPE, text=True,
                              env=dict(os.environ, SYSTEMD_COLORS="0"), check=False)
        print(done.stdout.strip().splitlines()[-1])
        exposure = float(re.search(r"exposure level for baton.service: ([0-9.]+)", done.stdout).group(1))
        self.assertLess(exposure, 2.5)

    def test_service_waits_as_long_as_stopping_takes(self):
        unit = settings(self.unit)
        defaults = dict(re.findall(r"--(lame-duck-ms|drain-ms|watchdog-ms) MS\n(?:      .*\n)*?.*\(default\s+(\d+)",
                                   self.run_baton("serve", "--help-all")))
        self.assertEqual(len(defaults), 3)
        least = (int(defaults["lame-duck-ms"]) + int(defaults["drain-ms"])) / 1000
        self.assertGreater(int(unit["TimeoutStopSec"][0]), least + 12)
        self.assertGreater(int(unit["WatchdogSec"][0]), int(defaults["watchdog-ms"]) / 1000)
        self.assertEqual(unit["RestartPreventExitStatus"], ["2 78"])  # BT_EXIT_USAGE, BT_EXIT_CONFIG
        self.home.run(os.path.join(self.prefix, "bin/baton-launch"), "--print-model", "--config",
                      self.prefix.removesuffix(self.configured) + self.sysconf + "/baton/baton.conf")


if __name__ == "__main__":
    unittest.main()
