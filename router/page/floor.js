/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster drawn: the router, the workers by what they do, and KV on its way between
 * them. The workers are cards in a grid; what moves is an SVG above it, which has no
 * part in the layout and is empty where motion is not wanted.
 *
 *                router
 *     prefill ══ hand-over ══▶ decode
 *              both phases
 */

import { h, s, setAttribute, setText } from './dom.js';
import { bytes, count, ms, plural, span } from './format.js';
import { WorkerCard } from './worker.js';

const GONE_MS = 15000;  /* so long a worker that went is still shown as such */
const FLIGHT_MS = 900;
const GAP_MS = 60;
const AROUND = 22;      /* pixels */
const MOST_FLIGHTS = 40;
const MOST_OPEN = 200;
const LATELY_MS = 10000;
const byName = new Intl.Collator('en', { numeric: true });
const CALM = matchMedia('(prefers-reduced-motion: reduce)');

const ZONES = [
  { role: 'prefill', title: 'Prefill', note: 'context phase, first token' },
  { role: 'decode', title: 'Decode', note: 'all further tokens' },
  { role: 'both', title: 'Both phases', note: 'whole requests' },
];

function placeOf(box, from) {
  return { left: box.left - from.left, right: box.right - from.left, y: (box.top + box.bottom) / 2 - from.top };
}

/* A bend from one card to another: across where they stand beside each other, around at
 * the right where they stand above. @return the four points of a Bézier curve */
function bend(a, b) {
  if (b.left >= a.right || b.right <= a.left) {
    const isRight = b.left >= a.right;
    const x0 = isRight ? a.right : a.left;
    const x1 = isRight ? b.left : b.right;
    const pull = (x1 - x0) / 2;
    return [[x0, a.y], [x0 + pull, a.y], [x1 - pull, b.y], [x1, b.y]];
  }
  const out = Math.max(a.right, b.right) + AROUND;
  return [[a.right, a.y], [out, a.y], [out, b.y], [b.right, b.y]];
}

function at(points, t) {
  const u = 1 - t;
  const weights = [u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t];
  return [0, 1].map((axis) => points.reduce((sum, point, i) => sum + weights[i] * point[axis], 0));
}

function pathOf(points) {
  const [a, b, c, d] = points.map((point) => point.map((x) => x.toFixed(1)).join(' '));
  return `M${a}C${b} ${c} ${d}`;
}

export class Floor {
  constructor() {
    this.cards = new Map();   /* by name of the worker */
    this.gone = new Map();    /* name: until when */
    this.flights = new Set();
    this.open = new Map();    /* hand-overs that began: {line, from, to} */
    this.lately = [];         /* times of those that ended */
    this.frame = 0;
    this.routerCard = this.buildRouter();
    this.zones = new Map(ZONES.map((zone) => [zone.role, this.buildZone(zone)]));
    this.lines = s('g');
    this.dots = s('g');
    this.overlay = s('svg', { class: 'flights', 'aria-hidden': 'true' }, this.lines, this.dots);
    this.said = h('p', { class: 'handover-line' });
    this.stage = h('div', { class: 'stage' }, this.routerCard.element, [...this.zones.values()].map((zone) => zone.element), this.overlay);
    this.element = h('section', { class: 'floor', 'aria-label': 'Routers and workers' }, this.stage, this.said);
    new ResizeObserver(() => this.redrawOpen()).observe(this.stage);
    CALM.addEventListener('change', () => this.clear());
    this.sayHandovers();
  }

  buildRouter() {
    const name = h('h3', { class: 'worker-name' });
    const state = h('span', { class: 'state' });
    const facts = Object.fromEntries([['running', 'Running'], ['waiting', 'Waiting'], ['arriving', 'Arriving'], ['connections', 'Connections']]
      .map(([key, label]) => [key, { value: h('b'), label }]));
    const note = h('p', { class: 'worker-note' });
    const card = h('article', { class: 'worker router' }, h('div', { class: 'worker-head' }, name, state),
      h('div', { class: 'facts' }, Object.values(facts).map(({ value, label }) => h('div', { class: 'fact' }, h('span', { class: 'fact-label' }, label), value))), note);
    const element = h('div', { class: 'zone router' }, h('div', { class: 'zone-head' }, h('h2', {}, 'Router'), h('span', { class: 'note' }, 'this one; others tell of themselves')), card);
    return { element, card, name, state, facts, note };
  }

