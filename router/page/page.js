/* SPDX-License-Identifier: Apache-2.0 */
/* The page: which view is shown, the theme, the key, how the server stands. */

import { h, icon, setText } from './dom.js';
import { sentence } from './format.js';
import { apiKey, keepTheme, setApiKey } from './kept.js';
import { Models } from './models.js';
import { Explain } from './explain.js';
import { Feed } from './feed.js';
import { Talk } from './talk.js';
import { Watch } from './watch.js';

const byId = (id) => document.getElementById(id);

/* ---- the theme: the system's until one is chosen ---- */

function themeNow() {
  return document.documentElement.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
}

function showTheme() {
  const button = byId('theme');
  const other = themeNow() === 'dark' ? 'light' : 'dark';
  button.replaceChildren(icon(other === 'dark' ? 'moon' : 'sun'));
  button.setAttribute('aria-label', `Use the ${other} theme`);
  button.title = `Use the ${other} theme`;
}

function switchTheme() {
  const other = themeNow() === 'dark' ? 'light' : 'dark';
  const isSystems = matchMedia('(prefers-color-scheme: dark)').matches === (other === 'dark');
  if (isSystems) {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = other;
  }
  keepTheme(isSystems ? null : other);
  showTheme();
}

/* ---- the key ---- */

const keyDialog = byId('key-dialog');

function wantKey(why) {
  if (keyDialog.open) {
    return;
  }
  setText(byId('key-why'), why !== undefined ? sentence(why) : 'Sent with each request from this page.');
  byId('key-input').value = apiKey();
  byId('key-forget').hidden = apiKey() === '';
  keyDialog.showModal();
}

function useKey(text) {
  setApiKey(text);
  showKey();
  models.refresh();
  feed.restart();
}

function showKey() {
  const isWanted = models.error?.status === 401 || models.error?.status === 403;
  byId('key').hidden = apiKey() === '' && !isWanted;
}

/* ---- how it stands ---- */

function showStanding() {
  const pill = byId('standing');
  const [state, words] = standing();
  pill.dataset.state = state;
  setText(pill, words);
}

function standing() {
  if (feed.snapshot !== null && feed.status === 'open') {
    const { state } = feed.snapshot.router;
    return [state === 'ready' ? 'good' : 'warn', String(state).replace('_', ' ')];
  }
  if (!models.asked) {
    return ['unknown', 'asking'];
  }
  if (models.error === null) {
    return models.list.length > 0 ? ['good', 'online'] : ['warn', 'no model'];
  }
  return models.error.status === 401 ? ['warn', 'key wanted'] : models.error.status === 0 ? ['bad', 'offline'] : ['bad', 'refused'];
}

/* ---- the views ---- */

const models = new Models();
const feed = new Feed();
const shared = { models, feed, wantKey };
const views = {
  talk: new Talk(byId('talk'), shared),
  watch: new Watch(byId('watch'), shared),
  explain: new Explain(byId('explain'), shared),
};
let shown = null;

function route() {
  const [, name = 'talk', rest = ''] = /^#\/(\w+)(?:\/(.*))?$/.exec(location.hash) ?? [];
  const to = name in views ? name : 'talk';
  if (shown !== to) {
    if (shown !== null) {
      views[shown].leave();
    }
    for (const each of Object.keys(views)) {
      byId(each).hidden = each !== to;
    }
    document.querySelectorAll('[data-place]').forEach((link) => {
      if (link.dataset.place === to) {
        link.setAttribute('aria-current', 'page');
      } else {
        link.removeAttribute('aria-current');
      }
    });
    document.title = `${{ talk: 'Talk', watch: 'Watch', explain: 'Explain' }[to]} · Baton`;
    scrollTo({ top: 0, behavior: 'instant' });
    shown = to;
  }
  views[to].enter(decode(rest));
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

byId('theme').addEventListener('click', switchTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', showTheme);
byId('key').addEventListener('click', () => wantKey());
byId('key-cancel').addEventListener('click', () => keyDialog.close());
byId('key-forget').addEventListener('click', () => {
  useKey('');
  keyDialog.close();
});
keyDialog.querySelector('form').addEventListener('submit', () => useKey(byId('key-input').value.trim()));
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault(); /* the address names the view */
  byId('main').focus();
});
models.addEventListener('change', () => {
  showStanding();
  showKey();
});
feed.addEventListener('status', showStanding);
feed.addEventListener('state', showStanding);
addEventListener('hashchange', route);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) {
    models.refresh();
  }
});
showTheme();
showStanding();
models.refresh();
route();
