#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`./baton bench all`: with benchmarks that are a few lines, and one real one; and the tables of pages.

Needs BATON_BUILD and BATON_TINY_MODEL for the real one.
"""
import base64
import contextlib
import fcntl
import hashlib
import html.parser
import importlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BENCH = os.path.join(ROOT, "bench")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True
import _blocks  # noqa: E402
import _machine  # noqa: E402
import _report  # noqa: E402
import _settings  # noqa: E402

everything = importlib.import_module("all")

# Runs `all` with benchmarks of our own. argv: folder, sources, names with commas, its arguments…
DRIVER = f"""
import importlib, sys
sys.path.insert(0, {BENCH!r})
sys.dont_write_bytecode = True
import _machine, _settings
folder, tree, names = sys.argv[1:4]
_machine.sources = lambda: {{"commit": tree.split("-")[0], "dirty": "-" in tree, "tree": tree}}
_machine.peers = lambda: {{"one": "1.2", "other": None}}
absent = _settings.Peer("absent", lambda: False, ("--never",), ("--alone",), "get it <there>")
settings = {{n: _settings.Setting(("--short",), (9, 1), (absent,) if n == "good" else (), ("--long",)) for n in names.split(",")}}
sys.exit(importlib.import_module("all").main(sys.argv[4:], settings, folder))
"""
# As DRIVER. It is interrupted when a benchmark has begun that it does not know of yet.
EARLY_DRIVER = """
import os, signal, subprocess, sys, time
real = subprocess.Popen
def started(command, *args, **more):
    child = real(command, *args, **more)
    if "slow.py" in " ".join(command):
        begun = command[command.index("--svg") + 1] + ".begun"
        deadline = time.monotonic() + 60
        while not os.path.exists(begun) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)
    return child
subprocess.Popen = started
""" + DRIVER
# Of each of them: notes each run, and knows its options.
BEGIN = """
import json, os, sys, time
def option(name): return sys.argv[sys.argv.index(name) + 1]
name = os.path.basename(__file__)[:-3]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "runs"), "a") as f: f.write(name + "\\n")
def leave(figures={"rows": [1, float("nan")]}):
    with open(option("--out"), "w") as f: json.dump(figures, f)
"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><title>t</title>{}<text x="1" y="1">drawn by us</text></svg>'
SCRIPTS = {
    "good": f"leave(); print('a table of <b>good</b> & more', sys.argv[1]); open(option('--svg'), 'w').write({SVG.format('')!r})",
    "bad": "print('half a table'); print('why it <failed>', file=sys.stderr); sys.exit(1)",
    "killed": "os.kill(os.getpid(), 9)",
    "peerless": "print('baton: ucx_perftest is not installed', file=sys.stderr); sys.exit(77)",
    "silent": "pass",
    "evil": f"leave(); open(option('--svg'), 'w').write({SVG.format('<script>alert(1)</script>')!r})",
    "broken": "leave(); open(option('--svg'), 'w').write('<svg')",
    "slow": """leave()
try:
    open(option("--svg") + ".begun", "w").close()
    time.sleep(600)
except KeyboardInterrupt:
    open(option("--svg") + ".cleaned", "w").close()
    raise
""",
}


