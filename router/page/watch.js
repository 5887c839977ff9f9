/* SPDX-License-Identifier: Apache-2.0 */
/* Watch: the cluster as it is and as it was in the last quarter of an hour. Each part
 * changes in place, so a reader's focus and selection stay where they are. */

import { Chart } from './chart.js';
import { h, icon, setAttribute, setText } from './dom.js';
import { Floor } from './floor.js';
import { clock, count, ms, percent, plural, rate, sentence, short } from './format.js';

const ALL = null;

function share(history, model, met, of) {
  const all = history.column(model, of);
  return history.column(model, met).map((n, i) => (all[i] > 0 ? (100 * n) / all[i] : null));
}

function perSecond(history, model, column) {
  return history.column(model, column).map((n) => (Number.isFinite(n) ? (n * 1000) / history.stepMs : null));
}

function percentiles(name) {
  return [['p50', 'first'], ['p90', 'second'], ['p99', 'third']].map(([p, kind]) => ({
    name: p, kind, label: p, of: (history, model) => history.column(model, `${name}_${p}_ms`),
  }));
}

function lines(...given) {
  return given.map(([name, kind, of, isRare = false]) => ({ name, kind, label: name, of, isRare }));
}

/* Kinds of events that tell of trouble; the rest is news. */
const TROUBLE = new Set(['worker_lost', 'worker_silent', 'worker_starved', 'request_rerun', 'model_not_ready', 'router_not_ready', 'router_leaving']);
const KINDS = {
  worker_joined: 'joined', worker_lost: 'lost', worker_silent: 'silent', worker_starved: 'starved', worker_back: 'back', worker_draining: 'draining',
  worker_drained: 'drained', worker_on: 'on', worker_role: 'role', request_rerun: 're-run', model_loaded: 'loaded',
  model_unloaded: 'unloaded', model_ready: 'ready', model_not_ready: 'not ready', router_ready: 'router ready',
  router_not_ready: 'router not ready', router_leaving: 'router leaving',
};
const MOST_EVENTS = 256;

export class Watch {
  constructor(root, { feed, wantKey }) {
    this.root = root;
    this.feed = feed;
    this.wantKey = wantKey;
    this.model = ALL;
    this.build();
    feed.addEventListener('status', () => this.showStatus());
    feed.addEventListener('state', () => this.showState());
    feed.addEventListener('history', () => this.showHistory());
    feed.addEventListener('events', ({ detail }) => this.showEvents(detail));
    feed.addEventListener('happened', ({ detail }) => detail.kind === 'worker_lost' && this.floor.lost(detail));
    feed.addEventListener('handovers', ({ detail }) => this.floor.handovers(detail));
    this.showStatus();
  }

