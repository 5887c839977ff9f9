# SPDX-License-Identifier: Apache-2.0
"""Figures as SVG: bars with ranges, lines, and what other kinds of panels are made of.

    figure(title, subtitle, [Bars(...), Lines(...)]) ── the text of a file

A figure is panels, one under another or in columns. It has no script, no font of its own and
asks for nothing outside; its colours follow the reader's, light or dark. No two texts lie on
each other: labels of bars stand in a column as wide as the widest of them, legends go over
several lines, and ticks that would touch are left out. How wide a text is can only be
estimated, since the reader's font is not known: width() has the advances of a wide one.
"""
import html
import math

WIDTH = 900
MARGIN, GAP = 16, 14  # at the edges of a figure, between two panels
SIZE, SMALL = 12, 11
N_COLOURS = 8
# (light, dark): each at least 4.5:1 in contrast to the paper, since texts have them too (tests/bench checks it).
COLOURS = {
    "paper": ("#ffffff", "#14171c"), "ink": ("#1f2328", "#e8eaed"), "soft": ("#596069", "#a5adb7"),
    "grid": ("#dfe3e8", "#2d333b"),
    "c0": ("#1f6fc4", "#5aa4f0"), "c1": ("#b5500b", "#f0924a"), "c2": ("#1a7a48", "#4fc487"), "c3": ("#7a4fc9", "#ab8cf5"),
    "c4": ("#c4323f", "#f47a80"), "c5": ("#0f7480", "#43bfd0"), "c6": ("#856012", "#d2ab52"), "c7": ("#636b75", "#9aa4b0"),
}


def rules(at):
    return "".join(f".bt-{name}{{fill:{pair[at]}}}.bt-{name}-line{{stroke:{pair[at]};fill:none}}" for name, pair in COLOURS.items())


STYLE = f"{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}"


# ---- texts ----

def width(words, size=SIZE):
    """Pixels, of a wide sans serif."""
    total = 0.0
    for c in words:
        total += (0.33 if c in "ijl.,:;'|!" else 0.42 if c in "frtI()[]/- " else 0.98 if c in "mwMW%@" else
                  0.72 if c.isupper() else 0.64)
    return total * size


def fit(words, room, size=SIZE):
    """The words, or their begin with an ellipsis."""
    if width(words, size) <= room:
        return words
    while words and width(words + "…", size) > room:
        words = words[:-1]
    return words.rstrip() + "…"


def wrap(words, room, size=SIZE):
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return [fit(line, room, size) for line in lines]


def number(value):
    """Three digits that count: 0.0123, 1.5, 66,042; 149 M."""
    size = abs(value)
    if size >= 1e6:
        for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
            if size >= unit:
                return f"{value / unit:.3g} {name}" if size < 999.5 * unit else f"{value / unit:,.0f} {name}"
    if size >= 99.95 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.3g}" if size >= 1e-4 else f"{value:.1e}"


# ---- shapes ----

def text(x, y, words, kind="ink", size=SIZE, anchor="start", more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" class="bt-{kind}"{more}>'
            f"{html.escape(words)}</text>")


def turned(x, y, words, degrees=-90.0, kind="soft"):
    return text(x, y, words, kind, anchor="middle", more=f' transform="rotate({degrees:.1f} {x:.1f} {y:.1f})"')


def line(x1, y1, x2, y2, kind, wide=1.0, more=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="bt-{kind}-line" '
            f'stroke-width="{wide:g}"{more}/>')


def rect(x, y, wide, high, kind, more=""):
    return f'<rect x="{x:.2f}" y="{y:.1f}" width="{wide:.2f}" height="{high:.1f}" class="bt-{kind}"{more}/>'


def mark(i, x, y):
    """Of a point of series i: shapes differ too, for who does not tell the colours apart."""
    kind = f"c{i % N_COLOURS}"
    if i % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="bt-{kind}"/>'
    if i % 4 == 1:
        return rect(x - 4, y - 4, 8, 8, kind)
    if i % 4 == 2:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" class="bt-{kind}-line" stroke-width="2"/>'
    return (f'<path d="M{x:.1f} {y - 6:.1f}L{x + 6:.1f} {y:.1f}L{x:.1f} {y + 6:.1f}L{x - 6:.1f} {y:.1f}Z" '
            f'class="bt-{kind}-line" stroke-width="2"/>')


