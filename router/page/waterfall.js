/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of one request, drawn: its phases below each other on one axis of time,
 * what lay beside them, and why it was placed where it was. */

import { h, setText } from './dom.js';
import { bytes, clock, count, ms, percent, plural } from './format.js';

/* What the phases are called here, and what they are. Names that are not known yet are shown as they are. */
const PHASES = {
  parse: ['Reading', 'The body was read and checked.'],
  tokenize: ['Tokenizing', 'The template was applied and the text became tokens.'],
  queue: ['Waiting for workers', 'In the router, until there was room.'],
  prefill_queue: ['Waiting for prefill', 'At the prefill worker, until its first chunk.'],
  prefill: ['Prefill', 'The prompt was computed.'],
  first_token: ['First token on its way', 'Ways between processes, text, earlier attempts.'],
  grant_wait: ['Waiting for a place', 'The KV was there, the decode worker had no seat or blocks yet.'],
  kv_transfer: ['KV transfer', 'The part of the transfer that did not overlap the prefill.'],
  join_wait: ['Waiting to join', 'For the end of the iteration under way.'],
  second_token: ['Second token', 'Its iteration, and its way.'],
  decode: ['Decode', 'From the second token to the end.'],
};
const OVERLAPPED = {
  kv_transfer_data: 'All of the data’s way',
  decode_queue: 'Wait for a lease',
  kv_verify: 'Verification of the KV',
  paused: 'Out of the batch for others',
};
const PLACES = { router: 'Router', prefill: 'Prefill', decode: 'Decode' };
const FINISHES = {
  stop: 'ended by itself', length: 'ended at its limit of tokens', canceled: 'was given up by its client', error: 'failed',
};

function finishOf(request) {
  return FINISHES[request.finish] ?? String(request.finish);
}

function nameOf(phase) {
  return PHASES[phase.name]?.[0] ?? String(phase.name).replaceAll('_', ' ');
}

/* ---- the phases ---- */

function bar(phase, total) {
  if (phase.length_ms === 0) {
    return h('span', { class: 'lane', 'aria-hidden': 'true' });
  }
  const fill = h('i', { class: `bar ${PLACES[phase.at] === undefined ? 'router' : phase.at}` });
  fill.style.insetInlineStart = `${Math.min(100, (100 * phase.start_ms) / total)}%`;
  fill.style.inlineSize = `${Math.max(0, Math.min(100 - (100 * phase.start_ms) / total, (100 * phase.length_ms) / total))}%`;
  return h('span', { class: 'lane', 'aria-hidden': 'true' }, fill);
}

function row(phase, total, all) {
  const more = [
    phase.worker, phase.chunks > 0 ? plural(phase.chunks, 'chunk') : null,
  ].filter(Boolean).join(' · ');
  return h('tr', { data: { phase: phase.name } },
    h('th', { scope: 'row', title: PHASES[phase.name]?.[1] }, h('span', {}, nameOf(phase)),
      h('small', {}, h('i', { class: `spot ${phase.at}` }), PLACES[phase.at] ?? phase.at, more === '' ? '' : ` · ${more}`)),
    h('td', { class: 'lane-cell' }, bar(phase, total)),
    h('td', { class: 'number' }, ms(phase.start_ms)),
    h('td', { class: 'number strong', data: { ms: phase.length_ms } }, ms(phase.length_ms)),
    h('td', { class: 'number faint' }, percent(phase.length_ms, all)));
}

