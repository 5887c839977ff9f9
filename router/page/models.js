/* SPDX-License-Identifier: Apache-2.0 */
/* The models that the server lists, and how it stands: asked at the start, when the
 * window is looked at again, and when something failed. */

import { askJson } from './api.js';

export class Models extends EventTarget {
  constructor() {
    super();
    this.list = [];
    this.error = null;
    this.asked = false;
    this.under = null;
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
    try {
      const found = await askJson('v1/models');
      this.list = Array.isArray(found?.data) ? found.data.filter((model) => typeof model?.id === 'string') : [];
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.asked = true;
    this.dispatchEvent(new Event('change'));
  }
}