# ---- axes ----

class Axis:
    """From `low` to `high` on pixels a to b."""

    def __init__(self, low, high, a, b, log=False):
        self.low, self.high, self.a, self.b, self.log = low, high, a, b, log

    def at(self, value):
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.a + (self.b - self.a) * share

    def candidates(self):
        if not self.log:
            rough = (self.high - self.low) / 6
            power = 10.0 ** math.floor(math.log10(rough))
            step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
            first = math.ceil(self.low / step - 1e-9)
            return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = math.log10(self.high / self.low)
        digits = (1, 2, 5) if decades <= 3 else (1,)
        powers = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1)
        return [digit * 10.0 ** power for power in powers for digit in digits
                if self.low * (1 - 1e-9) <= digit * 10.0 ** power <= self.high * (1 + 1e-9)]

    def ticks(self, room=None):
        """Round values whose labels do not touch. room: pixels of a label, by its words; that of a line if not told"""
        room = room or (lambda words: SMALL)
        out, end, before = [], -math.inf, None
        for value in self.candidates():
            at, half = abs(self.at(value) - self.a), room(number(value)) / 2 + 4
            if at - half >= end and number(value) != before:
                out.append(value)
                end, before = at + half, number(value)
        return out


def span(values, log, zero=True):
    """@return (low, high) of an axis that all values lie on"""
    low, high = min(values), max(values)
    if log:
        low, high = 10.0 ** math.floor(math.log10(low) - 0.15), high * 1.05
        return low, max(high, low * 10)
    low = min(0.0, low) if zero or low > high - 1e-12 else low
    return low, high if high > low else low + 1.0


def is_wide(values):
    """Whether they span more than a linear axis shows. Zeros are told beside a logarithmic one, which has no place for them."""
    above = [v for v in values if v > 0]
    return bool(above) and min(values) >= 0 and max(above) / min(above) > 60


# ---- what panels share ----

def legend_lines(names, room):
    """@return [[(i, name, x)]]: one list a line"""
    lines, x = [[]], 0.0
    for i, name in enumerate(names):
        name = fit(name, room - 18)
        wide = 18 + width(name) + 16
        if lines[-1] and x + wide > room:
            lines.append([])
            x = 0.0
        lines[-1].append((i, name, x))
        x += wide
    return lines


class Panel:
    """A title, a legend where there is more than one series, and the plot below them."""

    series = ()  # names

    def __init__(self, title):
        self.title = title

    def legend_names(self):
        return list(self.series) if len(self.series) > 1 else []

    def head_height(self, wide):
        names = self.legend_names()
        return 24 + 18 * len(wrap(self.title, wide, 14)) - 18 + (20 * len(legend_lines(names, wide)) if names else 0)

    def legend_mark(self, i, x, y):
        return rect(x, y - 9, 10, 10, f"c{i % N_COLOURS}")

    def head(self, x, y, wide):
        """@return elements; the plot begins head_height() below y"""
        out = []
        lines = wrap(self.title, wide, 14)
        for i, words in enumerate(lines):
            out.append(text(x, y + 15 + 18 * i, words, size=14, more=' font-weight="600"'))
        names = self.legend_names()
        top = y + 24 + 18 * (len(lines) - 1)
        for row, entries in enumerate(legend_lines(names, wide) if names else []):
            for i, name, at in entries:
                out.append(self.legend_mark(i, x + at, top + 12 + 20 * row))
                out.append(text(x + at + 16, top + 12 + 20 * row, name))
        return out


def spread(value):
    """Of a figure, or (figure, low, high). @return all three, or None where there is none"""
    figure, low, high = value if isinstance(value, (tuple, list)) else (value, value, value)
    if figure is None or not math.isfinite(figure):
        return None
    low, high = (figure if x is None or not math.isfinite(x) else x for x in (low, high))
    return figure, min(low, figure), max(high, figure)


