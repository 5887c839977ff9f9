/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them. What nobody knows is a dash. */

const NONE = '–';
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

function known(value) {
  return typeof value === 'number' && Number.isFinite(value);
}

export function count(value) {
  return known(value) ? whole.format(value) : NONE;
}

/** 1.2 k, 3.4 M: where there is little room. */
export function short(value) {
  if (!known(value)) {
    return NONE;
  }
  for (const [unit, name] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (Math.abs(value) >= unit) {
      const scale = name === 'k' ? 1e3 : unit;
      return `${(value / scale).toFixed(value / scale < 100 ? 1 : 0)} ${name}`;
    }
  }
  return whole.format(value);
}

function digits(value) {
  if (value >= 100) {
    return whole.format(value);
  }
  return value.toFixed(value >= 10 ? 1 : 2);
}

/** 4.20 ms, 91.8 ms, 1.87 s, 3 min 5 s. */
export function ms(value) {
  if (!known(value)) {
    return NONE;
  }
  if (value === 0) {
    return '0 ms';
  }
  if (value < 1000) {
    return `${digits(value)} ms`;
  }
  if (value < 60000) {
    return `${(value / 1000).toFixed(2)} s`;
  }
  return span(value);
}

/** A long time: 3 min 5 s, 2 h 4 min, 5 d 3 h. */
export function span(value) {
  if (!known(value)) {
    return NONE;
  }
  const s = Math.max(0, Math.floor(value / 1000));
  if (s < 60) {
    return `${s} s`;
  }
  if (s < 3600) {
    return `${Math.floor(s / 60)} min ${s % 60} s`;
  }
  if (s < 86400) {
    return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  }
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export function rate(value) {
  return known(value) ? (value >= 100 ? whole.format(value) : value.toFixed(1)) : NONE;
}

export function bytes(value) {
  if (!known(value)) {
    return NONE;
  }
  for (const [unit, name] of [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (value >= unit) {
      return `${(value / unit).toFixed(value / unit < 100 ? 1 : 0)} ${name}`;
    }
  }
  return `${whole.format(value)} B`;
}

export function percent(part, all) {
  return known(part) && known(all) && all > 0 ? `${digits(Math.min(100, (100 * part) / all))} %` : NONE;
}

const hands = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

/** 14:03:22, by this browser's clock. */
export function clock(unixMs) {
  return known(unixMs) ? hands.format(unixMs) : NONE;
}

/** What the server says, as a sentence of its own. */
export function sentence(text) {
  const words = String(text).trim();
  return words === '' ? '' : words[0].toUpperCase() + words.slice(1) + (/[.!?]$/.test(words) ? '' : '.');
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}
