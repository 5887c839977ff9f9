/* SPDX-License-Identifier: Apache-2.0 */
/* Before anything is drawn: the theme that was chosen here, if one was. Runs as a
 * plain script, so that the page never flashes in the other one. */
(function () {
  'use strict';
  try {
    const chosen = localStorage.getItem('baton.theme');
    if (chosen === 'light' || chosen === 'dark') {
      document.documentElement.dataset.theme = chosen;
    }
  } catch {
    /* No storage: the system's. */
  }
})();