class Bars(Panel):
    """Grouped bars, one group under another, so that names have room.

    groups: their names. series: [(name, [value or (value, low, high) or None, one for each group])].
    unit: of the axis. log: None lets the values say. mark: (value, name) of a line across all bars.
    Where bars lie on a logarithmic axis it says so, since their lengths then tell no ratios."""

    BAR, BETWEEN, TAIL = 15, 9, 40

    def __init__(self, title, unit, groups, series, log=None, mark=None):
        super().__init__(title)
        self.unit, self.groups, self.reference = unit, [str(g) for g in groups], mark
        self.values = [[spread(v) for v in values] for _, values in series]
        self.series = [name for name, _ in series]
        known = [x for values in self.values for v in values if v for x in v] + ([mark[0]] if mark else [])
        self.log = is_wide(known) if log is None else log and any(x > 0 for x in known) and min(known) >= 0
        self.known = [x for x in known if x > 0] if self.log else known

    def group_height(self):
        return self.BAR * len(self.series) + self.BETWEEN

    def mark_height(self):
        return 16 if self.reference and self.known else 0

    def height(self, wide):
        if not self.known:
            return self.head_height(wide) + 24
        return self.head_height(wide) + self.mark_height() + self.group_height() * len(self.groups) + self.TAIL

    def label(self, value):
        """The figure and its range."""
        if value is None:
            return "none"
        figure, low, high = map(number, value)
        if low == figure == high:
            return figure
        return f"{figure} to {high}" if low == figure else f"{figure} ({low} to {high})"

    def draw(self, x, y, wide):
        out = self.head(x, y, wide)
        top = y + self.head_height(wide) + self.mark_height()
        if not self.known:
            return out + [text(x, top + 14, "no values", "soft")]
        room = min(0.4 * wide, max(width(g) for g in self.groups) + 10)
        right = max(width(self.label(v)) for values in self.values for v in values) + 12
        axis = Axis(*span(self.known, self.log), x + room, x + wide - right, self.log)
        bottom = top + self.group_height() * len(self.groups)
        for tick in axis.ticks(lambda words: width(words, SMALL)):
            out.append(line(axis.at(tick), top, axis.at(tick), bottom, "grid"))
            out.append(text(axis.at(tick), bottom + 14, number(tick), "soft", SMALL, "middle"))
        out.append(text((axis.a + axis.b) / 2, bottom + 31, self.unit + (" (logarithmic)" if self.log else ""), "soft", anchor="middle"))
        for g, name in enumerate(self.groups):
            at = top + self.group_height() * g + self.BETWEEN / 2
            out.append(text(x + room - 8, at + self.BAR * len(self.series) / 2 + 4, fit(name, room - 10), anchor="end"))
            for s, values in enumerate(self.values):
                out += self.bar(axis, s, values[g], at + self.BAR * s, f"{name}, {self.series[s]}")
        out.append(line(axis.at(axis.low), top, axis.at(axis.low), bottom, "soft"))
        if self.reference:
            at = axis.at(max(self.reference[0], axis.low) if self.log else self.reference[0])
            out.append(line(at, top, at, bottom, "ink", 1.5, ' stroke-dasharray="4 3"'))
            words = fit(self.reference[1], wide)
            half = width(words, SMALL) / 2
            out.append(text(min(max(at, x + half), x + wide - half), top - 5, words, "ink", SMALL, "middle"))
        return out

    def bar(self, axis, s, value, y, what):
        def place(x):
            return axis.at(max(x, axis.low) if self.log else x)

        zero = axis.at(axis.low if self.log else 0.0)
        if value is None:
            return [text(zero + 5, y + 11, self.label(value), "soft", SMALL)]
        figure, low, high = value
        at = place(figure)
        hint = f"{what}: {figure:.6g}" + (f", {low:.6g} to {high:.6g}" if low < high else "")
        out = [f'<g><title>{html.escape(hint)}</title>'
               + rect(min(zero, at), y + 1.5, abs(at - zero), self.BAR - 3, f"c{s % N_COLOURS}") + "</g>"]
        if low < high:
            middle = y + self.BAR / 2
            out.append(line(place(low), middle, place(high), middle, "ink", 1.5))
            out += [line(place(end), middle - 3.5, place(end), middle + 3.5, "ink", 1.5) for end in (low, high)]
        out.append(text(max(place(high), zero) + 6, y + 11.5, self.label(value), size=SMALL))
        return out


