#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/cli/charts.py and the figures of all benchmarks: what stands in the SVG is what was measured, and can be read.

figures_sample.json has an object of each benchmark, as its --out writes it, some shortened.
"""
import importlib
import json
import math
import os
import random
import re
import sys
import unittest
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BENCH = os.path.join(ROOT, "bench")
sys.path.insert(0, BENCH)
sys.dont_write_bytecode = True
import _roofline  # noqa: E402
import _shared  # noqa: E402
import charts  # noqa: E402
import load_svg  # noqa: E402

NS = "{http://www.w3.org/2000/svg}"


def luminance(colour):
    """Source: WCAG 2.1, relative luminance."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def texts(root):
    """@return [(words, x0, y0, x1, y1)]: about, as a plain sans serif has them"""
    out = []
    for t in root.iter(NS + "text"):
        size, x, y = float(t.get("font-size")), float(t.get("x")), float(t.get("y"))
        if not t.text or not t.text.strip():
            continue
        wide = size * sum(0.25 if c in "ijltfr.,:;|'! " else 0.85 if c in "mwMW" else 0.65 if c.isupper() else 0.55 for c in t.text)
        left = {"start": 0.0, "middle": wide / 2, "end": wide}[t.get("text-anchor")]
        box = (-left, -0.75 * size, wide - left, 0.2 * size)
        turn = re.match(r"rotate\((\S+) ", t.get("transform") or "")
        if turn and float(turn.group(1)) == -90:
            box = (box[1], -box[2], box[3], -box[0])
        elif turn:
            continue  # slanted: the words of a roof, which _roofline keeps free
        out.append((t.text, x + box[0], y + box[1], x + box[2], y + box[3]))
    return out


class Figures(unittest.TestCase):
    def parse(self, svg):
        """What holds for each figure. @return its root"""
        root = xml.etree.ElementTree.fromstring(svg)
        self.assertNotRegex(svg, r"(?i)\bnan\b|<script|href|url\(|@import|https?://(?!www\.w3\.org/2000/svg)|\son\w+=")
        self.assertIn("prefers-color-scheme:dark", root.find(NS + "style").text)
        self.assertTrue(root.find(NS + "title").text)
        wide, high = float(root.get("width")), float(root.get("height"))
        found = texts(root)
        for words, x0, y0, x1, y1 in found:
            self.assertTrue(x0 >= -1 and y0 >= 0 and x1 <= wide + 1 and y1 <= high, f"{words!r} leaves the figure: {x0, y0, x1, y1}")
        for i, (words, x0, y0, x1, y1) in enumerate(found):
            for other, a0, b0, a1, b1 in found[i + 1:]:
                self.assertFalse(x0 < a1 and a0 < x1 and y0 < b1 and b0 < y1, f"{words!r} and {other!r} lie on each other")
        return root

    def draw(self, *panels, title="A figure"):
        return self.parse(charts.figure(title, ["told", "more " * 60], list(panels)))

    def scale(self, root, log=False):
        """@return what value a pixel across stands for, from the ticks under the lowest line alone"""
        ticks = [t for t in root.iter(NS + "text") if t.get("class") == "bt-soft" and t.get("font-size") == "11"
                 and t.get("text-anchor") == "middle"]
        pairs = [(float(t.get("x")), float(t.text.replace(",", ""))) for t in ticks]
        (xa, a), (xb, b) = pairs[0], pairs[-1]
        if log:
            return lambda x: a * (b / a) ** ((x - xa) / (xb - xa))
        return lambda x: a + (b - a) * (x - xa) / (xb - xa)

    def bars(self, root):
        """@return [(hint, begin, end)] of each bar"""
        out = []
        for g in root.iter(NS + "g"):
            rect = g.find(NS + "rect")
            if rect is not None:
                x = float(rect.get("x"))
                out.append((g.find(NS + "title").text, x, x + float(rect.get("width"))))
        return out


