/* SPDX-License-Identifier: Apache-2.0 */
/* The models that the server lists, and how it stands: asked at the start, when the
 * window is looked at again, and when something failed; again and again while it is away. */

import { askJson } from './api.js';

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

  /** @return when the answer is there; one question at a time */
  refresh() {
    this.under ??= this.fetch().finally(() => {
      this.under = null;
    });
    return this.under;
  }

  async fetch() {
    clearTimeout(this.timer);
    try {
      const found = await askJson('v1/models');
      this.list = Array.isArray(found?.data) ? found.data.filter((model) => typeof model?.id === 'string') : [];
      this.error = null;
      this.wait = LEAST_MS;
    } catch (error) {
      this.error = error;
      if (error.status === 0 && !document.hidden) {
        this.timer = setTimeout(() => this.refresh(), this.wait);
        this.wait = Math.min(MOST_MS, 2 * this.wait);
      }
    }
    this.asked = true;
    this.dispatchEvent(new Event('change'));
  }
}
