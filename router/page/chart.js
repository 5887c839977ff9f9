/* SPDX-License-Identifier: Apache-2.0 */
/* A line chart of the last quarter of an hour. Looked at with a pointer, a finger or the
 * arrow keys; what it shows is said in words for who does not see it. */

import { h, s, setAttribute, setText } from './dom.js';
import { clock, span } from './format.js';

const HEIGHT = 150;
const TOP = 10;
const BOTTOM = 22;
const LEFT = 40; /* at least: the numbers of the scale need more */
const DIGIT = 7.5; /* of them, in px */
const RIGHT = 8;
const WINDOW_MS = 15 * 60 * 1000;

/* The step of a scale that has two to four of them: 1, 2 or 5 of some power. */
function stepOf(most) {
  const power = 10 ** Math.floor(Math.log10(most / 2));
  for (const n of [1, 2, 5, 10]) {
    if (most / (n * power) <= 4) {
      return n * power;
    }
  }
  return 10 * power;
}

/* Nothing here, before and behind: a line of what is rare has no floor. */
function isQuiet(values, at) {
  return !(values[at - 1] > 0 || values[at] > 0 || values[at + 1] > 0);
}

/* Lines of what is known; where nothing is, there is a gap. */
function pathOf(points) {
  let path = '';
  let isOn = false;
  for (const [x, y] of points) {
    if (y === null) {
      isOn = false;
    } else {
      path += `${isOn ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}`;
      path += isOn ? '' : 'h0.01'; /* one alone is a dot, by its round ends */
      isOn = true;
    }
  }
  return path;
}

export class Chart {
  /**
   * @param title  of the figure
   * @param lines  [{name, kind, label, of, isRare}], of(history, model) gives its values; kind is a class
   * @param show   a value as text
   * @param more   {unit, target, most}: unit stands behind the numbers of the scale, target(model) gives the value of a dashed line, most the top of the scale
   */
  constructor(title, lines, show, more = {}) {
    this.title = title;
    this.lines = lines;
    this.show = show;
    this.more = more;
    this.at = null; /* the point that is looked at; null: the last */
    this.width = 0;
    this.left = LEFT;
    this.readings = lines.map((line) => h('span', { class: `reading ${line.kind}` }, h('i'), `${line.label} `, h('b', {}, '–')));
    this.when = h('span', { class: 'when' });
    this.svg = s('svg', { class: 'plot', height: HEIGHT, role: 'img', tabindex: '0' });
    this.grid = s('g', { class: 'plot-grid' });
    this.aim = s('line', { class: 'plot-target' });
    this.paths = lines.map((line) => s('path', { class: `plot-line ${line.kind}` }));
    this.cross = s('line', { class: 'plot-cross', y1: TOP, y2: HEIGHT - BOTTOM });
    this.dots = lines.map((line) => s('circle', { class: `plot-dot ${line.kind}`, r: 3 }));
    this.nothing = s('text', { class: 'plot-none' }, 'Nothing yet');
    this.svg.append(this.grid, this.aim, ...this.paths, this.cross, ...this.dots, this.nothing);
    this.element = h('figure', { class: 'chart' },
      h('figcaption', {}, h('h3', {}, title), h('div', { class: 'readings' }, this.readings, this.when)), this.svg);
    this.listen();
  }

