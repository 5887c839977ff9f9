/* SPDX-License-Identifier: Apache-2.0 */
/* Explain: requests that ended lately, and where the time of one of them went. The
 * address names the request, so it can be passed on: "#/explain/812". */

import { askJson } from './api.js';
import { h, icon, setAttribute } from './dom.js';
import { clock, count, ms, sentence } from './format.js';
import { explain } from './waterfall.js';

const PAGE = 50;
const MOST = 1024;

export class Explain {
  constructor(root, { wantKey }) {
    this.root = root;
    this.wantKey = wantKey;
    this.requests = [];
    this.chosen = '';
    this.asking = null;   /* of the list */
    this.opening = null;  /* of a request */
    this.build();
  }

  build() {
    const refresh = () => this.refresh();
    this.only = h('select', { 'aria-label': 'Which requests', onchange: refresh },
      [['', 'All requests'], ['failed', 'That failed'], ['missed', 'That missed a target'], ['slow', 'Slower than 1 s'], ['slower', 'Slower than 10 s']]
        .map(([value, name]) => h('option', { value }, name)));
    this.again = h('button', { type: 'button', onclick: refresh }, icon('retry'), 'Refresh');
    this.rows = h('tbody');
    this.more = h('button', { type: 'button', class: 'quiet', onclick: () => this.refresh(true) }, 'Earlier ones');
    this.table = h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Requests' }, h('table', { class: 'requests' },
      h('thead', {}, h('tr', {}, [['Request'], ['Ended'], ['In', 'number'], ['Reused', 'number'], ['Out', 'number'], ['First token', 'number'], ['Took', 'number']]
        .map(([name, kind = '']) => h('th', { scope: 'col', class: kind }, name)))), this.rows));
    this.none = h('div', { class: 'none', hidden: true });
    this.listPart = h('div', { class: 'list-part' },
      h('div', { class: 'section-head' }, h('h2', {}, 'Recent requests'), this.only, this.again), this.none, this.table, h('div', { class: 'row' }, this.more));
    this.detailPart = h('div', { class: 'detail-part', 'aria-live': 'off' });
    this.root.append(h('h1', { class: 'unseen' }, 'Explain'), h('div', { class: 'explain-content' }, this.listPart, this.detailPart));
  }

  filters() {
    return { failed: 'failed=1', missed: 'missed=1', slow: 'slow_ms=1000', slower: 'slow_ms=10000' }[this.only.value];
  }

  /** @param isMore  behind those that are shown */
  async refresh(isMore = false) {
    this.asking?.abort();
    const controller = new AbortController();
    this.asking = controller;
    const last = this.requests[this.requests.length - 1];
    const query = [`limit=${PAGE}`, this.filters(), isMore && last ? `before=${encodeURIComponent(last.id)}` : null].filter(Boolean).join('&');
    try {
      const found = await askJson(`v2/cluster/requests?${query}`, { signal: controller.signal });
      const list = Array.isArray(found?.requests) ? found.requests : [];
      this.requests = (isMore ? [...this.requests, ...list] : list).slice(0, MOST);
      this.showList(list.length === PAGE);
      if (!isMore && this.chosen === '' && matchMedia('(min-width: 1080px)').matches && this.requests.length > 0) {
        this.open(this.requests[0].id);
      }
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.showTrouble(this.none, error, () => this.refresh());
        this.table.hidden = true;
        this.more.hidden = true;
      }
    }
  }

  showList(isFull) {
    this.rows.replaceChildren(...this.requests.map((request) => this.rowOf(request)));
    const isNone = this.requests.length === 0;
    this.table.hidden = isNone;
    this.more.hidden = !isFull;
    this.none.hidden = !isNone;
    if (isNone) {
      this.none.replaceChildren(h('p', {}, this.only.value === '' ? 'No request has ended yet. ' : 'None of those that are kept. ',
        this.only.value === '' ? h('a', { href: '#/talk' }, 'Talk to the cluster') : '', this.only.value === '' ? ' and look here again.' : ''));
    }
    this.mark();
  }

  rowOf(request) {
    const end = request.begin_unix_ms + request.duration_ms;
    const kind = request.finish === 'error' ? 'failed' : request.missed ? 'missed' : '';
    return h('tr', { class: kind, data: { id: request.id } },
      h('th', { scope: 'row' }, h('a', { href: `#/explain/${encodeURIComponent(request.id)}` }, request.id),
        kind === '' && request.finish !== 'canceled' ? '' : h('small', {}, kind === '' ? 'canceled' : kind)),
      h('td', { title: request.model }, clock(end)), h('td', { class: 'number' }, count(request.prompt_tokens)), h('td', { class: 'number' }, count(request.reused_tokens)),
      h('td', { class: 'number' }, count(request.output_tokens)), h('td', { class: 'number' }, ms(request.first_token_ms)),
      h('td', { class: 'number' }, ms(request.duration_ms)));
  }

  mark() {
    for (const row of this.rows.children) {
      const isChosen = row.dataset.id === this.shownId;
      row.classList.toggle('chosen', isChosen);
      setAttribute(row.querySelector('a'), 'aria-current', isChosen ? 'true' : null);
    }
  }

  showTrouble(where, error, again) {
    where.hidden = false;
    if (error.status === 401 || error.status === 403) {
      where.replaceChildren(h('div', { class: 'trouble' }, h('p', {}, h('strong', {}, error.status === 401 ? 'An API key is wanted. ' : 'This key may not look. '), sentence(error.message)),
        h('button', { type: 'button', class: 'main', onclick: () => this.wantKey(error.message) }, 'Enter a key'),
        h('button', { type: 'button', class: 'quiet', onclick: again }, icon('retry'), 'Try again')));
      return;
    }
    where.replaceChildren(h('div', { class: 'trouble' }, h('p', {}, sentence(error.message)), h('button', { type: 'button', onclick: again }, icon('retry'), 'Try again')));
  }

  /* ---- one of them ---- */

  async open(id, isAsked = false) {
    this.opening?.abort();
    const controller = new AbortController();
    this.opening = controller;
    try {
      const request = await this.find(id, controller.signal);
      this.shownId = String(request.id);
      this.showDetail(h('a', { class: 'back', href: '#/explain' }, icon('back'), 'All requests'), explain(request));
      if (isAsked) {
        this.detailPart.querySelector('.detail-title').focus({ preventScroll: true });
      }
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.shownId = null;
        const place = h('div');
        this.showDetail(h('a', { class: 'back', href: '#/explain' }, icon('back'), 'All requests'), place);
        if (error.status === 404) {
          place.replaceChildren(h('div', { class: 'trouble' }, h('p', {}, h('strong', {}, 'It is not among those that are kept. '),
            `A router keeps its latest ${count(MOST)} requests, each once it has ended, and another router’s are not here.`),
          h('button', { type: 'button', onclick: () => this.open(id) }, icon('retry'), 'Try again')));
        } else {
          this.showTrouble(place, error, () => this.open(id));
        }
      }
    }
    this.mark();
  }

  /* One whose last token came this moment is written down when its workers have ended it. */
  async find(id, signal) {
    for (let tries = 1; ; tries++) {
      try {
        return await askJson(`v2/cluster/requests/${encodeURIComponent(id)}`, { signal });
      } catch (error) {
        if (error.status !== 404 || tries === 5) {
          throw error;
        }
        await new Promise((wake) => {
          setTimeout(wake, 100 * tries);
        });
        signal.throwIfAborted();
      }
    }
  }

  showDetail(...parts) {
    this.detailPart.replaceChildren(...parts);
  }

  /** @param id  of the request that the address names; '' none */
  enter(id) {
    const isNew = id !== this.chosen;
    this.chosen = id;
    this.root.classList.toggle('one', id !== '');
    this.refresh();
    if (id !== '') {
      if (isNew) {
        this.showDetail();  /* that of another request may not stand below this address */
      }
      this.open(id, isNew);
    }
  }

  leave() {
    this.asking?.abort();
    this.opening?.abort();
    this.chosen = '';
  }
}