  build() {
    this.floor = new Floor();
    this.choice = h('select', { 'aria-label': 'Model', onchange: () => {
      this.model = this.choice.value === '' ? ALL : this.choice.value.slice(1);
      this.showHistory();
    } }, h('option', { value: '' }, 'All models'));
    this.stats = new Map(['running', 'waiting', 'ttft', 'itl', 'out', 'met'].map((key) => [key, this.buildStat(key)]));
    this.charts = [
      new Chart('Time to first token', percentiles('ttft'), ms, { unit: ' ms', target: (model) => this.targetOf(model, 'ttft_target_ms') }),
      new Chart('Between tokens', percentiles('itl'), ms, { unit: ' ms', target: (model) => this.targetOf(model, 'itl_target_ms') }),
      new Chart('Queue', lines(['waiting', 'first', (x, m) => x.column(m, 'waiting')], ['running', 'third', (x, m) => x.column(m, 'running')]), short),
      new Chart('Tokens per second', lines(['out', 'first', (x, m) => perSecond(x, m, 'out_tokens')], ['in', 'third', (x, m) => perSecond(x, m, 'in_tokens')]), short),
    ];
    this.attainment = new Chart('Targets met', lines(['first token', 'first', (x, m) => share(x, m, 'ttft_met', 'ttft_targets')],
      ['between', 'third', (x, m) => share(x, m, 'itl_met', 'itl_targets')]), (value) => `${Math.round(value)} %`, { unit: ' %', most: 100 });
    this.requests = new Chart('Requests per second', lines(['ended', 'first', (x, m) => perSecond(x, m, 'ended')],
      ['refused', 'third', (x, m) => perSecond(x, m, 'refused'), true], ['failed', 'bad', (x, m) => perSecond(x, m, 'failed'), true]), rate);
    this.list = h('ol', { class: 'events', tabindex: '0', 'aria-label': 'Events, the latest first' });
    this.noEvents = h('p', { class: 'note' }, 'Nothing happened yet.');
    this.tenants = h('tbody');
    this.notice = h('div', { class: 'notice', role: 'status', hidden: true });
    this.content = h('div', { class: 'watch-content', hidden: true },
      h('dl', { class: 'stats' }, [...this.stats.values()].map((stat) => stat.element)),
      this.floor.element,
      h('section', { class: 'history', 'aria-labelledby': 'history-title' },
        h('div', { class: 'section-head' }, h('h2', { id: 'history-title' }, 'The last 15 minutes'), this.choice),
        h('div', { class: 'charts' }, [...this.charts, this.requests, this.attainment].map((chart) => chart.element))),
      h('div', { class: 'twin' },
        h('section', { 'aria-labelledby': 'events-title' }, h('h2', { id: 'events-title' }, 'Events'), this.noEvents, this.list),
        h('section', { 'aria-labelledby': 'tenants-title' }, h('h2', { id: 'tenants-title' }, 'Tenants'),
          h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Tenants' }, h('table', { class: 'tenants' },
            h('thead', {}, h('tr', {}, ['Tenant', 'Share of tokens', 'Running', 'In', 'Out', 'Refused']
              .map((name, i) => h('th', { scope: 'col', class: i > 1 ? 'number' : '' }, name)))), this.tenants)))));
    this.root.append(h('h1', { class: 'unseen' }, 'Watch'), this.notice, this.content);
  }

  buildStat(key) {
    const [label, unit] = { running: ['Running', ''], waiting: ['Waiting', ''], ttft: ['First token', 'p50'], itl: ['Between tokens', 'p50'],
      out: ['Tokens per second', 'out'], met: ['Targets met', ''] }[key];
    const value = h('b', {}, '–');
    const note = h('small', {}, unit);
    return { value, note, element: h('div', { class: 'stat', data: { stat: key } }, h('dt', {}, label), h('dd', {}, value, ' ', note)) };
  }

  targetOf(model, field) {
    const found = this.feed.snapshot?.models.filter((one) => (model === ALL ? true : one.name === model)).map((one) => one[field]);
    /* Of all models there is one line only where they have the same. */
    return found?.length > 0 && found.every((value) => value === found[0]) ? (found[0] ?? null) : null;
  }

  /* ---- whether there is anything to see ---- */

  showStatus() {
    const { status, error, snapshot } = this.feed;
    this.content.hidden = snapshot === null || status === 'denied';
    this.content.classList.toggle('stale', status !== 'open' && status !== 'idle');
    this.notice.hidden = status === 'open' || status === 'idle';
    if (status !== 'open') {
      this.floor.clear();
    }
    const says = `${status} ${error?.message} ${snapshot === null}`;
    if (says === this.noticeSays) {
      return;
    }
    this.noticeSays = says;
    if (status === 'denied') {
      this.notice.replaceChildren(...this.denied(error));
    } else if (status === 'waiting') {
      this.notice.replaceChildren(h('p', {}, h('strong', {}, snapshot === null ? 'The cluster cannot be seen. ' : 'The view has stopped. '), sentence(error.message),
        snapshot === null ? '' : ' What is shown below is the last that came.'),
      h('button', { type: 'button', onclick: () => this.feed.restart() }, icon('retry'), 'Try now'));
    } else {
      this.notice.replaceChildren(h('p', {}, snapshot === null ? 'Asking the router…' : 'Connecting again…'));
    }
  }

  denied(error) {
    if (error.status === 404) {
      return [h('p', {}, h('strong', {}, 'This server does not tell. '), 'It has no live view, or one that is older than this page.')];
    }
    return [h('p', {}, h('strong', {}, error.status === 401 ? 'An API key is wanted. ' : 'This key may not look. '), sentence(error.message)),
      h('button', { type: 'button', class: 'main', onclick: () => this.wantKey(error.message) }, 'Enter a key')];
  }

  /* ---- what there is ---- */

  showState() {
    const { snapshot } = this.feed;
    if (this.root.hidden) {
      return;
    }
    this.content.hidden = false;
    setText(this.stats.get('running').value, count(snapshot.queue.running));
    setText(this.stats.get('waiting').value, count(snapshot.queue.waiting));
    this.stats.get('waiting').element.classList.toggle('busy', snapshot.queue.waiting > 0);
    this.floor.update(snapshot);
    this.showModels(snapshot.models ?? []);
    this.showTenants(snapshot.tenants ?? []);
  }

  showModels(models) {
    const names = models.map((model) => model.name);
    const shown = [...this.choice.options].slice(1).map((option) => option.textContent);
    if (names.join('\n') !== shown.join('\n')) {
      this.choice.replaceChildren(h('option', { value: '' }, 'All models'), ...names.map((name) => h('option', { value: `=${name}` }, name)));
      if (this.model !== ALL && !names.includes(this.model)) {
        this.model = ALL;
      }
      this.choice.value = this.model === ALL ? '' : `=${this.model}`;
    }
    this.choice.hidden = names.length < 2;
  }

  showHistory() {
    if (this.root.hidden) {
      return;
    }
    const { history } = this.feed;
    const { model } = this;
    for (const chart of [...this.charts, this.requests]) {
      chart.update(history, model);
    }
    const hasTargets = ['ttft_targets', 'itl_targets'].some((name) => history.column(model, name).some((n) => n > 0));
    this.attainment.element.hidden = !hasTargets;
    if (hasTargets) {
      this.attainment.update(history, model);
    }
    setText(this.stats.get('ttft').value, ms(history.last(ALL, 'ttft_p50_ms')));
    setText(this.stats.get('itl').value, ms(history.last(ALL, 'itl_p50_ms')));
    const out = history.last(ALL, 'out_tokens');
    setText(this.stats.get('out').value, out === null ? '–' : short(Math.round((out * 1000) / history.stepMs)));
    this.showMet(history);
  }

  showMet(history) {
    const sum = (name) => history.column(ALL, name).reduce((all, n) => all + (n ?? 0), 0);
    const targets = sum('ttft_targets') + sum('itl_targets');
    const stat = this.stats.get('met');
    stat.element.hidden = targets === 0;
    setText(stat.value, percent(sum('ttft_met') + sum('itl_met'), targets));
  }

  showEvents(fresh) {
    for (const event of fresh) {
      this.list.prepend(h('li', { class: TROUBLE.has(event.kind) ? 'trouble-event' : '', data: { kind: event.kind, id: event.id } },
        h('time', { datetime: new Date(event.unix_ms).toISOString() }, clock(event.unix_ms)),
        h('span', { class: 'event-kind' }, KINDS[event.kind] ?? String(event.kind).replaceAll('_', ' ')),
        h('span', { class: 'event-text' }, event.text,
          event.request === null || event.request === undefined ? '' : [' ', h('a', { href: `#/explain/${encodeURIComponent(event.request)}` }, `request ${event.request}`)])));
    }
    while (this.list.children.length > MOST_EVENTS) {
      this.list.lastChild.remove();
    }
    const isNone = this.list.children.length === 0;
    this.list.hidden = isNone;
    this.noEvents.hidden = !isNone;
  }

  showTenants(tenants) {
    const all = tenants.reduce((sum, one) => sum + one.prompt_tokens + one.output_tokens, 0);
    const rows = [...this.tenants.children];
    tenants.forEach((one, i) => {
      const row = rows[i] ?? this.tenants.appendChild(this.buildTenant());
      this.showTenant(row, one, all);
    });
    rows.slice(tenants.length).forEach((row) => row.remove());
  }

  buildTenant() {
    return h('tr', {}, h('th', { scope: 'row' }, h('span'), h('small')), h('td', {}, h('span', { class: 'meter', 'aria-hidden': 'true' }, h('i')), h('span', { class: 'share' })),
      [0, 1, 2, 3].map(() => h('td', { class: 'number' })));
  }

  showTenant(row, one, all) {
    const tokens = one.prompt_tokens + one.output_tokens;
    const [name, part, ...numbers] = row.children;
    setText(name.firstChild, one.name);
    setText(name.lastChild, one.weight === null || one.weight === undefined ? '' : ` weight ${count(one.weight)}`);
    part.querySelector('i').style.inlineSize = `${all > 0 ? ((100 * tokens) / all).toFixed(1) : 0}%`;
    setText(part.lastChild, percent(tokens, all));
    const running = one.max_requests === null || one.max_requests === undefined ? count(one.running) : `${count(one.running)} of ${count(one.max_requests)}`;
    [running, short(one.prompt_tokens), short(one.output_tokens), count(one.refused)].forEach((text, i) => setText(numbers[i], text));
    setAttribute(row, 'title', plural(tokens, 'token'));
  }

  enter() {
    this.feed.start();
    if (this.feed.snapshot !== null) {
      this.showState();
      this.showHistory();
    }
  }

  leave() {
    this.floor.clear();
    this.feed.stop();
  }
}
