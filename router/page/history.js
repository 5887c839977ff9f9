/* SPDX-License-Identifier: Apache-2.0 */
/* The last quarter of an hour, as columns: what the server had when it was asked, and a
 * point each step since. However long the page is open it keeps MOST points of each
 * series, and events up to MOST_EVENTS. Pure. */

const MOST = 180;
const MOST_EVENTS = 256;
const MOST_SERIES = 65;

function nameOf(model) {
  return model ?? '';
}

export class History {
  constructor() {
    this.stepMs = 5000;
    this.unixMs = [];
    this.series = new Map(); /* of each model, '' = all: {column: values} */
  }

  /** What the server has counts; ours may have a gap. */
  reset(told) {
    this.unixMs = [];
    this.series.clear();
    this.append(told);
  }

  append(told) {
    if (!Array.isArray(told?.unix_ms) || !Array.isArray(told.series)) {
      return;
    }
    this.stepMs = told.step_ms > 0 ? told.step_ms : this.stepMs;
    const before = this.unixMs.length;
    const last = this.unixMs[before - 1] ?? -Infinity;
    const from = told.unix_ms.findIndex((at) => at > last); /* never one twice */
    if (from < 0) {
      return;
    }
    this.unixMs.push(...told.unix_ms.slice(from));
    for (const one of told.series) {
      this.appendSeries(one, from, before);
    }
    this.trim();
  }

  appendSeries(one, from, before) {
    const name = nameOf(one.model);
    if (!this.series.has(name)) {
      if (this.series.size >= MOST_SERIES) {
        return;
      }
      this.series.set(name, {});
    }
    const columns = this.series.get(name);
    for (const [column, values] of Object.entries(one)) {
      if (Array.isArray(values)) {
        columns[column] ??= [];
        while (columns[column].length < before) {
          columns[column].push(null);
        }
        columns[column].push(...values.slice(from));
      }
    }
  }

  trim() {
    const over = Math.max(0, this.unixMs.length - MOST);
    this.unixMs.splice(0, over);
    for (const [name, columns] of this.series) {
      for (const values of Object.values(columns)) {
        values.splice(0, over);
        while (values.length < this.unixMs.length) {
          values.push(null); /* it is not told of any more */
        }
      }
      if (name !== '' && Object.values(columns).every((values) => values.every((value) => value === null))) {
        this.series.delete(name);
      }
    }
  }

  column(model, name) {
    return this.series.get(nameOf(model))?.[name] ?? [];
  }

  /** The last value that is known. */
  last(model, name) {
    const values = this.column(model, name);
    return values.length === 0 ? null : values[values.length - 1];
  }
}

/** Events, each once, the oldest first. */
export class Events {
  constructor() {
    this.list = [];
    this.ids = new Set();
  }

  /** @return false: it is known, or none */
  add(event) {
    if (typeof event?.id !== 'string' || this.ids.has(event.id)) {
      return false;
    }
    this.ids.add(event.id);
    this.list.push(event);
    if (this.list.length > MOST_EVENTS) {
      this.ids.delete(this.list.shift().id);
    }
    return true;
  }

  lastId() {
    return this.list.length === 0 ? null : this.list[this.list.length - 1].id;
  }
}