  buildZone({ role, title, note }) {
    const grid = h('div', { class: 'cards' });
    const number = h('span', { class: 'zone-count' });
    const none = h('p', { class: 'zone-none' }, role === 'both' ? '' : `No ${role} worker`);
    const element = h('div', { class: `zone ${role}` }, h('div', { class: 'zone-head' }, h('h2', {}, title), number, h('span', { class: 'note' }, note)), grid, none);
    return { element, grid, number, none };
  }

  /* ---- what is here ---- */

  update(snapshot) {
    this.showRouter(snapshot);
    const now = snapshot.now_unix_ms;
    const seen = new Set();
    for (const worker of snapshot.workers) {
      const key = `${worker.model ?? ''}/${worker.name}`;
      seen.add(key);
      this.gone.delete(key);
      this.showWorker(key, worker, now);
    }
    for (const [key, card] of this.cards) {
      if (!seen.has(key)) {
        this.showGone(key, card, now);
      }
    }
    this.showZones();
    this.sayHandovers();
  }

  showRouter({ router, queue, now_unix_ms: now }) {
    const { card, name, state, facts, note } = this.routerCard;
    setText(name, router.name);
    setText(state, String(router.state).replace('_', ' '));
    setAttribute(card, 'data-state', router.state);
    card.classList.toggle('bad', router.state !== 'ready');
    setText(facts.running.value, count(queue.running));
    setText(facts.waiting.value, count(queue.waiting));
    setText(facts.arriving.value, count(queue.arriving));
    setText(facts.connections.value, count(router.connections));
    setText(note, `version ${router.version} · up ${span(router.start_unix_ms > 0 ? now - router.start_unix_ms : router.uptime_ms)}`);
  }

  showWorker(key, worker, now) {
    let card = this.cards.get(key);
    if (card === undefined) {
      card = new WorkerCard(worker);
      this.cards.set(key, card);
    }
    card.update(worker, now);
    const zone = this.zones.get(worker.role) ?? this.zones.get('both');
    if (card.element.parentNode !== zone.grid) {
      const next = [...zone.grid.children].find((other) => byName.compare(other.querySelector('.worker-name').textContent, worker.name) > 0);
      zone.grid.insertBefore(card.element, next ?? null);
    }
  }

  showGone(key, card, now) {
    if (!this.gone.has(key)) {
      this.gone.set(key, now + GONE_MS);
      card.update({ ...card.worker, state: 'gone' }, now);
    } else if (now >= this.gone.get(key)) {
      card.element.remove();
      this.cards.delete(key);
      this.gone.delete(key);
    }
  }

  /** A worker is lost this moment. States come each second: one that is back sooner was
   *  in none of them. @param event  its name and model */
  lost({ model, worker }) {
    const key = `${model ?? ''}/${worker}`;
    const card = this.cards.get(key);
    if (card !== undefined && card.worker.state !== 'missing') {
      card.update({ ...card.worker, state: 'gone' }, null);
    }
  }

  showZones() {
    for (const [role, zone] of this.zones) {
      const n = zone.grid.children.length;
      setText(zone.number, count(n));
      zone.none.hidden = n > 0 || role === 'both';
      zone.element.hidden = role === 'both' && n === 0;
      zone.grid.classList.toggle('many', n > 8);
    }
  }

  /* ---- what moves ---- */

  handovers(told) {
    const now = Date.now();
    for (const one of told.list ?? []) {
      this.handover(one, now);
    }
    for (let i = 0; i < (told.left_out ?? 0) && this.lately.length < 5000; i++) {
      this.lately.push(now);
    }
    this.sayHandovers();
  }

