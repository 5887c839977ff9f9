/* SPDX-License-Identifier: Apache-2.0 */
/* What the page keeps: in this tab, until it is closed. Only the theme outlives it. The
 * key is never in localStorage, in an address or in what is copied. */

const KEY = 'baton.key';
const MOST = 2_000_000; /* characters; browsers have room for some five millions */

function of(storage, work) {
  try {
    return work(globalThis[storage]);
  } catch {
    return null; /* full, or not allowed: the page works without */
  }
}

export function readKept(name) {
  const text = of('sessionStorage', (room) => room.getItem(name));
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}

export function keep(name, value) {
  const text = JSON.stringify(value);
  of('sessionStorage', (room) => (text.length > MOST ? room.removeItem(name) : room.setItem(name, text)));
}

let key = of('sessionStorage', (room) => room.getItem(KEY)) ?? '';

export function apiKey() {
  return key;
}

export function setApiKey(text) {
  key = text;
  of('sessionStorage', (room) => (text === '' ? room.removeItem(KEY) : room.setItem(KEY, text)));
}

export function keepTheme(theme) {
  of('localStorage', (room) => (theme === null ? room.removeItem('baton.theme') : room.setItem('baton.theme', theme)));
}
