# SPDX-License-Identifier: Apache-2.0
"""Roofline diagrams: operations per byte against operations per second.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance
model for multicore architectures", CACM 52(4), 2009.
"""
import html
import math

from _shared import charts

ROOFS = ("c4", "c6", "c7")
LABEL = charts.SMALL


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def box_of(px, py, words):
    """Of a text that begins at (px, py): about."""
    return px, py - 10, px + charts.width(words, LABEL), py + 3


class Roofline(charts.Plot):
    """points: [{"label", "x", "y", "series"}]. read: GB/s, the slope. peaks: [(name, GOPS)]. series: names in the order of
    their marks. memory: what the slope is called."""

    HIGH, LEFT = 330, 72

    def __init__(self, title, points, read, peaks, series, memory="read-only stream"):
        super().__init__(title, "operations per byte (logarithmic)", "GOPS (logarithmic)")
        self.points, self.read, self.peaks, self.series, self.memory = points, read, peaks, list(series), memory

    def axes(self, x, top, wide):
        xs, ys = ([p[at] for p in self.points] for at in ("x", "y"))
        highest = max(peak for _, peak in self.peaks)
        across = charts.Axis(min(xs + [1.0]) / 1.5, max(xs + [highest / self.read]) * 4, x + self.LEFT, x + wide - self.RIGHT, True)
        up = charts.Axis(min(ys + [p for _, p in self.peaks]) / 2, max(ys + [highest]) * 1.6, top + self.HIGH, top + 8, True)
        return across, up

    def roofs(self, x, y):
        """The slope of the memory up to the highest roof, and a level line for each peak. @return (elements, boxes)"""
        out, taken = [], []
        top = max(peak for _, peak in self.peaks)
        # From the left or the lower edge, whichever it meets first.
        start = max(x.low, y.low / self.read)
        out.append(charts.line(x.at(start), y.at(start * self.read), x.at(top / self.read), y.at(top), ROOFS[0], 2))
        # Its words go along it.
        slope = math.degrees(math.atan2(y.at(2 * self.read) - y.at(self.read), x.at(2) - x.at(1)))
        middle = math.sqrt(start * top / self.read)
        px, py = x.at(middle) - 5, y.at(middle * self.read) - 8
        words = f"{self.memory} {charts.number(self.read)} GB/s"
        out.append(charts.turned(px, py, words, slope, ROOFS[0]))
        for step in range(-5, 6):  # along it
            along = step / 5 * charts.width(words) / 2
            cx, cy = px + along * math.cos(math.radians(slope)), py + along * math.sin(math.radians(slope))
            taken.append((cx - 14, cy - 14, cx + 14, cy + 8))
        below = -math.inf
        for (name, peak), kind in sorted(zip(self.peaks, ROOFS), key=lambda r: -r[0][1]):
            out.append(charts.line(x.at(peak / self.read), y.at(peak), x.b, y.at(peak), kind, 2))
            words = f"{name} multiply-add {charts.number(peak)} GOPS"
            at = y.at(peak) - 6
            # Below it, where the slope would run through its words or those of the roofs above would be met.
            if at - 12 < below or x.b - 4 - charts.width(words) < x.at(peak / self.read):
                at = max(y.at(peak) + 14, below + 13)
            below = at + 4
            out.append(charts.text(x.b - 4, at, words, kind, anchor="end"))
            taken.append((x.at(peak / self.read), y.at(peak) - 1, x.b, y.at(peak) + 1))
            taken.append((x.b - 4 - charts.width(words), at - 12, x.b, at + 4))
        return out, taken

    def labels(self, x, y, taken):
        """@return [(point, px, py)]: beside each point, or else where least is in the way; none where a text is"""
        marks = [(x.at(p["x"]) - 6, y.at(p["y"]) - 6, x.at(p["x"]) + 6, y.at(p["y"]) + 6) for p in self.points]
        words, out = list(taken), []
        for p in self.points:
            if not p["label"]:
                continue
            px, py, wide = x.at(p["x"]), y.at(p["y"]), charts.width(p["label"], LABEL)
            places = [(px + 9, py + 4), (px - wide / 2, py + 19), (px - wide / 2, py - 10), (px - 9 - wide, py + 4),
                      (px + 6, py + 17), (px + 6, py - 9), (px - wide / 2, py + 32), (px - wide / 2, py - 24)]
            best = None
            for place in places:
                box = box_of(*place, p["label"])
                if box[0] < x.a or box[2] > x.b or box[3] > y.a or any(overlap(box, t) for t in words):
                    continue
                cost = sum(overlap(box, m) for m in marks)
                if best is None or cost < best[0]:
                    best = (cost, place, box)
            if best:
                words.append(best[2])
                out.append((p, *best[1]))
        return out

    def draw(self, x, y, wide):
        out = self.head(x, y, wide)
        across, up = self.axes(x, y + self.head_height(wide), wide)
        out += self.grid(across, up)
        roofs, taken = self.roofs(across, up)
        out += roofs
        for p in self.points:
            hint = f"{p['label'] or p['series']}: {p['y']:.4g} GOPS at {p['x']:.4g} operations per byte"
            out.append(f"<g><title>{html.escape(hint)}</title>"
                       + charts.mark(self.series.index(p["series"]), across.at(p["x"]), up.at(p["y"])) + "</g>")
        for p, px, py in self.labels(across, up, taken):
            out.append(charts.text(px, py, p["label"], f"c{self.series.index(p['series']) % charts.N_COLOURS}", LABEL))
        return out
