#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./baton accuracy and ./baton convert as programs: on a terminal, stopped, continued, refused.

BATON_BUILD names the build tree. A model of a few kilobytes and a text of its bytes.
"""
import os
import pty
import re
import select
import signal
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BATON_BUILD", os.path.join(ROOT, "build", "test-gcc"))
PATIENCE_S = 120  # against hanging only


def program(name):
    return os.path.join(BUILD, name)


class TestTargets(unittest.TestCase):
    def test_the_baton_script_finds_each_program_where_the_build_puts_it(self):
        """./baton accuracy once asked ninja for a target that had moved."""
        with open(os.path.join(ROOT, "setup/commands.sh"), encoding="utf-8") as f:
            tools = sorted(set(re.findall(r"\brun_tool (baton-\w+)", f.read())))
        self.assertEqual(tools, ["baton-accuracy", "baton-convert"])
        script = f"eval \"$(sed -n '/^target_of()/,/^}}/p' '{ROOT}/baton')\"; for name; do target_of \"$name\"; done"
        told = subprocess.run(["bash", "-c", script, "bash", *tools], check=True, capture_output=True, text=True).stdout.split()
        self.assertEqual([target for target in told if not os.access(program(target), os.X_OK)], [])
        self.assertEqual(len(told), len(tools))


class TestModelTools(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="baton-tools-")
        self.addCleanup(self.folder.cleanup)
        self.env = dict(os.environ, XDG_CACHE_HOME=self.at("cache"))

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def model(self, **options):
        path = self.at(f"model-{len(os.listdir(self.folder.name))}.gguf")
        shape = dict(dict(layers=2, dim=64, heads=4, kv_heads=2, ffn=128, context=256, seed=1), **options)
        argv = [program("tests/support/baton-tiny-model"), path]
        for name, value in shape.items():
            argv += ["--" + name.replace("_", "-"), str(value)]
        subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE_S)
        return path

    def text(self, n_bytes):
        with open(self.at("text"), "w", encoding="ascii") as f:
            f.write("".join(chr(33 + i * i % 89) for i in range(n_bytes)))
        return self.at("text")

    def run_tool(self, name, *args):
        done = subprocess.run([program(name), *args], env=self.env, capture_output=True, text=True, timeout=PATIENCE_S)
        return done.returncode, done.stdout, done.stderr

    def accuracy(self, *args):
        return self.run_tool("tools/baton-accuracy", *args)

    def convert(self, *args):
        return self.run_tool("tools/baton-convert", *args)

    def kept(self):
        folder = self.at("cache/baton")
        return os.listdir(folder) if os.path.isdir(folder) else []

    def test_accuracy_of_a_model_with_itself_is_exact(self):
        model, other, text = self.model(), self.model(seed=2), self.text(600)
        status, out, said = self.accuracy(model, model, "--text", text, "--window", "64")
        self.assertEqual((status, said), (0, ""))
        figures = dict(re.findall(r"(.+?) {2,}(.+)\n", out))
        # 600 tokens (a byte each, but for what merges) in windows of 64, of which one is not foretold.
        n = int(figures["positions"])
        self.assertTrue(300 < n < 600 and n % 63 != 0, out)
        self.assertEqual(figures["perplexity A"], figures["perplexity B"])
        self.assertEqual((figures["mean KL(A||B)"], figures["same top-1"]), ("0.000000 +- 0.000000", "100.00%"))
        self.assertEqual(figures["B lost"], "0.00000 +- 0.00000")
        status, out, said = self.accuracy(model, other, "--text", text, "--window", "64")
        self.assertEqual((status, said), (0, ""))
        self.assertGreater(float(re.search(r"mean KL\S+ +(\S+)", out).group(1)), 0.001)
        self.assertEqual(self.kept(), [])

    def stop_on_terminal(self, argv):
        """Run it on a terminal and stop it when its bar shows that something is done. @return what it said"""
        main, side = pty.openpty()
        with subprocess.Popen(argv, env=self.env, stdin=side, stdout=side, stderr=side) as process:
            os.close(side)
            said = b""
            while not re.search(rb"\[#", said):
                self.assertTrue(select.select([main], [], [], PATIENCE_S)[0], said)
                said += os.read(main, 4096)
            process.send_signal(signal.SIGINT)
            while True:
                try:
                    piece = os.read(main, 4096)
                except OSError:  # the other end is closed
                    break
                said += piece
                if not piece:
                    break
            process.wait(PATIENCE_S)
        os.close(main)
        return process.returncode, said.decode(errors="replace")

    def test_stopped_accuracy_run_resumes_to_the_same_figures(self):
        # The bar shows something after a twentieth of the run: it is stopped long before its end.
        model, other, text = self.model(), self.model(seed=2), self.text(30000)
        args = [model, other, "--text", text, "--window", "32", "--threads", "1"]
        status, said = self.stop_on_terminal([program("tools/baton-accuracy"), *args])
        self.assertEqual(status, 1, said)
        self.assertIn("stopped; the same command goes on", said)
        self.assertEqual(len(self.kept()), 1)
        status, out, said = self.accuracy(*args)
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"\Agoing on after \d+ of \d+ tokens\n\Z")
        self.assertEqual(self.kept(), [])
        self.assertEqual(self.accuracy(*args), (0, out, ""))

    def test_incomparable_models_are_named(self):
        model, text = self.model(), self.text(100)
        for args, reason in (((model, model), "--text is not given"),
                             ((model,), "two models are to be named"),
                             ((model, model, "--text", text, "--window", "512"), "its context is 256 tokens"),
                             ((model, model, "--text", text, "--window", "1"), "out of range"),
                             ((model, model, "--text", self.at("none"), "--window", "64"), "No such file"),
                             ((model, self.model(vocab=300), "--text", text, "--window", "64"), "vocabularies of"),
                             ((model, text, "--text", text, "--window", "64"), "text: ")):
            status, out, said = self.accuracy(*args)
            self.assertNotEqual(status, 0)
            self.assertEqual(out, "")
            self.assertIn(reason, said)

    def test_converted_model_reads_as_the_first_one(self):
        model, text, new = self.model(), self.text(300), self.at("new.gguf")
        status, out, said = self.convert(model, new, "--type", "q8_0")
        self.assertEqual((status, said), (0, ""))
        self.assertIn("new.gguf: ", out)
        self.assertNotEqual(self.convert(model, new, "--type", "q8_0")[0], 0)  # it exists
        status, out, said = self.accuracy(model, new, "--text", text, "--window", "64")
        self.assertEqual((status, said), (0, ""))
        self.assertLess(float(re.search(r"mean KL\S+ +(\S+)", out).group(1)), 0.02)

    def test_importance_matrix_is_made_from_a_text_and_used_again(self):
        model, other, text = self.model(), self.model(seed=2), self.text(300)
        args = ["--type", "q4_0", "--imatrix-text", text, "--imatrix-window", "64"]
        status, out, said = self.convert(model, self.at("new.gguf"), *args)
        self.assertEqual((status, said), (0, ""))
        made = self.at("new.gguf.imatrix.gguf")
        line = f"importance matrix {made}: 15 tensors, "  # seven matrices in each of two layers, and output
        self.assertIn(line, out)
        with open(made, "rb") as f:
            self.assertEqual(f.read(4), b"GGUF")
        # By name for another file: the same bytes as when it was made.
        status, out, said = self.convert(model, self.at("again.gguf"), "--type", "q4_0", "--imatrix", made)
        self.assertEqual((status, said), (0, ""))
        self.assertIn(line, out)
        with open(self.at("new.gguf"), "rb") as a, open(self.at("again.gguf"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        self.assertEqual(self.convert(model, self.at("plain.gguf"), "--type", "q4_0")[0], 0)
        with open(self.at("new.gguf"), "rb") as a, open(self.at("plain.gguf"), "rb") as b:
            self.assertNotEqual(a.read()[-65536:], b.read()[-65536:])
        for args, reason in ((["--imatrix", text], "text: it is no importance matrix"),
                             (["--imatrix", self.at("none")], "No such file"),
                             (["--imatrix", model], "it has no tensor NAME.in_sum2"),
                             (["--imatrix", made, "--imatrix-text", text, "--imatrix-window", "32"], "of another model")):
            status, out, said = self.convert(model, self.at("refused.gguf"), "--type", "q4_0", *args)
            self.assertNotEqual(status, 0)
            self.assertIn(reason, said)
            self.assertFalse(os.path.exists(self.at("refused.gguf")))
        wide = self.model(dim=128)
        status, out, said = self.convert(wide, self.at("refused.gguf"), "--type", "q4_0", "--imatrix", made)
        self.assertIn("of another model: blk.0.", said)
        # A model of the same shape may use it, as one that was fine-tuned may.
        self.assertEqual(self.convert(other, self.at("other.gguf"), "--type", "q4_0", "--imatrix", made)[0], 0)


if __name__ == "__main__":
    unittest.main()