export class Waterfall {
  constructor(request) {
    this.request = request;
    this.phases = (request.phases ?? []).filter((phase) => Number.isFinite(phase.start_ms) && Number.isFinite(phase.length_ms));
    this.body = h('tbody');
    this.axis = h('span');
    this.element = h('div', { class: 'waterfall' }, this.scales(), h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Phases' },
      h('table', {}, h('caption', { class: 'unseen' }, 'Phases of the request, in their order'),
        h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Phase'), h('th', { scope: 'col', class: 'lane-cell' }, h('span', { class: 'axis' }, h('span', {}, '0'), this.axis)),
          ['From', 'Length', 'Share'].map((name) => h('th', { scope: 'col', class: 'number' }, name)))),
        this.body, this.foot())));
    this.show(request.duration_ms);
  }

  /* The generation is most of the time of most requests: what was before it can be seen alone. */
  scales() {
    const second = this.phases.find((phase) => phase.name === 'decode')?.start_ms;
    const ends = [['All of it', this.request.duration_ms], ['To the first token', this.request.first_token_ms], ['To the second', second]]
      .filter(([, end]) => Number.isFinite(end) && end > 0);
    return h('div', { class: 'segments', role: 'group', 'aria-label': 'Scale', hidden: ends.length < 2 }, ends.map(([name, end], i) => h('button', {
      type: 'button', 'aria-pressed': String(i === 0), onclick: ({ currentTarget }) => {
        currentTarget.parentNode.querySelectorAll('button').forEach((one) => one.setAttribute('aria-pressed', String(one === currentTarget)));
        this.show(end, i > 0);
      },
    }, name)));
  }

  /* Up to the first or second token there is no generation: it begins with the second, which may come with the first. */
  show(end, before = false) {
    const shown = this.phases.filter((phase) => !(before && phase.name === 'decode') && (phase.start_ms < end || (phase.start_ms === 0 && end === 0)));
    this.body.replaceChildren(...shown.map((phase) => row(phase, end || 1, this.request.duration_ms)));
    setText(this.axis, ms(end));
  }

  foot() {
    const sum = this.phases.reduce((all, phase) => all + phase.length_ms, 0);
    return h('tfoot', {}, h('tr', {}, h('th', { scope: 'row' }, 'Together'), h('td', { class: 'lane-cell' }), h('td'),
      h('td', { class: 'number strong', data: { sum: sum.toFixed(3) } }, ms(sum)), h('td', { class: 'number faint' }, percent(sum, this.request.duration_ms))));
  }
}

/** One bar: which part of the time was whose. */
export function partsOf(request) {
  const parts = new Map(Object.keys(PLACES).map((place) => [place, 0]));
  for (const { at, length_ms: length } of request.phases ?? []) {
    parts.set(at, (parts.get(at) ?? 0) + length);
  }
  const shown = [...parts].filter(([, length]) => length > 0);
  return h('div', { class: 'parts' },
    h('div', { class: 'parts-bar', 'aria-hidden': 'true' }, shown.map(([at, length]) => {
      const part = h('i', { class: `bar ${at}` });
      part.style.flexGrow = String(length);
      return part;
    })),
    h('ul', { class: 'legend' }, shown.map(([at, length]) => h('li', {}, h('i', { class: `spot ${at}` }), PLACES[at] ?? at, ' ',
      h('b', {}, percent(length, request.duration_ms)), h('span', { class: 'note' }, ` ${ms(length)}`)))));
}

/* ---- in words ---- */

export function summaryOf(request) {
  const says = [`It ${finishOf(request)} after ${ms(request.duration_ms)}.`];
  if (Number.isFinite(request.first_token_ms)) {
    says.push(`The first token came after ${ms(request.first_token_ms)}.`);
  }
  if (request.draft_tokens > 0) {
    says.push(`Speculative decoding: ${count(request.accepted_tokens)} of ${plural(request.draft_tokens, 'draft token')} accepted.`);
  }
  if (request.output_tokens > 1 && Number.isFinite(request.mean_gap_ms)) {
    says.push(`Then ${plural(request.output_tokens - 1, 'token')}, one each ${ms(request.mean_gap_ms)} on average${Number.isFinite(request.max_gap_ms) ? `, ${ms(request.max_gap_ms)} at most` : ''}.`);
  }
  says.push(request.reused_tokens > 0
    ? `Of ${plural(request.prompt_tokens, 'prompt token')} ${count(request.reused_tokens)} were in the cache (${percent(request.reused_tokens, request.prompt_tokens)}).`
    : `None of its ${plural(request.prompt_tokens, 'prompt token')} was in the cache.`);
  if (request.attempts > 1) {
    says.push(`It took ${plural(request.attempts, 'attempt')}.`);
  }
  return says.join(' ');
}