  handover(one, now) {
    const key = `${one.request} ${one.to}`;
    if (one.phase === 'begun') {
      this.begin(key, one);
      return;
    }
    this.open.get(key)?.line?.remove();
    this.open.delete(key);
    if (one.phase === 'ended' && this.lately.length < 5000) {
      this.lately.push(now);
      this.last = one;
    }
    this.fly(one);
  }

  placesOf(one) {
    const from = this.cards.get(`${one.model ?? ''}/${one.from}`);
    const to = this.cards.get(`${one.model ?? ''}/${one.to}`);
    if (from === undefined || to === undefined || from === to || CALM.matches || this.element.closest('[hidden]') !== null) {
      return null;
    }
    const stage = this.stage.getBoundingClientRect();
    return bend(placeOf(from.element.getBoundingClientRect(), stage), placeOf(to.element.getBoundingClientRect(), stage));
  }

  begin(key, one) {
    if (this.open.size >= MOST_OPEN) {
      return;
    }
    const points = this.placesOf(one);
    const line = points === null ? null : s('path', { class: 'lease', d: pathOf(points) });
    if (line !== null) {
      this.lines.append(line);
    }
    this.open.set(key, { line, one });
  }

  /* The cards have moved. */
  redrawOpen() {
    for (const { line, one } of this.open.values()) {
      const points = this.placesOf(one);
      if (line !== null && points !== null) {
        setAttribute(line, 'd', pathOf(points));
      }
    }
  }

  fly(one) {
    const points = this.flights.size < MOST_FLIGHTS && !document.hidden ? this.placesOf(one) : null;
    if (points === null) {
      return;
    }
    /* Those that are told of together leave one after the other. */
    const now = performance.now();
    const after = [...this.flights].reduce((last, flight) => Math.max(last, flight.begin + GAP_MS), now);
    const size = Math.min(7, 3 + Math.log10(Math.max(1, (one.bytes ?? 1) / 65536)));
    const flight = {
      points, begin: after, isLost: one.phase === 'failed',
      line: s('path', { class: 'flight-line', d: pathOf(points), opacity: 0 }),
      dot: s('circle', { class: `flight${one.phase === 'failed' ? ' lost' : ''}`, r: size.toFixed(1), cx: points[0][0].toFixed(1), cy: points[0][1].toFixed(1) }),
    };
    this.lines.append(flight.line);
    this.dots.append(flight.dot);
    this.flights.add(flight);
    if (this.frame === 0) {
      this.frame = requestAnimationFrame((now) => this.move(now));
    }
  }

  move(now) {
    this.frame = 0;
    for (const flight of this.flights) {
      const t = (now - flight.begin) / FLIGHT_MS;
      const isOver = t >= (flight.isLost ? 0.6 : 1);
      if (isOver) {
        flight.line.remove();
        flight.dot.remove();
        this.flights.delete(flight);
        continue;
      }
      if (t < 0) {
        continue;
      }
      const eased = t < 0.5 ? 2 * t * t : 1 - 2 * (1 - t) * (1 - t);
      const [x, y] = at(flight.points, eased);
      setAttribute(flight.dot, 'cx', x.toFixed(1));
      setAttribute(flight.dot, 'cy', y.toFixed(1));
      setAttribute(flight.line, 'opacity', Math.min(1, 2 * (1 - t)).toFixed(2));
    }
    if (this.flights.size > 0) {
      this.frame = requestAnimationFrame((next) => this.move(next));
    }
  }

  /** Nothing is on its way any more, as far as we know: the stream was lost, or nobody looks. */
  clear() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.flights.clear();
    this.open.clear();
    this.lines.replaceChildren();
    this.dots.replaceChildren();
  }

  sayHandovers() {
    const since = Date.now() - LATELY_MS;
    this.lately = this.lately.filter((time) => time > since);
    const last = this.last === undefined ? ''
      : `The last: ${this.last.from} to ${this.last.to}, ${bytes(this.last.bytes)} in ${ms(this.last.length_ms)}.`;
    setText(this.said, `${plural(this.lately.length, 'hand-over')} in the last 10 s. ${last}`);
  }
}
