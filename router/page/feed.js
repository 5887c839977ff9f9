/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster as it goes on (docs/CLUSTER_API.md): asked once, then followed, and found
 * again when the connection is lost.
 *
 *     idle ─ start ─▶ connecting ─ snapshot, stream ─▶ open
 *                        ▲                              │ lost
 *                        └── waits, longer each time ◀──┘
 *                     denied: a key is wanted, until restart()
 *
 * Connected only while somebody looks, for places are few. Tells 'state', 'history',
 * 'events' (detail: the new ones), 'happened' (detail: one, this moment), 'handovers'
 * (detail: the list) and 'status'. */

import { ask, askJson, eventsOf, ServerError } from './api.js';
import { Events, History } from './history.js';

const LEAST_MS = 1000;
const MOST_MS = 30000;
const SILENT_MS = 30000; /* the server says something each 10 s */
const AWAY_MS = 60000;   /* hidden for so long: nobody looks */

export class Feed extends EventTarget {
  constructor() {
    super();
    this.status = 'idle';
    this.error = null;
    this.snapshot = null;
    this.history = new History();
    this.events = new Events();
    this.retryMs = LEAST_MS;
    this.failures = 0;
    this.nextAt = 0;
    this.controller = null;
    this.wanted = false;
    this.timer = 0;
    document.addEventListener('visibilitychange', () => this.looked());
    addEventListener('online', () => this.status === 'waiting' && this.connect());
  }

  start() {
    this.wanted = true;
    if (this.status === 'idle') {
      this.connect();
    }
  }

  stop() {
    this.wanted = false;
    this.drop('idle');
  }

  /** Something changed that may help: another key, or the reader says so. */
  restart() {
    if (this.wanted) {
      this.failures = 0;
      this.connect();
    }
  }

  looked() {
    clearTimeout(this.away);
    if (document.hidden) {
      this.away = setTimeout(() => this.drop('idle'), AWAY_MS);
    } else if (this.wanted && this.status === 'idle') {
      this.connect();
    }
  }

  drop(status) {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.controller = null;
    this.set(status, null);
  }

  set(status, error) {
    this.status = status;
    this.error = error;
    this.tell('status');
  }

  tell(what, detail) {
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }

  async connect() {
    this.drop('connecting');
    const controller = new AbortController();
    this.controller = controller;
    try {
      await this.follow(controller);
      throw new ServerError(0, 'The stream ended.');
    } catch (error) {
      if (this.controller !== controller) {
        return; /* dropped, or begun anew */
      }
      if (!(error instanceof ServerError) && error.name !== 'AbortError') {
        this.lost(new ServerError(0, 'The server sent what this page does not understand.'));
        throw error;
      }
      this.lost(error.name === 'AbortError' ? new ServerError(0, 'Nothing came for half a minute.') : error);
    }
  }

  lost(error) {
    this.controller?.abort();
    this.controller = null;
    if (error.status === 401 || error.status === 403 || error.status === 404) {
      this.set('denied', error);
      return;
    }
    const wait = Math.max((error.retryAfter ?? 0) * 1000, Math.min(MOST_MS, this.retryMs * 2 ** this.failures));
    const spread = wait * (0.75 + Math.random() / 2); /* not all pages at once */
    this.failures += 1;
    this.nextAt = Date.now() + spread;
    this.timer = setTimeout(() => this.connect(), spread);
    this.set('waiting', error);
  }

  async follow(controller) {
    const { signal } = controller;
    const watch = { timer: 0 };
    const heard = () => {
      clearTimeout(watch.timer);
      watch.timer = setTimeout(() => controller.abort(), SILENT_MS);
    };
    try {
      heard();
      this.take(await askJson('v2/cluster', { signal }));
      heard();
      const last = this.events.lastId();
      const response = await ask('v2/cluster/events', {
        signal, headers: { Accept: 'text/event-stream', ...(last === null ? {} : { 'Last-Event-ID': last }) },
      });
      this.set('open', null);
      for await (const event of eventsOf(response, heard)) {
        this.failures = 0;
        this.hear(event);
      }
    } finally {
      clearTimeout(watch.timer);
    }
  }

  /* The whole, at the start of each connection. */
  take(whole) {
    if (typeof whole?.router !== 'object' || !Array.isArray(whole.workers)) {
      throw new ServerError(0, 'The server sent what is no cluster.');
    }
    this.snapshot = whole;
    this.history.reset(whole.history);
    const fresh = (whole.events ?? []).filter((event) => this.events.add(event));
    this.tell('state');
    this.tell('history');
    this.tell('events', fresh);
  }

  hear(event) {
    if (event.retry !== null) {
      this.retryMs = Math.min(MOST_MS, Math.max(LEAST_MS, event.retry));
    }
    if (event.data === '') {
      return;
    }
    let told;
    try {
      told = JSON.parse(event.data);
    } catch {
      throw new ServerError(0, 'The server sent what is no event.');
    }
    switch (event.event) {
      case 'state':
        this.snapshot = { ...this.snapshot, ...told };
        this.tell('state');
        break;
      case 'point':
        this.history.append(told);
        this.tell('history');
        break;
      case 'handover':
        this.tell('handovers', told);
        break;
      case 'event':
        if (this.events.add({ ...told, id: told.id ?? event.id })) {
          this.tell('events', [told]);
          this.tell('happened', told);
        }
        break;
      default: /* there will be more kinds */
    }
  }
}
