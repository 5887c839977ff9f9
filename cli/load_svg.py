# SPDX-License-Identifier: Apache-2.0
"""Distributions of latencies as one SVG: nothing but shapes and text, no script, no font of its own."""
import math
from xml.sax.saxutils import escape

from load_report import TARGETS, percentile

WIDTH, HEIGHT = 460, 230  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 50, 16, 34, 34
N_BINS = 60
MARKS = ((50, "#1a7f37"), (90, "#9a6700"), (99, "#cf222e"))
BAR, INK, GRID, TARGET = "#6ea8d8", "#24292f", "#d8dee4", "#8250df"


class Scale:
    """Milliseconds to x: by logarithm where they span more than a decade."""

    def __init__(self, low, high):
        self.logs = high > 10 * max(low, 1e-3)
        self.low = self.place(low)
        self.high = max(self.place(high), self.low + (0.1 if self.logs else max(1e-3, abs(self.low) * 1e-3)))

    def place(self, value):
        return math.log10(max(value, 1e-3)) if self.logs else value

    def part(self, value):
        return min(1.0, max(0.0, (self.place(value) - self.low) / (self.high - self.low)))

    def x(self, value):
        return LEFT + self.part(value) * (WIDTH - LEFT - RIGHT)

    def ticks(self):
        """Some five round values."""
        if self.logs:
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            firsts = (1,) if self.high - self.low > 4 else (1, 3)
            found = [first * 10.0 ** power for power in powers for first in firsts]
        else:
            rough = (self.high - self.low) / 5
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
            found = [n * step for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [tick for tick in found if self.low <= self.place(tick) <= self.high]


def text(x, y, words, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def line(x0, y0, x1, y1, color, more=""):
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{color}" {more}/>'


def bars(values, scale):
    bins = [0] * N_BINS
    for value in values:
        bins[min(N_BINS - 1, int(scale.part(value) * N_BINS))] += 1
    wide = (WIDTH - LEFT - RIGHT) / N_BINS
    most = max(bins)
    for i, n in enumerate(bins):
        if n:
            high = n / most * (HEIGHT - TOP - BOTTOM)
            yield (f'<rect x="{LEFT + i * wide:.1f}" y="{HEIGHT - BOTTOM - high:.1f}" width="{wide - 0.5:.1f}" '
                   f'height="{high:.1f}" fill="{BAR}"/>')


def panel(title, values, target):
    yield text(LEFT, 16, f"{title}, ms", 'font-weight="bold"')
    bottom = HEIGHT - BOTTOM
    if not values:
        yield text(LEFT, HEIGHT / 2, "no values")
        return
    ordered = sorted(values)
    scale = Scale(min(ordered[0], target or ordered[0]), max(ordered[-1], target or 0))
    for tick in scale.ticks():
        yield line(scale.x(tick), TOP, scale.x(tick), bottom, GRID)
        yield text(scale.x(tick), bottom + 14, f"{tick:g}", 'text-anchor="middle"')
    yield from bars(ordered, scale)
    # The share that is not above: a line over the bars.
    n = len(ordered)
    points = [(scale.x(percentile(ordered, p)), bottom - p / 100 * (bottom - TOP)) for p in range(0, 101)]
    yield (f'<polyline fill="none" stroke="{INK}" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
    for i, (p, color) in enumerate(MARKS):
        value = percentile(ordered, p)
        yield line(scale.x(value), TOP, scale.x(value), bottom, color, 'stroke-dasharray="3 2"')
        yield text(LEFT + i * 120, 29, f"p{p} {value:.4g}", f'fill="{color}"')
    if target:
        yield line(scale.x(target), TOP, scale.x(target), bottom, TARGET, 'stroke-width="2"')
        yield text(LEFT + len(MARKS) * 120 - 20, 29, f"target {target:g}", f'fill="{TARGET}"')
    for share in (0, 50, 100):
        yield text(LEFT - 6, bottom - share / 100 * (bottom - TOP) + 4, f"{share} %", 'text-anchor="end"')
    yield line(LEFT, bottom, WIDTH - RIGHT, bottom, INK)
    yield text(WIDTH - RIGHT, 16, f"{n:,} values", 'text-anchor="end"')


def draw(title, values, targets):
    """@param values  {"ttft_ms": [...], ...} as load_report.latencies() gives
    @return the text of an SVG file"""
    high = 2 * HEIGHT + 30
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {high}" width="{2 * WIDTH}" height="{high}" '
           f'font-family="sans-serif" font-size="11" fill="{INK}">',
           f'<rect width="{2 * WIDTH}" height="{high}" fill="#ffffff"/>', text(LEFT, 18, title, 'font-size="13"')]
    for i, (name, heading) in enumerate(TARGETS):
        out.append(f'<g transform="translate({i % 2 * WIDTH} {30 + i // 2 * HEIGHT})">')
        out.extend(panel(heading, values[name], targets.get(name)))
        out.append("</g>")
    out.append("</svg>")
    return "\n".join(out) + "\n"