class Plot(Panel):
    """Two axes and what lies between them."""

    LEFT, RIGHT, BOTTOM, HIGH = 66, 12, 44, 250

    def __init__(self, title, x_label, y_label):
        super().__init__(title)
        self.x_label, self.y_label = x_label, y_label

    def legend_mark(self, i, x, y):
        return mark(i, x + 5, y - 4)

    def height(self, wide):
        return self.head_height(wide) + self.HIGH + self.BOTTOM

    def grid(self, x, y):
        out = []
        for value in x.ticks(lambda words: width(words, SMALL)):
            out.append(line(x.at(value), y.a, x.at(value), y.b, "grid"))
            out.append(text(x.at(value), y.a + 16, number(value), "soft", SMALL, "middle"))
        for value in y.ticks():
            out.append(line(x.a, y.at(value), x.b, y.at(value), "grid"))
            out.append(text(x.a - 7, y.at(value) + 4, number(value), "soft", SMALL, "end"))
        out.append(line(x.a, y.a, x.b, y.a, "soft"))
        out.append(line(x.a, y.a, x.a, y.b, "soft"))
        out.append(text((x.a + x.b) / 2, y.a + 34, self.x_label, "soft", anchor="middle"))
        out.append(turned(x.a - self.LEFT + 11, (y.a + y.b) / 2, self.y_label))
        return out


class Lines(Plot):
    """series: [(name, [(x, y) or (x, y, low, high)])]"""

    def __init__(self, title, x_label, y_label, series, log_x=False, log_y=False):
        super().__init__(title, x_label, y_label)
        self.series = [name for name, _ in series]
        self.points = [[(p[0], *spread(p[1:] if len(p) > 2 else p[1])) for p in points if spread(p[1:] if len(p) > 2 else p[1])]
                       for _, points in series]
        self.log_x, self.log_y = log_x, log_y

    def height(self, wide):
        return super().height(wide) if any(self.points) else self.head_height(wide) + 24

    def draw(self, x, y, wide):
        out = self.head(x, y, wide)
        top = y + self.head_height(wide)
        if not any(self.points):
            return out + [text(x, top + 14, "no values", "soft")]
        xs = [p[0] for points in self.points for p in points]
        ys = [v for points in self.points for p in points for v in p[1:]]
        low, high = (min(xs) / 1.15, max(xs) * 1.15) if self.log_x else span(xs, False, zero=False)
        across = Axis(low, high, x + self.LEFT, x + wide - self.RIGHT, self.log_x)
        up = Axis(*span(ys, self.log_y), top + self.HIGH, top + 8, self.log_y)
        out += self.grid(across, up)
        for i, points in enumerate(self.points):
            kind = f"c{i % N_COLOURS}"
            at = [(across.at(p[0]), *(up.at(v) for v in p[1:])) for p in points]
            out.append('<polyline points="' + " ".join(f"{p[0]:.1f},{p[1]:.1f}" for p in at)
                       + f'" class="bt-{kind}-line" stroke-width="2"/>')
            for px, py, p_low, p_high in at:
                if p_low != p_high:
                    out.append(line(px, p_low, px, p_high, kind, 1.5))
                out.append(mark(i, px, py))
        return out


def figure(title, subtitle, panels, columns=1):
    """@param subtitle  one string a paragraph; long ones go over several lines
    @return the text of an SVG file"""
    inner = WIDTH - 2 * MARGIN
    y = MARGIN + 4.0
    head = []
    for words in wrap(title, inner, 16):
        head.append(text(MARGIN, y + 14, words, size=16, more=' font-weight="600"'))
        y += 22
    for paragraph in [subtitle] if isinstance(subtitle, str) else subtitle:
        for words in wrap(paragraph, inner):
            head.append(text(MARGIN, y + 12, words, "soft"))
            y += 17
    y += GAP
    wide = (inner - (columns - 1) * 2 * GAP) / columns
    out = []
    for i in range(0, len(panels), columns):
        row = panels[i:i + columns]
        for j, panel in enumerate(row):
            out += panel.draw(MARGIN + j * (wide + 2 * GAP), y, wide)
        y += max(panel.height(wide) for panel in row) + GAP
    name, told = html.escape(title), html.escape("; ".join(panel.title for panel in panels))
    high = math.ceil(y)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" width="{WIDTH}" height="{high}" '
            f'font-family="system-ui, sans-serif" role="img" aria-label="{name}">\n'
            f"<title>{name}</title>\n<desc>{told}</desc>\n<style>{STYLE}</style>\n"
            f'<rect width="{WIDTH}" height="{high}" class="bt-paper"/>\n' + "\n".join(head + out) + "\n</svg>\n")
