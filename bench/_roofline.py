# SPDX-License-Identifier: Apache-2.0
"""Roofline diagrams as SVG: operations per byte against operations per second.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance
model for multicore architectures", CACM 52(4), 2009.
"""
import html
import math

# Each at least 3:1 in contrast on white and on the usual dark backgrounds (tests/bench checks it),
# so that a diagram needs no background of its own.
TEXT = "#76787d"
GRID = "#808488"
SERIES = ("#2b7fd4", "#c9611b", "#7a5cd6", "#19884f")
ROOFS = ("#cf3f4f", "#96721a", "#8a6a8a")
WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 74, 24, 46, 52


class Axis:
    """A logarithmic axis from `low` to `high` on pixels a to b."""

    def __init__(self, low, high, a, b):
        self.low, self.high, self.a, self.b = low, high, a, b

    def at(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.a + (self.b - self.a) * share

    def ticks(self):
        first = math.floor(math.log10(self.low)) - 1
        for decade in range(first, math.ceil(math.log10(self.high)) + 1):
            for digit in (1, 2, 5):
                value = digit * 10.0 ** decade
                if self.low <= value <= self.high:
                    yield value


def number(value):
    return f"{value:.0f}" if value >= 1 else f"{value:g}"


def text(x, y, words, size=12, anchor="start", colour=TEXT, more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{more}>'
            f"{html.escape(words)}</text>")


def line(x1, y1, x2, y2, colour, width=1.0, more=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width}"{more}/>')


def mark(kind, x, y, colour):
    if kind == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'
    if kind == 1:
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{colour}"/>'
    if kind == 2:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="{colour}" stroke-width="2"/>'
    path = f"M{x:.1f} {y - 6:.1f}L{x + 6:.1f} {y:.1f}L{x:.1f} {y + 6:.1f}L{x - 6:.1f} {y:.1f}Z"
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def grid(x, y):
    out = []
    for value in x.ticks():
        out.append(line(x.at(value), y.a, x.at(value), y.b, GRID, 0.5, ' stroke-dasharray="1 3"'))
        out.append(text(x.at(value), y.a + 18, number(value), 11, "middle"))
    for value in y.ticks():
        out.append(line(x.a, y.at(value), x.b, y.at(value), GRID, 0.5, ' stroke-dasharray="1 3"'))
        out.append(text(x.a - 8, y.at(value) + 4, number(value), 11, "end"))
    out.append(line(x.a, y.a, x.b, y.a, GRID))
    out.append(line(x.a, y.a, x.a, y.b, GRID))
    return out


def roofs(chart, x, y):
    """The slope of the memory up to the highest roof, and a level line for each peak."""
    out = []
    read = chart["read"]
    top = max(peak for _, peak in chart["peaks"])
    # From the left or the lower edge, whichever it meets first.
    start = max(x.low, y.low / read)
    out.append(line(x.at(start), y.at(start * read), x.at(top / read), y.at(top), ROOFS[0], 2))
    middle = math.sqrt(start * top / read)
    slope = math.degrees(math.atan2(y.at(2 * read) - y.at(read), x.at(2) - x.at(1)))
    px, py = x.at(middle), y.at(middle * read) - 8
    out.append(text(px, py, f"{chart.get('memory', 'read-only stream')} {read:.1f} GB/s", 12, "middle", ROOFS[0],
                    f' transform="rotate({slope:.1f} {px:.1f} {py:.1f})"'))
    for (name, peak), colour in zip(chart["peaks"], ROOFS):
        out.append(line(x.at(peak / read), y.at(peak), x.b, y.at(peak), colour, 2))
        out.append(text(x.b - 4, y.at(peak) - 6, f"{name} multiply-add {peak:.0f} GOPS", 12, "end", colour))
    return out


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def box_of(px, py, words):
    """Of a text that begins at (px, py), size 11: about."""
    return px, py - 9, px + 6.3 * len(words), py + 3


def labels(chart, points, x, y):
    """@return [(point, px, py)]: beside each point, or else where least is in the way"""
    taken = [(x.at(p["x"]) - 6, y.at(p["y"]) - 6, x.at(p["x"]) + 6, y.at(p["y"]) + 6) for p in chart["points"]]
    for name, peak in chart["peaks"]:
        taken.append((x.at(peak / chart["read"]), y.at(peak) - 1, x.b, y.at(peak) + 1))
        taken.append((x.b - 7 * len(f"{name} multiply-add 0000 GOPS"), y.at(peak) - 18, x.b, y.at(peak)))
    out = []
    for p in points:
        px, py, width = x.at(p["x"]), y.at(p["y"]), 6.3 * len(p["label"])
        places = [(px + 9, py + 4), (px - width / 2, py + 18), (px - width / 2, py - 10), (px - 9 - width, py + 4),
                  (px + 6, py + 16), (px + 6, py - 8), (px - width / 2, py + 31), (px - width / 2, py - 23)]
        boxes = [box_of(*place, p["label"]) for place in places]
        cost = [(sum(overlap(box, t) for t in taken) + 9 * (box[2] > x.b), i) for i, box in enumerate(boxes)]
        best = min(cost)[1]
        taken.append(boxes[best])
        out.append((p, *places[best]))
    return out


def draw(chart, top, names):
    xs = [p["x"] for p in chart["points"]]
    ys = [p["y"] for p in chart["points"]]
    highest = max(peak for _, peak in chart["peaks"])
    x = Axis(min(xs + [1.0]) / 1.5, max(xs + [highest / chart["read"]]) * 4, LEFT, WIDTH - RIGHT)
    y = Axis(min(ys + [p for _, p in chart["peaks"]]) / 2, max(ys + [highest]) * 1.6, top + HEIGHT - BOTTOM, top + TOP)
    out = [text(LEFT, top + 24, chart["title"], 15, more=' font-weight="bold"')]
    out += grid(x, y) + roofs(chart, x, y)
    for p in chart["points"]:
        i = names.index(p["series"])
        out.append(mark(i, x.at(p["x"]), y.at(p["y"]), SERIES[i]))
    for p, px, py in labels(chart, [p for p in chart["points"] if p["label"]], x, y):
        out.append(text(px, py, p["label"], 11, colour=SERIES[names.index(p["series"])]))
    at = LEFT + 150
    for i, name in enumerate(names):
        out.append(mark(i, at, top + 20, SERIES[i]))
        out.append(text(at + 10, top + 24, name))
        at += 30 + 7 * len(name)
    out.append(text((LEFT + WIDTH - RIGHT) / 2, top + HEIGHT - 14, "operations per byte", 12, "middle"))
    middle = top + (TOP + HEIGHT - BOTTOM) / 2
    out.append(text(18, middle, "GOPS", 12, "middle", more=f' transform="rotate(-90 18 {middle:.1f})"'))
    return out


def svg(title, subtitle, series, charts):
    """series: names, at most four; the third and fourth have hollow marks.
    charts: {"title", "read" (GB/s), "peaks": [(name, GOPS)], "points": [{"label", "x", "y", "series"}],
    and "memory", what the slope is called, if that is no read-only stream}"""
    height = 50 + HEIGHT * len(charts)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
           f'height="{height}" font-family="system-ui, sans-serif" role="img">',
           f"<title>{html.escape(title)}</title>", text(LEFT, 24, title, 14), text(LEFT, 42, subtitle, 12)]
    for i, chart in enumerate(charts):
        out += draw(chart, 50 + HEIGHT * i, series)
    return "\n".join(out) + "\n</svg>\n"
