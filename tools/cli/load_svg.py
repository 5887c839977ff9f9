# SPDX-License-Identifier: Apache-2.0
"""Distributions of latencies as one figure."""
import charts
from load_report import TARGETS, percentile

N_BINS = 60
MARKS = ((50, "c2"), (90, "c1"), (99, "c4"))
WORDS_ROOM = 122  # of a percentile's words


class Distribution(charts.Plot):
    """A histogram, the share that is not above as a line over it, percentiles and the target across."""

    LEFT, HIGH = 50, 165

    def __init__(self, title, values, target):
        super().__init__(f"{title}, ms", "", "")
        self.values, self.target = sorted(values), target

    def height(self, wide):
        return self.head_height(wide) + 20 + self.HIGH + 24

    def axis(self, a, b):
        """By logarithm where they span more than a decade."""
        ends = [self.values[0], self.values[-1]] + ([self.target] if self.target else [])
        low, high = max(min(ends), 1e-3), max(max(ends), 1e-3)
        if high > 10 * low:
            return charts.Axis(low, high, a, b, True)
        return charts.Axis(low, high if high > low else low * 1.1, a, b)

    def bars(self, across, up):
        bins, wide = [0] * N_BINS, (across.b - across.a) / N_BINS
        for value in self.values:
            bins[min(N_BINS - 1, max(0, int((across.at(max(value, across.low)) - across.a) / wide)))] += 1
        for i, n in enumerate(bins):
            if n:
                high = n / max(bins) * (up.a - up.b)
                yield charts.rect(across.a + i * wide, up.a - high, wide - 0.5, high, "c0", ' fill-opacity="0.55"')

    def draw(self, x, y, wide):
        out = self.head(x, y, wide)
        top = y + self.head_height(wide)
        if not self.values:
            return out + [charts.text(x, top + 12, "no values", "soft")]
        across = self.axis(x + self.LEFT, x + wide - 24)
        up = charts.Axis(0, 100, top + 20 + self.HIGH, top + 20)
        for tick in across.ticks(lambda words: charts.width(words, charts.SMALL)):
            out.append(charts.line(across.at(tick), up.a, across.at(tick), up.b, "grid"))
            out.append(charts.text(across.at(tick), up.a + 15, charts.number(tick), "soft", charts.SMALL, "middle"))
        for share in (0, 50, 100):
            out.append(charts.text(across.a - 6, up.at(share) + 4, f"{share} %", "soft", charts.SMALL, "end"))
        out.extend(self.bars(across, up))
        points = [(max(percentile(self.values, p), across.low), p) for p in range(0, 101)]
        out.append('<polyline class="bt-ink-line" stroke-width="1.2" points="'
                   + " ".join(f"{across.at(v):.1f},{up.at(p):.1f}" for v, p in points) + '"/>')
        for i, (p, kind) in enumerate(MARKS):
            value = percentile(self.values, p)
            at = across.at(max(value, across.low))
            out.append(charts.line(at, up.b, at, up.a, kind, 1.2, ' stroke-dasharray="3 2"'))
            out.append(charts.text(x + i * WORDS_ROOM * wide / 434, top + 10, f"p{p} {value:.4g}", kind, charts.SMALL))
        if self.target:
            at = across.at(max(self.target, across.low))
            out.append(charts.line(at, up.b, at, up.a, "c3", 2))
            out.append(charts.text(x + wide, top + 10, f"target {self.target:g}", "c3", charts.SMALL, "end"))
        out.append(charts.line(across.a, up.a, across.b, up.a, "soft"))
        out.append(charts.text(x + wide, y + 15, f"{len(self.values):,} values", "soft", charts.SMALL, "end"))
        return out


def draw(title, values, targets):
    """@param values  {"ttft_ms": [...], ...} as load_report.latencies() gives
    @return the text of an SVG file"""
    return charts.figure(title, [], [Distribution(heading, values[name], targets.get(name)) for name, heading in TARGETS], 2)
