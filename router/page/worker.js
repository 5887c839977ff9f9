/* SPDX-License-Identifier: Apache-2.0 */
/* A worker as a card: what it is and what it has under way, in the place where it stands. */

import { h, setAttribute, setText } from './dom.js';
import { bytes, count, ms, plural, short, span } from './format.js';

const MOST_SEATS = 32; /* drawn one by one; of more there is a bar */

const STATES = {
  up: 'up', silent: 'silent', starved: 'starved', draining: 'draining', drained: 'drained', asleep: 'asleep', ending: 'ending', missing: 'missing', gone: 'gone',
};
const BAD = new Set(['silent', 'starved', 'missing', 'gone']);

class Meter {
  constructor(label) {
    this.label = label;
    this.fill = h('i');
    this.value = h('b');
    this.track = h('span', { class: 'meter', 'aria-hidden': 'true' }, this.fill);
    this.element = h('div', { class: 'fact wide' }, h('span', { class: 'fact-label' }, label), this.value, this.track);
  }

  update(part, all, text) {
    const share = all > 0 ? Math.min(1, part / all) : 0;
    this.fill.style.inlineSize = `${(share * 100).toFixed(1)}%`;
    this.track.classList.toggle('full', share > 0.9);
    setText(this.value, text);
  }
}

class Seats {
  constructor() {
    this.value = h('b');
    this.row = h('span', { class: 'seats', 'aria-hidden': 'true' });
    this.element = h('div', { class: 'fact wide' }, h('span', { class: 'fact-label' }, 'Seats'), this.value, this.row);
  }

  /* Taken, waiting for one (they have none), free. */
  update(worker) {
    const seated = Math.max(0, worker.active - worker.waiting);
    setText(this.value, `${count(seated)} of ${count(worker.seats)}`);
    if (worker.seats > MOST_SEATS) {
      this.row.className = 'meter';
      if (this.row.children.length !== 1) {
        this.row.replaceChildren(h('i'));
      }
      this.row.firstChild.style.inlineSize = `${Math.min(100, (100 * seated) / worker.seats).toFixed(1)}%`;
      return;
    }
    this.row.className = 'seats';
    while (this.row.children.length < worker.seats) {
      this.row.append(h('i'));
    }
    while (this.row.children.length > worker.seats) {
      this.row.lastChild.remove();
    }
    [...this.row.children].forEach((seat, i) => seat.classList.toggle('taken', i < seated));
  }
}

function fact(label) {
  const value = h('b');
  return { value, element: h('div', { class: 'fact' }, h('span', { class: 'fact-label' }, label), value) };
}

export class WorkerCard {
  constructor(worker) {
    this.name = h('h3', { class: 'worker-name' }, worker.name);
    this.state = h('span', { class: 'state' });
    this.seats = new Seats();
    this.blocks = new Meter('Blocks');
    this.batch = fact('Batch');
    this.queue = fact('Queue');
    this.work = fact('Tokens/s');
    this.sent = fact('KV/s');
    this.note = h('p', { class: 'worker-note' });
    this.facts = h('div', { class: 'facts' }, this.seats.element, this.blocks.element, this.batch.element, this.queue.element,
      this.work.element, this.sent.element);
    this.element = h('article', { class: 'worker' }, h('div', { class: 'worker-head' }, this.name, this.state), this.facts, this.note);
    this.before = null;
    this.update(worker, null);
  }

  /** @param now  milliseconds, of the snapshot; null: there is none */
  update(worker, now) {
    const state = STATES[worker.state] ?? String(worker.state);
    setAttribute(this.element, 'data-state', state);
    setText(this.state, worker.reported === false && state === 'up' ? 'new' : state);
    this.element.classList.toggle('bad', BAD.has(state));
    const isHere = state !== 'missing' && state !== 'gone';
    this.facts.hidden = !isHere;
    setText(this.note, this.noteOf(worker, now));
    this.note.hidden = this.note.textContent === '';
    if (isHere) {
      this.showFacts(worker, now);
    }
    this.worker = worker;
  }

  noteOf(worker, now) {
    if (worker.state === 'gone') {
      return 'Its link is closed. Its requests run again on others.';
    }
    if (worker.state === 'missing') {
      return `The launcher says: ${worker.process ?? 'nothing'}${worker.restarts > 0 ? `, started again ${plural(worker.restarts, 'time')}` : ''}.`;
    }
    const notes = [];
    if (worker.still_ms > 2000) {
      notes.push(`nothing moved for ${ms(worker.still_ms)}`);
    }
    if (worker.waiting_for_kv > 0) {
      notes.push(`${plural(worker.waiting_for_kv, 'request')} waiting for KV`);
    }
    if (worker.paused > 0) {
      notes.push(`${count(worker.paused)} paused`);
    }
    if (worker.tp > 1 || worker.pp > 1) {
      notes.push(`${worker.tp} × ${worker.pp} ranks`);
    }
    if (worker.restarts > 0) {
      notes.push(`started again ${plural(worker.restarts, 'time')}`);
    }
    if (now !== null && worker.start_unix_ms > 0) {
      notes.push(`up ${span(now - worker.start_unix_ms)}`);
    }
    return notes.join(' · ');
  }

  showFacts(worker, now) {
    this.seats.update(worker);
    this.blocks.update(worker.blocks_used, worker.blocks, `${count(worker.blocks_used)} of ${count(worker.blocks)}`);
    setText(this.batch.value, worker.batch_context > 0 && worker.batch_generation > 0 ? `${count(worker.batch_generation)} + ${count(worker.batch_context)}`
      : count(worker.batch_requests));
    setAttribute(this.batch.element, 'title', `${plural(worker.batch_generation, 'sequence')} generate, ${count(worker.batch_context)} in the context phase`);
    setText(this.queue.value, count(worker.waiting));
    this.queue.element.classList.toggle('busy', worker.waiting > 0);
    this.showWork(worker, now);
  }

  /* A rate is the difference of two readings. */
  showWork(worker, now) {
    const before = this.before;
    if (now === null || (before !== null && now <= before.now)) {
      return;
    }
    const isSame = before !== null && before.id === worker.id;
    const seconds = isSame ? (now - before.now) / 1000 : 0;
    const tokens = worker.prompt_tokens + worker.generated_tokens;
    const moved = worker.kv_sent_bytes + worker.kv_received_bytes;
    setText(this.work.value, isSame ? short(Math.max(0, Math.round((tokens - before.tokens) / seconds))) : '–');
    setText(this.sent.value, isSame ? bytes(Math.max(0, (moved - before.moved) / seconds)) : '–');
    this.before = { now, id: worker.id, tokens, moved };
  }
}
