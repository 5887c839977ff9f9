/* SPDX-License-Identifier: Apache-2.0 */
/* The server: requests with the key, errors as it says them, server-sent events as they
 * come. All paths are below the page's own, so a proxy may put it anywhere. */

import { apiKey } from './kept.js';

const BASE = new URL('.', document.baseURI);
const MAX_EVENT = 8_000_000; /* characters of one event; more is no event of ours */

export function address(path) {
  return new URL(path, BASE);
}

/** What went wrong, in the server's words. status 0: it was not reached. */
export class ServerError extends Error {
  constructor(status, message, { param = null, type = null, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.param = param;
    this.type = type;
    this.retryAfter = retryAfter;
  }
}

/* OpenAI's form, Triton's, or none. */
export function errorOf(status, body, retryAfter = null) {
  const error = body?.error;
  if (error !== null && typeof error === 'object') {
    return new ServerError(status || Number(error.code) || 500, String(error.message ?? 'an error without a message'),
      { param: error.param ?? null, type: error.type ?? null, retryAfter });
  }
  return new ServerError(status, typeof error === 'string' ? error : `HTTP status ${status}`, { retryAfter });
}

async function failed(response) {
  const text = await response.text().catch(() => '');
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    /* not ours: a proxy's page, which nobody wants to read here */
  }
  const after = Number(response.headers.get('Retry-After'));
  return errorOf(response.status, body, Number.isFinite(after) && after > 0 ? after : null);
}

export function headersOf(more = {}) {
  const headers = { ...more };
  if (apiKey() !== '') {
    headers.Authorization = `Bearer ${apiKey()}`;
  }
  return headers;
}

/** @throws ServerError, or AbortError where the signal did it */
export async function ask(path, { headers = {}, signal, ...more } = {}) {
  let response;
  try {
    response = await fetch(address(path), {
      headers: headersOf(headers), signal, cache: 'no-store', credentials: 'same-origin', redirect: 'error', ...more,
    });
  } catch (error) {
    if (error.name === 'AbortError') {
      throw error;
    }
    throw new ServerError(0, 'The server cannot be reached.');
  }
  if (!response.ok) {
    throw await failed(response);
  }
  return response;
}

export async function askJson(path, options = {}) {
  const response = await ask(path, { ...options, headers: { Accept: 'application/json', ...options.headers } });
  try {
    return await response.json();
  } catch (error) {
    if (error.name === 'AbortError') {
      throw error;
    }
    throw new ServerError(response.status, 'The answer is no JSON, or it broke off.');
  }
}

/** Cuts text into events (the HTML standard, 9.2.6): {event, id, data, retry}. */
export class EventCutter {
  constructor() {
    this.rest = '';
    this.begin();
  }

  begin() {
    this.event = 'message';
    this.id = null;
    this.retry = null;
    this.data = [];
    this.size = 0;
  }

  /** @return the events that are whole */
  feed(text) {
    const whole = [];
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    if (this.rest.length + this.size > MAX_EVENT) {
      throw new ServerError(0, 'An event is longer than any of ours.');
    }
    for (const line of lines) {
      if (line === '') {
        if (this.data.length > 0 || this.retry !== null) {
          whole.push({ event: this.event, id: this.id, retry: this.retry, data: this.data.join('\n') });
        }
        this.begin();
      } else {
        this.line(line);
      }
    }
    return whole;
  }

  line(line) {
    const at = line.indexOf(':');
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? '' : line.slice(line[at + 1] === ' ' ? at + 2 : at + 1);
    if (name === 'data') {
      this.data.push(value);
      this.size += value.length;
    } else if (name === 'event') {
      this.event = value;
    } else if (name === 'id' && !value.includes('\0')) {
      this.id = value;
    } else if (name === 'retry' && /^\d{1,9}$/.test(value)) {
      this.retry = Number(value);
    }
  }
}

/** The events of a response, as they come; heard() is told of every piece. */
export async function* eventsOf(response, heard = () => {}) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const cutter = new EventCutter();
  try {
    for (;;) {
      let piece;
      try {
        piece = await reader.read();
      } catch (error) {
        if (error.name === 'AbortError') {
          throw error;
        }
        throw new ServerError(0, 'The connection broke.');
      }
      heard();
      if (piece.done) {
        return;
      }
      yield* cutter.feed(decoder.decode(piece.value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