class Kinds(Figures):
    def test_bars_end_where_the_axis_says_and_tell_their_values(self):
        values = [[120.0, 30.5, 0.0], [60.0, (90.0, 80.0, 150.0), None]]
        root = self.draw(charts.Bars("Rates", "tokens/s", ["a", "b", "c"], [("ours", values[0]), ("theirs", values[1])], log=False))
        at = self.scale(root)
        got = {hint: (at(x0), at(x1)) for hint, x0, x1 in self.bars(root)}
        for name, value in (("a, ours: 120", 120), ("b, ours: 30.5", 30.5), ("c, ours: 0", 0), ("a, theirs: 60", 60),
                            ("b, theirs: 90, 80 to 150", 90)):
            self.assertAlmostEqual(got[name][0], 0, delta=0.3)
            self.assertAlmostEqual(got[name][1], value, delta=0.3)
        words = [t[0] for t in texts(root)]
        for word in ("Rates", "ours", "theirs", "tokens/s", "120", "30.5", "90 (80 to 150)", "none"):
            self.assertIn(word, words)
        # The whisker of the range.
        ends = sorted({round(at(float(e.get("x1")))) for e in root.iter(NS + "line")
                       if e.get("class") == "bt-ink-line" and e.get("x1") == e.get("x2")})
        self.assertEqual(ends, [80, 150])

    def test_values_of_many_magnitudes_are_on_a_logarithmic_axis_which_says_so(self):
        values = [2.0, 45.0, 7000.0]
        root = self.draw(charts.Bars("Times", "us", ["x", "y", "z"], [("one", values)]))
        at = self.scale(root, log=True)
        for (_, _, end), value in zip(self.bars(root), values):
            self.assertAlmostEqual(at(end) / value, 1, delta=0.01)
        self.assertIn("us (logarithmic)", [t[0] for t in texts(root)])

    def test_zero_has_no_bar_on_a_logarithmic_axis_and_is_told(self):
        root = self.draw(charts.Bars("Times", "us", ["x", "y", "z"], [("one", [0.0, 5.0, (300.0, 300.0, 900.0)])]))
        at = self.scale(root, log=True)
        (_, a0, a1), (_, _, b1), (_, _, c1) = self.bars(root)
        self.assertEqual(a0, a1)
        self.assertAlmostEqual(at(b1) / 5, 1, delta=0.01)
        self.assertAlmostEqual(at(c1) / 300, 1, delta=0.01)
        words = [t[0] for t in texts(root)]
        self.assertTrue({"0", "5", "300 to 900"} <= set(words), words)

    def test_negative_values_go_to_the_other_side_of_zero(self):
        root = self.draw(charts.Bars("Lost", "nats", ["x", "y"], [("one", [-2.0, 4.0])]))
        at = self.scale(root)
        (_, a0, a1), (_, b0, b1) = self.bars(root)
        self.assertAlmostEqual(at(a0), -2, delta=0.05)
        self.assertAlmostEqual(at(a1), 0, delta=0.05)
        self.assertAlmostEqual(at(b0), 0, delta=0.05)
        self.assertAlmostEqual(at(b1), 4, delta=0.05)

    def test_missing_or_infinite_value_draws_no_bar(self):
        root = self.draw(charts.Bars("t", "s", ["a", "b", "c"], [("x", [math.nan, math.inf, 5.0])]),
                         charts.Bars("u", "s", ["a"], [("x", [None])]), charts.Bars("v", "s", [], []),
                         charts.Lines("w", "x", "y", [("z", [])]))
        self.assertEqual(len(self.bars(root)), 1)
        words = [t[0] for t in texts(root)]
        self.assertEqual((words.count("none"), words.count("no values")), (2, 3))

    def test_lines_go_through_their_points(self):
        points = [(1, 10.0), (10, 300.0), (100, 1000.0)]
        root = self.draw(charts.Lines("Rates", "rows", "rows/s", [("m", points), ("n", [(1, 5.0, 4.0, 6.0)])], log_x=True, log_y=True))
        drawn = [tuple(map(float, p.split(","))) for p in root.find(NS + "polyline").get("points").split()]
        at = self.scale(root, log=True)
        for (x, y), (value, _) in zip(drawn, points):
            self.assertAlmostEqual(at(x) / value, 1, delta=0.02)
        # By the logarithm, 10 to 1,000 is twice 10 to 100.
        share = (drawn[0][1] - drawn[1][1]) / (drawn[0][1] - drawn[2][1])
        self.assertAlmostEqual(share, math.log(30) / math.log(100), delta=0.01)

    def test_hostile_names_stay_text_and_long_ones_have_an_end(self):
        evil = '<script>alert(1)</script>"&\' onload=x'
        root = self.draw(charts.Bars(evil.replace("onload=", "") * 3, "ms", ["x" * 400, "mmmmWWWW " * 30], [("W" * 300, [1, 2]), ("b" * 99, [3, 4])],
                                     mark=(2, "y" * 300)), title="t" * 500)
        self.assertIsNone(root.find(NS + "script"))
        self.assertIn("…", "".join(t[0] for t in texts(root)))

    def test_random_figures_have_no_text_on_another(self):
        rng = random.Random(7)
        for _ in range(60):
            n, k = rng.randrange(1, 9), rng.randrange(1, 6)
            big = 10.0 ** rng.randrange(-6, 13)
            names = ["".join(rng.choice("abc W1-") for _ in range(rng.randrange(1, 60))) or "x" for _ in range(max(n, k))]
            values = [[rng.random() * big ** rng.random() for _ in range(n)] for _ in range(k)]
            ranged = [[(v, v * rng.random(), v * (1 + rng.random())) for v in row] for row in values]
            lines = [(names[i], [(x + 1, v) for x, v in enumerate(row)]) for i, row in enumerate(values)]
            self.draw(charts.Bars(names[0], "unit", names[:n], list(zip(names, ranged)), mark=(values[0][0], names[0])),
                      charts.Lines(names[0], "x", "y", lines, log_x=rng.random() < 0.5, log_y=rng.random() < 0.5))

    def test_random_roofs_have_no_text_on_another(self):
        rng = random.Random(3)
        for _ in range(40):
            read = 10 ** rng.uniform(0.5, 3.5)
            peaks = [(name, 10 ** rng.uniform(1, 6)) for name in ("int8", "bf16", "f32")[:rng.randrange(1, 4)]]
            points = [{"label": f"Q4_K x {i}", "x": 10 ** rng.uniform(-1, 3), "y": 10 ** rng.uniform(0, 5), "series": rng.choice("ab")}
                      for i in range(rng.randrange(0, 40))]
            self.draw(_roofline.Roofline("2 threads", points, read, peaks, ["a", "b"]))

    def test_distributions_keep_their_words_apart(self):
        rng = random.Random(5)
        for scale in (1e-3, 1.0, 1e5):
            values = {name: [scale * rng.lognormvariate(0, s) for _ in range(n)]
                      for name, s, n in (("ttft_ms", 2, 300), ("itl_ms", 0.01, 50), ("tpot_ms", 1, 1), ("e2e_ms", 1, 0))}
            self.parse(load_svg.draw("m at h", values, {"ttft_ms": scale, "itl_ms": 3 * scale}))

    def test_every_colour_can_be_seen_in_the_light_and_in_the_dark(self):
        for at in (0, 1):
            paper = charts.COLOURS["paper"][at]
            for name, pair in charts.COLOURS.items():
                if name not in ("paper", "grid"):
                    self.assertGreaterEqual(contrast(pair[at], paper), 4.5, f"{name}, {pair[at]} on {paper}")

    def test_numbers_have_three_digits_that_count(self):
        for value, words in ((0, "0"), (0.01234, "0.0123"), (9.996, "10"), (42.35, "42.4"), (149000, "149,000"), (1.5e6, "1.5 M"),
                             (999.9e6, "1,000 M"), (2.5e9, "2.5 G"), (1e-6, "1.0e-06"), (-3.14159, "-3.14")):
            self.assertEqual(charts.number(value), words)

    def test_ticks_are_round_and_apart(self):
        self.assertEqual(charts.Axis(0, 100, 0, 600).ticks(), [0, 20, 40, 60, 80, 100])
        self.assertEqual([round(v, 6) for v in charts.Axis(1, 100, 0, 600, True).ticks()], [1, 2, 5, 10, 20, 50, 100])
        self.assertEqual(len(charts.Axis(0, 100, 0, 30).ticks(lambda words: 10)), 2)


