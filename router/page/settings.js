/* SPDX-License-Identifier: Apache-2.0 */
/* What a chat asks with: system prompt and sampling. A field that is empty is not sent,
 * so the model's own value counts, which the field shows. */

import { h, icon } from './dom.js';
import { keep, readKept } from './kept.js';

const KEPT = 'baton.settings';

/* name in the request, label, kind, bounds, what it is. The server's own bounds: its
 * word is the last. */
const FIELDS = [
  { name: 'temperature', label: 'Temperature', low: 0, high: 100, note: '0 takes the most likely token each time' },
  { name: 'top_p', label: 'Top p', low: 0, high: 1, note: 'the likeliest tokens of this much together' },
  { name: 'top_k', label: 'Top k', whole: true, low: -1, note: 'so many tokens at most; 0: all' },
  { name: 'min_p', label: 'Min p', low: 0, high: 1, note: 'of the likeliest one' },
  { name: 'max_tokens', label: 'Max tokens', whole: true, low: 1, note: 'of an answer', free: 'at most 1,024' },
  { name: 'seed', label: 'Seed', whole: true, low: 0, high: Number.MAX_SAFE_INTEGER, note: 'the same seed gives the same answer', free: 'a new one' },
];
const PENALTIES = [
  { name: 'presence_penalty', label: 'Presence', low: -2, high: 2, free: '0' },
  { name: 'frequency_penalty', label: 'Frequency', low: -2, high: 2, free: '0' },
  { name: 'repetition_penalty', label: 'Repetition', low: 0.01, high: 100 },
];

function problemOf(field, text) {
  if (text === '') {
    return null;
  }
  const value = Number(text);
  if (!Number.isFinite(value)) {
    return `${field.label} must be a number.`;
  }
  if (field.whole && !Number.isSafeInteger(value)) {
    return `${field.label} must be a whole number${field.name === 'seed' ? ' below 2^53' : ''}.`;
  }
  if (value < field.low || value > (field.high ?? Infinity)) {
    return `${field.label} must be ${field.high === undefined ? `at least ${field.low}` : `between ${field.low} and ${field.high}`}.`;
  }
  return null;
}

export class Settings {
  /** @param onchange  something was set */
  constructor(onchange) {
    const kept = readKept(KEPT) ?? {};
    this.onchange = onchange;
    this.inputs = new Map();
    this.system = h('textarea', { rows: '4', spellcheck: 'true', value: kept.system ?? '', placeholder: 'None', oninput: () => this.changed() });
    this.stop = h('textarea', { rows: '2', spellcheck: 'false', value: kept.stop ?? '', placeholder: 'None', 'aria-describedby': 'note-stop', oninput: () => this.changed() });
    this.element = h('form', { class: 'settings-form', onsubmit: (event) => event.preventDefault() },
      h('label', { class: 'field' }, h('span', {}, 'System prompt'), this.system),
      h('fieldset', { class: 'grid' }, h('legend', {}, 'Sampling'), FIELDS.map((field) => this.field(field, kept.values?.[field.name]))),
      h('fieldset', { class: 'grid three' }, h('legend', {}, 'Penalties'), PENALTIES.map((field) => this.field(field, kept.values?.[field.name]))),
      h('label', { class: 'field' }, h('span', {}, 'Stop words'), this.stop,
        h('small', { class: 'note', id: 'note-stop' }, 'One a line; \\n is a new line')),
      h('div', { class: 'row' }, h('button', { type: 'button', class: 'quiet', onclick: () => this.clear() }, icon('retry'), 'Back to the model’s own')));
  }

  field(field, kept) {
    const bad = h('small', { class: 'problem', id: `bad-${field.name}` });
    const input = h('input', {
      inputmode: field.whole ? 'numeric' : 'decimal', autocomplete: 'off', spellcheck: 'false', name: field.name, value: kept ?? '',
      placeholder: field.free ?? '', 'aria-describedby': `note-${field.name} bad-${field.name}`, oninput: () => this.changed(),
    });
    this.inputs.set(field.name, { field, input, bad });
    return h('label', { class: 'field' }, h('span', {}, field.label), input,
      h('small', { class: 'note', id: `note-${field.name}` }, field.note ?? ''), bad);
  }

  /** What the chosen model draws with where nothing is said. */
  showDefaults(model) {
    for (const { field, input } of this.inputs.values()) {
      const value = model?.default_sampling?.[field.name];
      input.placeholder = field.free ?? (value === undefined ? '' : String(value));
    }
  }

  changed() {
    for (const { field, input, bad } of this.inputs.values()) {
      const problem = problemOf(field, input.value.trim());
      input.setAttribute('aria-invalid', problem === null ? 'false' : 'true');
      bad.textContent = problem ?? '';
    }
    const values = Object.fromEntries([...this.inputs].map(([name, { input }]) => [name, input.value.trim()]));
    keep(KEPT, { system: this.system.value, stop: this.stop.value, values });
    this.onchange();
  }

  clear() {
    for (const { input } of this.inputs.values()) {
      input.value = '';
    }
    this.stop.value = '';
    this.changed();
  }

  /** @return {problem} or {system, sampling} */
  read() {
    const sampling = {};
    for (const { field, input } of this.inputs.values()) {
      const text = input.value.trim();
      const problem = problemOf(field, text);
      if (problem !== null) {
        return { problem, input };
      }
      if (text !== '') {
        sampling[field.name] = Number(text);
      }
    }
    const stop = this.stop.value.split('\n').filter((line) => line !== '').map((line) => line.replaceAll('\\n', '\n'));
    if (stop.length > 0) {
      sampling.stop = stop;
    }
    return { system: this.system.value.trim(), sampling };
  }

  /** How many fields say something of their own. */
  count() {
    const { sampling, system } = this.read();
    return (sampling === undefined ? 0 : Object.keys(sampling).length) + (system ? 1 : 0);
  }

  /** The field that an error of the server names. */
  point(param) {
    this.inputs.get(param)?.input.focus();
  }
}