function besideOf(request) {
  const list = (request.overlapped ?? []).filter((one) => one.length_ms > 0 || one.bytes > 0 || one.times > 0);
  if (list.length === 0) {
    return null;
  }
  return h('section', {}, h('h3', {}, 'Beside them'), h('p', { class: 'note' }, 'Durations that lie within the phases or next to them: they are in the sum already, or cost nothing.'),
    h('ul', { class: 'overlapped' }, list.map((one) => h('li', {}, h('span', {}, OVERLAPPED[one.name] ?? String(one.name).replaceAll('_', ' ')), h('b', {}, ms(one.length_ms)),
      h('small', {}, [one.bytes > 0 ? bytes(one.bytes) : null, one.pieces > 0 ? plural(one.pieces, 'piece') : null, one.times > 0 ? plural(one.times, 'time') : null,
        PLACES[one.at] ?? one.at].filter(Boolean).join(' · '))))));
}

/* ---- why there ---- */

function facts(...pairs) {
  return h('dl', { class: 'pairs' }, pairs.filter(([, value]) => value !== null).map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
}

function has(value) {
  return value !== undefined && value !== null;
}

function whyOf(place) {
  return place.of_workers === 1 || place.of_workers === undefined ? place.why : `${place.why}, of ${plural(place.of_workers, 'worker')}`;
}

function prefillOf(place) {
  return h('div', { class: 'placed' }, h('h4', {}, h('i', { class: 'spot prefill' }), place.worker),
    facts(['Told apart by', whyOf(place)],
      ['Ahead of it', has(place.ahead_requests) ? `${plural(place.ahead_requests, 'request')}, ${plural(place.ahead_tokens, 'token')}` : null],
      ['Thought to take', has(place.ahead_ms) ? ms(place.ahead_ms) : null],
      ['Prompt it had', has(place.held_tokens) ? plural(place.held_tokens, 'token') : null]));
}

function decodeOf(place) {
  return h('div', { class: 'placed' }, h('h4', {}, h('i', { class: 'spot decode' }), place.worker),
    facts(['Told apart by', whyOf(place)],
      ['Seats in use', has(place.seats) ? `${count(place.seats_used)} of ${count(place.seats)}` : null],
      ['Blocks in use', has(place.blocks) ? `${count(place.blocks_used)} of ${count(place.blocks)}` : null]));
}

function triesOf(request) {
  const tries = request.tries ?? [];
  if (tries.length === 0) {
    return null;
  }
  return h('section', {}, h('h3', {}, 'Why there'),
    tries.map((one) => h('div', { class: 'try' },
      h('p', {}, tries.length > 1 ? h('strong', {}, `Attempt ${one.number} `) : '', 'Way: ', h('b', {}, one.cause), has(one.start_ms) ? `, chosen ${ms(one.start_ms)} after it came.` : '.',
        has(one.ended) ? h('span', { class: 'bad-text' }, ` Given up: ${one.ended}`) : ''),
      h('div', { class: 'placements' }, one.prefill ? prefillOf(one.prefill) : null, one.decode ? decodeOf(one.decode) : null))));
}

/** All that is known of a request. */
export function explain(request) {
  const title = h('h2', { class: 'detail-title', tabindex: '-1' });
  setText(title, `Request ${request.id}`);
  return h('div', { class: 'detail' }, title,
    h('p', { class: 'detail-sub' }, [request.model, request.tenant, request.chat ? 'chat' : 'completion', request.stream ? 'streamed' : 'whole', clock(request.begin_unix_ms)]
      .filter((x) => x !== null && x !== undefined && x !== '').join(' · ')),
    h('p', { class: 'detail-says' }, summaryOf(request)),
    request.missed ? h('p', { class: 'bad-text' }, `It missed its target (${[has(request.ttft_target_ms) ? `first token within ${ms(request.ttft_target_ms)}` : null,
      has(request.itl_target_ms) ? `each ${ms(request.itl_target_ms)}` : null].filter(Boolean).join(', ')}).`) : null,
    request.trouble ? h('p', { class: 'bad-text' }, request.finish === 'error' ? `The client got ${request.http_status ?? 'an error'}: ${request.trouble}` : `An earlier attempt was given up: ${request.trouble}`) : null,
    partsOf(request), new Waterfall(request).element, besideOf(request), triesOf(request),
    h('p', { class: 'note ids' }, 'Answer ', h('code', {}, request.answer_id ?? '–'), request.choice > 0 ? `, choice ${request.choice}` : ''));
}