  listen() {
    new ResizeObserver(([entry]) => {
      this.width = Math.floor(entry.contentRect.width);
      this.draw();
    }).observe(this.svg);
    for (const kind of ['pointermove', 'pointerdown']) {
      this.svg.addEventListener(kind, (event) => this.look(event.clientX - this.svg.getBoundingClientRect().left));
    }
    this.svg.addEventListener('pointerleave', () => this.lookAt(null));
    this.svg.addEventListener('blur', () => this.lookAt(null));
    this.svg.addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12, Home: -Infinity, End: Infinity }[event.key];
      if (by !== undefined && this.n > 0) {
        event.preventDefault();
        this.lookAt(Math.min(this.n - 1, Math.max(0, (this.at ?? this.n - 1) + by)));
      }
    });
  }

  get n() {
    return this.history?.unixMs.length ?? 0;
  }

  update(history, model) {
    this.history = history;
    this.model = model;
    this.draw();
  }

  x(unixMs) {
    return this.left + (1 - (this.end - unixMs) / WINDOW_MS) * (this.width - this.left - RIGHT);
  }

  y(value) {
    return TOP + (1 - value / this.top) * (HEIGHT - TOP - BOTTOM);
  }

  look(x) {
    let best = null;
    this.history?.unixMs.forEach((at, i) => {
      if (best === null || Math.abs(this.x(at) - x) < Math.abs(this.x(this.history.unixMs[best]) - x)) {
        best = i;
      }
    });
    this.lookAt(best);
  }

  lookAt(at) {
    this.at = at;
    this.drawReadings();
  }

  draw() {
    if (this.width <= LEFT + RIGHT || this.history === undefined) {
      return;
    }
    const { unixMs } = this.history;
    this.end = unixMs[unixMs.length - 1] ?? 0;
    this.values = this.lines.map((line) => line.of(this.history, this.model));
    const known = this.values.flat().filter((value) => Number.isFinite(value));
    const target = this.more.target?.(this.model) ?? null;
    const most = this.more.most ?? Math.max(...known, target ?? 0, 0);
    const step = stepOf(most > 0 ? most : 1);
    this.top = this.more.most ?? Math.max(step, Math.ceil(most / step) * step);
    this.drawGrid(step);
    setAttribute(this.svg, 'viewBox', `0 0 ${this.width} ${HEIGHT}`);
    this.paths.forEach((path, i) => {
      setAttribute(path, 'd', pathOf(unixMs.map((at, j) => {
        const value = this.values[i][j];
        return [this.x(at), Number.isFinite(value) && !(this.lines[i].isRare && isQuiet(this.values[i], j)) ? this.y(Math.min(value, this.top)) : null];
      })));
    });
    this.drawTarget(target);
    this.nothing.toggleAttribute('hidden', known.length > 0);
    setAttribute(this.nothing, 'x', (this.width + this.left) / 2);
    setAttribute(this.nothing, 'y', HEIGHT / 2);
    this.drawReadings();
    setAttribute(this.svg, 'aria-label', this.words(known));
  }

  drawTarget(target) {
    this.aim.toggleAttribute('hidden', target === null);
    if (target !== null) {
      setAttribute(this.aim, 'x1', this.left);
      setAttribute(this.aim, 'x2', this.width - RIGHT);
      setAttribute(this.aim, 'y1', this.y(target));
      setAttribute(this.aim, 'y2', this.y(target));
    }
  }

  drawGrid(step) {
    const values = [];
    for (let value = 0; value <= this.top * 1.001; value += step) {
      values.push(value);
    }
    const texts = values.map((value) => `${Number(value.toPrecision(6)).toLocaleString('en')}${this.more.unit ?? ''}`);
    this.left = Math.max(LEFT, 10 + DIGIT * Math.max(...texts.map((text) => text.length)));
    const marks = values.flatMap((value, i) => [
      s('line', { x1: this.left, x2: this.width - RIGHT, y1: this.y(value), y2: this.y(value) }),
      s('text', { class: 'plot-y', x: this.left - 8, y: this.y(value) + 4 }, texts[i]),
    ]);
    for (const minutes of [15, 10, 5, 0]) {
      const x = this.left + (1 - minutes / 15) * (this.width - this.left - RIGHT);
      marks.push(s('text', { class: `plot-x${minutes === 0 ? ' last' : minutes === 15 ? ' first' : ''}`, x, y: HEIGHT - 5 }, minutes === 0 ? 'now' : `−${minutes} min`));
    }
    this.grid.replaceChildren(...marks);
  }

  drawReadings() {
    const at = this.at === null ? this.n - 1 : Math.min(this.at, this.n - 1);
    const isLooked = this.at !== null && at >= 0;
    this.lines.forEach((_, i) => {
      const value = this.values?.[i]?.[at];
      setText(this.readings[i].querySelector('b'), Number.isFinite(value) ? this.show(value) : '–');
      this.dots[i].toggleAttribute('hidden', !(isLooked && Number.isFinite(value)));
      if (isLooked && Number.isFinite(value)) {
        setAttribute(this.dots[i], 'cx', this.x(this.history.unixMs[at]));
        setAttribute(this.dots[i], 'cy', this.y(Math.min(value, this.top)));
      }
    });
    this.cross.toggleAttribute('hidden', !isLooked);
    if (isLooked) {
      const x = this.x(this.history.unixMs[at]);
      setAttribute(this.cross, 'x1', x);
      setAttribute(this.cross, 'x2', x);
    }
    setText(this.when, isLooked ? clock(this.history.unixMs[at]) : '');
  }

  words(known) {
    if (known.length === 0) {
      return `${this.title}: nothing yet.`;
    }
    const told = this.lines.map((line, i) => {
      const values = this.values[i].filter((value) => Number.isFinite(value));
      return values.length === 0 ? `${line.name}: nothing`
        : `${line.name}: now ${this.show(values[values.length - 1])}, between ${this.show(Math.min(...values))} and ${this.show(Math.max(...values))}`;
    });
    return `${this.title}, the last ${span(Math.min(WINDOW_MS, this.n * this.history.stepMs))}. ${told.join('; ')}.`;
  }
}
