/* SPDX-License-Identifier: Apache-2.0 */
/* The models that the server lists, and how it stands: asked at the start, with another
 * key, when the window is looked at again, and when something failed; again and again
 * while it is away. */

import { askJson } from './api.js';
import { apiKey } from './kept.js';

const LEAST_MS = 2000;
const MOST_MS = 60000;

export class Models extends EventTarget {
  constructor() {
    super();
    this.list = [];
    this.error = null;
    this.asked = false;
    this.under = null;
    this.wait = LEAST_MS;
    this.timer = 0;
  }

  get(id) {
    return this.list.find((model) => model.id === id) ?? null;
  }

  /** @return when the answer is there; one question at a time. What is told is of the
   *  key that is in use then: an answer to another one is not, and it is asked again. */
  refresh() {
    this.under ??= this.fetch().finally(() => {
      this.under = null;
    });
    return this.under;
  }

  async fetch() {
    clearTimeout(this.timer);
    let key;
    let found = null;
    let failure = null;
    do {
      key = apiKey();
      [found, failure] = await askJson('v1/models').then((told) => [told, null], (error) => [null, error]);
    } while (key !== apiKey());
    if (failure === null) {
      this.list = Array.isArray(found?.data) ? found.data.filter((model) => typeof model?.id === 'string') : [];
      this.error = null;
      this.wait = LEAST_MS;
    } else {
      this.error = failure;
      if (failure.status === 0 && !document.hidden) {
        this.timer = setTimeout(() => this.refresh(), this.wait);
        this.wait = Math.min(MOST_MS, 2 * this.wait);
      }
    }
    this.asked = true;
    this.dispatchEvent(new Event('change'));
  }
}
