/* SPDX-License-Identifier: Apache-2.0 */
/* One answer: the request, its events, what it took. Knows nothing of the page. */

import { ask, errorOf, eventsOf, ServerError } from './api.js';

const PATH = 'v1/chat/completions';

/** The body of the request, which is also what is copied for curl. */
export function bodyOf(model, messages, sampling) {
  return {
    ...(model === '' ? {} : { model }), messages, ...sampling, stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
}

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The same call for a shell. The key is not in it: $BATON_API_KEY stands for it. */
export function curlOf(base, body, isKeyed) {
  const { stream_options: options, ...rest } = body;
  const text = JSON.stringify({ ...rest, stream_options: { include_usage: options.include_usage } }, null, 1);
  return [
    `curl -N ${quoted(new URL(PATH, base).href)}`,
    "  -H 'Content-Type: application/json'",
    ...(isKeyed ? ['  -H "Authorization: Bearer $BATON_API_KEY"'] : []),
    `  -d ${quoted(text)}`,
  ].join(' \\\n');
}

/**
 * Asks, and calls on(what, …) as it goes: 'thought' and 'text' with a piece, 'tokens' with
 * how many there are.
 *
 * @return what became of it; what came is always told:
 *   {id, finish, ttftMs, totalMs, tokensPerSecond, promptTokens, cachedTokens, tokens, error}
 *   finish: the server's reason, 'stopped' by the reader, 'broken' or 'refused'; error is null but for the last two
 */
export async function answer(body, signal, on) {
  const about = {
    id: null, finish: null, ttftMs: null, totalMs: null, tokensPerSecond: null, promptTokens: null, cachedTokens: null,
    tokens: 0, error: null,
  };
  const begin = performance.now();
  const times = { begin, first: null, last: null };
  try {
    const response = await ask(PATH, {
      method: 'POST', signal, body: JSON.stringify(body), headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream' },
    });
    await read(response, about, times, on);
    if (about.finish === null) {
      throw new ServerError(0, 'The connection broke before the answer was whole.');
    }
  } catch (error) {
    tell(error, about, times);
  }
  measure(about, times, performance.now());
  return about;
}

function tell(error, about, times) {
  if (error.name === 'AbortError') {
    about.finish = 'stopped';
    return;
  }
  if (!(error instanceof ServerError)) {
    throw error;
  }
  about.finish = times.first === null ? 'refused' : 'broken';
  about.error = { status: error.status, message: error.message, param: error.param, retryAfter: error.retryAfter };
}

async function read(response, about, times, on) {
  for await (const event of eventsOf(response)) {
    if (event.data === '[DONE]') {
      return;
    }
    let chunk;
    try {
      chunk = JSON.parse(event.data);
    } catch {
      throw new ServerError(0, 'The server sent what is no answer.');
    }
    if (chunk === null || typeof chunk !== 'object') {
      throw new ServerError(0, 'The server sent what is no answer.');
    }
    if (chunk.error) {
      throw errorOf(0, chunk);
    }
    take(chunk, about, times, on);
  }
}

function take(chunk, about, times, on) {
  about.id ??= typeof chunk.id === 'string' ? chunk.id : null;
  const choice = chunk.choices?.[0];
  const thought = choice?.delta?.reasoning_content;
  const text = choice?.delta?.content;
  const now = performance.now();
  for (const [what, part] of [['thought', thought], ['text', text]]) {
    if (typeof part === 'string' && part !== '') {
      times.first ??= now;
      times.last = now;
      on(what, part);
    }
  }
  if (typeof choice?.finish_reason === 'string') {
    about.finish = choice.finish_reason;
  }
  if (chunk.usage) {
    about.tokens = chunk.usage.completion_tokens ?? about.tokens;
    about.promptTokens = chunk.usage.prompt_tokens ?? about.promptTokens;
    about.cachedTokens = chunk.usage.prompt_tokens_details?.cached_tokens ?? about.cachedTokens;
    on('tokens', about.tokens, times.first === null ? null : now - times.first);
  }
}

function measure(about, times, now) {
  about.totalMs = now - times.begin;
  if (times.first !== null) {
    about.ttftMs = times.first - times.begin;
    about.tokensPerSecond = speed(about.tokens, times.last - times.first);
  }
}

/** Tokens a second behind the first one; null: too few to say. */
export function speed(tokens, ms) {
  return tokens > 1 && ms > 0 ? ((tokens - 1) * 1000) / ms : null;
}