class Benches(Figures):
    @classmethod
    def setUpClass(cls):
        with open(os.path.join(HERE, "figures_sample.json"), encoding="utf-8") as f:
            cls.samples = json.load(f)

    def test_every_benchmark_draws_what_it_measured(self):
        names = {f.removesuffix(".py") for f in os.listdir(BENCH) if re.match(r"[a-z].*\.py$", f)} - {"all", "compare"}
        self.assertEqual(set(self.samples), names)
        for name in sorted(names):
            with self.subTest(name):
                module = importlib.import_module(name)
                args = _shared.parser(name, module.__doc__).parse_args([])
                panels = module.panels(self.samples[name])
                self.assertTrue(panels)
                root = self.parse(_shared.figure(args, self.samples[name], panels))
                words = [t[0] for t in texts(root)]
                self.assertNotIn("no values", words)
                for panel in panels:
                    if isinstance(panel, charts.Bars):
                        self.assertTrue(panel.title and panel.unit)
                        for values in panel.values:
                            self.assertEqual(len(values), len(panel.groups))
                            for v in filter(None, values):
                                self.assertIn(panel.label(v), words)

    def test_every_benchmark_says_that_it_draws(self):
        for name in self.samples:
            doc = importlib.import_module(name).__doc__
            self.assertIn("--svg FILE", doc, name)
            self.assertIn("--out FILE", doc, name)


if __name__ == "__main__":
    unittest.main()