class Page(html.parser.HTMLParser):
    """What of a page is of interest."""

    VOID = {"meta", "br", "link", "img", "input", "hr"}

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.styles, self.text, self.headers = [], [], [], [], [], "", []
        self.policy = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        if tag == "a":
            self.links.append(attrs["href"])
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open[-1] != tag:
            raise ValueError(f"</{tag}> ends <{self.open[-1]}>")
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.styles.append(data)
        else:
            self.text += data


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="bt-report-")
        self.addCleanup(folder.cleanup)
        self.benches, self.out = os.path.join(folder.name, "benches"), os.path.join(folder.name, "out put")
        os.mkdir(self.benches)
        for name, script in SCRIPTS.items():
            with open(os.path.join(self.benches, name + ".py"), "w", encoding="utf-8") as f:
                f.write(f'"""What does {name} ask?"""\n{BEGIN}\n{script}\n')

    def command(self, names, *options, tree="abc", driver=DRIVER):
        return [sys.executable, "-c", driver, self.benches, tree, names, "--report", self.out, *options]

    def run_all(self, names, *options, status=0, **more):
        done = subprocess.run(self.command(names, *options, **more), capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stderr

    def report(self):
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as f:
            return json.load(f, parse_constant=self.fail)

    def page(self):
        with open(os.path.join(self.out, "index.html"), encoding="utf-8") as f:
            return Page(f.read())

    def runs(self):
        """Names of what was run since it was asked last."""
        path = os.path.join(self.benches, "runs")
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as f:
            names = f.read().split()
        os.unlink(path)
        return names

    def wait_for(self, name):
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(self.out, name)):
            self.assertLess(time.monotonic(), deadline, name)
            time.sleep(0.02)

    def test_failed_benchmark_is_reported_and_stops_nothing(self):
        names = "good,bad,killed,peerless,silent,evil,broken"
        said = self.run_all(names, status=1)
        report = self.report()
        got = {e["name"]: (e["status"], e["why"]) for e in report["benches"]}
        self.assertEqual(got, {"good": ("ok", ""), "bad": ("failed", "why it <failed>"), "killed": ("failed", "ended by signal 9"),
                               "peerless": ("skipped", "ucx_perftest is not installed"), "silent": ("failed", "it left no figures"),
                               "evil": ("ok", ""), "broken": ("ok", "")})
        good = report["benches"][0]
        self.assertEqual((good["question"], good["options"], good["figures"]), ("What does good ask?", ["--long", "--alone"], {"rows": [1, None]}))
        self.assertEqual(good["without"], [{"name": "absent", "how": "get it <there>"}])
        for kind in ("json", "svg", "txt", "log"):
            self.assertTrue(os.path.exists(os.path.join(self.out, "good." + kind)))
        for name in names.split(","):
            self.assertRegex(said, rf"{name} +{got[name][0]} ")
        self.assertIn("3 ok, 3 failed, 1 skipped", said)
        self.assertNotIn("\r", said)  # no terminal

    def test_page_stands_alone_and_names_everything(self):
        self.run_all("good,bad,peerless,evil,broken", status=1)
        page = self.page()
        with open(os.path.join(self.out, "index.html"), encoding="utf-8") as f:
            text = f.read()
        self.assertEqual(page.open, [])
        self.assertEqual(len(page.ids), len(set(page.ids)))
        for name in ("good", "bad", "peerless", "evil", "broken"):
            self.assertIn(name, page.ids)
            self.assertIn("#" + name, page.links)
        for words in ("What does good ask?", "a table of <b>good</b> & more --long", "why it <failed>", "ucx_perftest is not installed",
                      "could not run", "Commit abc", "Without absent, which is not here: get it <there>.", "drawn by us", "1.2", "not here",
                      "caches", "governor", "kernel", "memory", "half a table", "Its figure is not one of tools/cli/charts.py", "Its figure cannot be read"):
            self.assertIn(words, page.text)
        # Nothing is asked for, nothing runs, and the one style is the one that is allowed.
        self.assertFalse({tag for tag, _ in page.tags} & {"script", "img", "link", "iframe", "object", "b"})
        for link in page.links:
            self.assertTrue(link.startswith("#") or os.path.exists(os.path.join(self.out, link)), link)
        self.assertNotRegex(text.replace("http://www.w3.org/2000/svg", ""), r"https?://|url\(|@import|\sstyle=|\son\w+=")
        self.assertEqual(len(page.styles), 1)
        digest = base64.b64encode(hashlib.sha256(page.styles[0].encode()).digest()).decode()
        self.assertEqual(page.policy, f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'")
        self.assertIn(("html", {"lang": "en"}), page.tags)
        for tag, attrs in page.tags:
            if tag == "pre":
                self.assertEqual((attrs["tabindex"], attrs["role"]), ("0", "region"))
                self.assertTrue(attrs["aria-label"])
            if tag == "th":
                self.assertIn(attrs["scope"], ("row", "col"))

    def test_existing_results_of_the_same_settings_are_reused(self):
        names = "good,bad,evil"
        self.run_all(names, status=1)
        self.assertEqual(self.runs(), ["good", "bad", "evil"])
        said = self.run_all(names, status=1)  # what failed may not fail now
        self.assertEqual(self.runs(), ["bad"])
        self.assertRegex(said, "good +ok +kept from before")
        self.run_all(names, "--again", status=1)
        self.assertEqual(self.runs(), ["good", "bad", "evil"])
        self.run_all(names, "--quick", "--only", "good")
        self.assertEqual(self.runs(), ["good"])
        self.assertEqual([(e["name"], e["quick"]) for e in self.report()["benches"]], [("good", True), ("bad", False), ("evil", False)])
        self.assertIn("With its whole settings.", self.page().text)
        self.run_all(names, "--quick", "--only", "good", tree="abc-123")
        self.assertEqual(self.runs(), ["good"])
        self.assertTrue(self.report()["dirty"])
        self.run_all(names, "--quick", "--only", "good", tree="abc-123")
        self.assertEqual(self.runs(), [])
        os.unlink(os.path.join(self.out, "good.json"))
        self.run_all(names, "--quick", "--only", "good", tree="abc-123")
        self.assertEqual(self.runs(), ["good"])
        self.run_all(names, "--quick", "--skip", "bad,evil", tree="unknown")
        self.run_all(names, "--quick", "--skip", "bad,evil", tree="unknown")
        self.assertEqual(self.runs(), ["good", "good"])

    def interrupt(self, how, driver=DRIVER):
        process = subprocess.Popen(self.command("good,slow,evil", driver=driver), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if driver == DRIVER:
            self.wait_for("slow.svg.begun")
            process.send_signal(how)
        said = process.communicate(timeout=90)[1]
        self.assertEqual(process.returncode, 130, said)
        report = self.report()
        self.assertEqual([(e["name"], e["status"]) for e in report["benches"]], [("good", "ok"), ("slow", "interrupted")])
        self.assertTrue(report["interrupted"])
        self.assertIn("the same command goes on from here", self.page().text)
        self.assertTrue(os.path.exists(os.path.join(self.out, "slow.svg.cleaned")), "it had no time to clean up")

    def test_interrupted_report_resumes(self):
        self.interrupt(signal.SIGINT)
        self.assertEqual(self.runs(), ["good", "slow"])
        with open(os.path.join(self.benches, "slow.py"), "w", encoding="utf-8") as f:
            f.write(f"{BEGIN}\nleave()\n")
        self.run_all("good,slow,evil")
        self.assertEqual(self.runs(), ["slow", "evil"])
        report = self.report()
        self.assertEqual([e["status"] for e in report["benches"]], ["ok"] * 3)
        self.assertFalse(report["interrupted"])

    def test_benchmark_is_ended_that_an_interruption_meets_at_its_start(self):
        self.interrupt(signal.SIGINT, EARLY_DRIVER)

    def test_signal_to_end_is_an_interruption_too(self):
        self.interrupt(signal.SIGTERM)

    def test_timed_out_benchmark_is_ended_and_the_next_runs(self):
        self.run_all("good")  # there already: on a slow machine it may itself take longer than that
        self.run_all("slow,good", "--limit", "1", status=1)
        self.assertEqual([(e["name"], e["why"]) for e in self.report()["benches"]], [("slow", "not done in 1 s"), ("good", "")])

    def test_on_a_terminal_a_bar_moves_below_the_lines(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        process = subprocess.Popen(self.command("good,bad"), stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # the other side is closed
            while piece := os.read(ours, 4096):
                said += piece
        self.assertEqual(process.wait(60), 1)
        said = said.decode()
        self.assertRegex(said, r"\r\x1b\[K\[\.{24}\] 0/2 good 0:00; \d:\d\d so far, about \d:\d\d left\r")
        self.assertRegex(said, r"\[#{12}\.{12}\] 1/2 bad 0:00; ")
        self.assertRegex(said, r"\r\x1b\[K 1 of 2  good +ok +\d+ s\r\n")
        self.assertNotIn("begins", said)

    def test_mistakes_are_named_before_anything_runs(self):
        for options, words in ((("--only", "nobody"), "no benchmark 'nobody'; there are good, bad"), (("--limit", "0"), "--limit is above 0"),
                               (("--even-so",), "--even-so goes with --write"), (("--model", "/nowhere"), "no model /nowhere")):
            self.assertIn(words, self.run_all("good,bad", *options, status=2))
        self.assertEqual(self.runs(), [])

    def test_place_that_cannot_be_written_or_is_in_use_is_named(self):
        self.run_all("good")
        self.runs()
        with open(os.path.join(self.out, "lock"), "wb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            self.assertEqual(self.run_all("good", "--again", status=1), f"baton: another run writes to {self.out}\n")
        self.out = os.path.join(self.out, "good.json")
        self.assertEqual(self.run_all("good", status=1), f"baton: cannot write {self.out}: File exists\n")
        self.assertEqual(self.runs(), [])

    def test_report_that_cannot_be_read_is_begun_anew(self):
        os.mkdir(self.out)
        for text in ("{", "[]", '{"benches": 3}'):
            with open(os.path.join(self.out, "report.json"), "w", encoding="utf-8") as f:
                f.write(text)
            self.run_all("good")
            self.assertEqual(self.runs(), ["good"])

    def test_remaining_time_is_estimated_from_finished_benchmarks(self):
        board = everything.Board([("a", 10), ("b", 20), ("c", 30)], stream=open(os.devnull, "w", encoding="utf-8"))
        self.addCleanup(board.stream.close)
        self.assertEqual(board.left(), 60)
        board.end("a", {"seconds": 30.0, "status": "ok", "why": ""})  # three times as long as was thought
        self.assertEqual(board.left(), 150)
        self.assertEqual(board.left("b", 15.0), 45 + 90)
        board.end("b", {"seconds": 99.0, "status": "ok", "why": ""}, kept=True)
        self.assertEqual(board.left(), 90)

    def test_sources_of_a_report_are_told_apart(self):
        with tempfile.TemporaryDirectory() as root:
            env = dict(os.environ, GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b")

            def git(*words):
                subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, env=env)

            def write(name, text):
                with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                    f.write(text)

            old, _machine.ROOT = _machine.ROOT, root
            self.addCleanup(setattr, _machine, "ROOT", old)
            self.assertEqual(_machine.sources()["commit"], "unknown")
            git("init", "-q")
            write("x", "1")
            git("add", "x")
            git("commit", "-qm", "first")
            clean = _machine.sources()
            self.assertEqual((clean["dirty"], clean["tree"]), (False, clean["commit"]))
            seen = {clean["tree"]}
            for name, text in (("x", "2"), ("x", "3"), ("y", "1"), ("y", "2")):
                write(name, text)
                got = _machine.sources()
                self.assertTrue(got["dirty"])
                self.assertEqual(got["commit"], clean["commit"])
                seen.add(got["tree"])
            self.assertEqual(len(seen), 5)

    def test_every_benchmark_has_settings_and_nothing_else_has(self):
        names = {f.removesuffix(".py") for f in os.listdir(BENCH) if re.match(r"[a-z].*\.py$", f)} - {"all", "compare"}
        self.assertEqual(set(_settings.SETTINGS), names)
        for name, setting in _settings.SETTINGS.items():
            self.assertTrue(0 < setting.seconds[True] <= setting.seconds[False], name)
            with open(os.path.join(BENCH, name + ".py"), encoding="utf-8") as f:
                source = f.read()
            with open(os.path.join(BENCH, "_shared.py"), encoding="utf-8") as f:
                source += f.read()
            words = [w for p in setting.peers for w in (*p.options, *p.otherwise)] + [*setting.full, *setting.quick, *setting.without_peers]
            for word in words:
                if word.startswith("--"):
                    self.assertIn(word.removeprefix("--"), source, f"{name} {word}")

    def test_real_benchmark_has_its_place_in_a_report(self):
        with tempfile.TemporaryDirectory(prefix="bt-report-") as folder:
            model = os.path.join(folder, "tiny.gguf")
            subprocess.run([os.environ["BATON_TINY_MODEL"], model, "--context", "512", "--type", "q4_1", "--embedding-type", "q8_0", "--tied"],
                           check=True)
            env = dict({k: v for k, v in os.environ.items() if not k.startswith("BATON_") or k == "BATON_BUILD"}, XDG_CACHE_HOME=folder)
            done = subprocess.run([sys.executable, "-B", os.path.join(BENCH, "all.py"), "--report", self.out, "--quick", "--only", "engine",
                                   "--model", model], env=env, capture_output=True, text=True, timeout=240)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        entry, = self.report()["benches"]
        self.assertEqual((entry["name"], entry["status"], entry["model"]), ("engine", "ok", "tiny.gguf"))
        self.assertGreater(entry["figures"]["threads"][0]["rows"][0]["tokens_per_s"], 0)
        page = self.page()
        self.assertIn("svg", {tag for tag, _ in page.tags})
        for words in ("prefill 64", "decode 4", "int8 multiply-add", "tok/s"):
            self.assertIn(words, page.text)


class Blocks(unittest.TestCase):
    """report_sample.json has the figures that docs/PERFORMANCE.md had by hand when blocks came; report_sample.md those tables."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(HERE, "report_sample.json"), encoding="utf-8") as f:
            cls.report = json.load(f)
        with open(os.path.join(HERE, "report_sample.md"), encoding="utf-8") as f:
            cls.page = f.read()
        with open(os.path.join(ROOT, "docs", "PERFORMANCE.md"), encoding="utf-8") as f:
            cls.docs = f.read()

    def entry(self, name, **more):
        report = json.loads(json.dumps(self.report))
        next(e for e in report["benches"] if e["name"] == name).update(more)
        return report

    def test_report_gives_the_tables_letter_by_letter(self):
        emptied = re.sub(r"(<!-- bench [^\n]*\n)(?:\|[^\n]*\n)+", r"\1", re.sub(r", commit \w+ -->", " -->", self.page))
        self.assertNotIn("|", emptied)
        filled, said = _blocks.fill(emptied, self.report)
        self.assertEqual(filled, self.page)
        self.assertEqual(len(said), len(_blocks.BLOCKS))
        self.assertEqual({name for _, _, _, name, _ in _blocks.parse(self.page)}, set(_blocks.BLOCKS))

    def test_blocks_of_the_page_are_of_benchmarks_that_exist_and_whole_tables(self):
        blocks = _blocks.parse(self.docs)
        self.assertGreater(len(blocks), 10)
        lines = self.docs.split("\n")
        for begin, end, bench, name, _ in blocks:
            self.assertTrue(os.path.exists(os.path.join(BENCH, bench + ".py")), bench)
            rows = lines[begin + 1:end]
            self.assertGreater(len(rows), 2, name)
            self.assertEqual({row.count("|") for row in rows}, {rows[0].count("|")}, name)
            self.assertRegex(rows[1], r"^\|(---\|)+$")
            # What is measured anew has the same columns as far as options are the same: at least the first and the last.
            old = next(self.page.split("\n")[b + 1] for b, _, _, n, _ in _blocks.parse(self.page) if n == name)
            self.assertEqual(rows[0].split("|")[1], old.split("|")[1], name)
            self.assertEqual(rows[0].split("|")[-2], old.split("|")[-2], name)

    def test_unquotable_results_are_not_written(self):
        for more, words in (({"quick": True}, "its settings were the shortest"), ({"status": "failed", "why": "no"}, "it did not run (no)"),
                            ({"tree": "5a3b1e000000-77"}, "its sources are in no commit"), ({"figures": {"busy": True}}, "other programs were running"),
                            ({"figures": {"cpu_others_percent": 9.0}}, "other programs were running"), ({"figures": {}}, "it did not run (ok)"),
                            ({"figures": {"threads": [{"threads": 1, "rows": []}]}}, "the report lacks what it shows")):
            filled, said = _blocks.fill(self.page, self.entry("engine", **more))
            self.assertEqual(filled, self.page)
            self.assertIn(words, said[0])
        filled, said = _blocks.fill(self.page, dict(self.report, benches=[]))
        self.assertEqual(filled, self.page)
        self.assertIn("the report has none", said[0])

    def test_prose_around_a_block_stays_and_its_old_commit_is_named(self):
        figures = json.loads(json.dumps(next(e for e in self.report["benches"] if e["name"] == "ranks")["figures"]))
        figures["compute"][0]["threads"] = 1234.4
        report = self.entry("ranks", figures=figures, commit="beef", tree="beef", quick=True)
        page = "Before.\n\n<!-- bench ranks, commit cafe -->\nold\n<!-- end -->\nAfter | it.\n"
        self.assertEqual(_blocks.fill(page, report)[0], page)
        filled, said = _blocks.fill(page, report, even_so=True)
        self.assertTrue(filled.startswith("Before.\n\n<!-- bench ranks, commit beef -->\n| tok/s | 2 threads |"))
        self.assertTrue(filled.endswith("|\n<!-- end -->\nAfter | it.\n"))
        self.assertIn("| prefill 512 | 1234 | 282 | 0.97 |", filled)
        self.assertIn("what is written around it is of commit cafe", said[0])

    def test_marks_that_are_wrong_are_named_and_nothing_is_written(self):
        for page, words in (("<!-- bench nobody -->\n<!-- end -->", "line 1: no block 'nobody'"), ("a\n<!-- bench ranks -->\nb", "line 2: a block without"),
                            ("<!-- end -->", "line 1: <!-- end --> is no begin of a block"),
                            ("<!-- bench ranks -->\n<!-- bench ranks -->\n<!-- end -->", "line 2: <!-- bench ranks --> inside of a block"),
                            ("<!-- bench: ranks -->", "line 1: <!-- bench: ranks --> is no begin of a block")):
            with self.assertRaises(_blocks.BlockError) as caught:
                _blocks.fill(page, self.report)
            self.assertIn(words, str(caught.exception))

    def test_page_is_written_from_a_report(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page.md")
            with open(page, "w", encoding="utf-8") as f:
                f.write("<!-- bench large engines -->\n<!-- end -->\n")

            def run(*options):
                return subprocess.run([sys.executable, "-B", os.path.join(BENCH, "all.py"), "--report", folder, "--write", page, *options],
                                      capture_output=True, text=True, timeout=60)

            done = run()
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("has no report.json", done.stderr)
            with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as f:
                json.dump(self.report, f)
            done = run()
            self.assertEqual((done.returncode, done.stdout), (0, "large engines  written\n"))
            with open(page, encoding="utf-8") as f:
                self.assertIn("| ratio | 1.81 | 1.40 | 3.51 |", f.read())


if __name__ == "__main__":
    unittest.main()
