/* SPDX-License-Identifier: Apache-2.0 */
/* Talk: a chat with the models of this server.
 *
 *     composer ─▶ conversation (a tree) ─▶ answer.js ─▶ message.js
 *                       ▲ edit, retry, turn ────────────────┘
 */

import { address } from './api.js';
import { answer, bodyOf, curlOf, speed } from './answer.js';
import { Conversation } from './conversation.js';
import { announce, copyText, h, icon, iconButton, setText } from './dom.js';
import { plural, sentence } from './format.js';
import { apiKey, keep, readKept } from './kept.js';
import { MessageView } from './message.js';
import { Settings } from './settings.js';

const KEPT = 'baton.talk';
const NEAR = 96; /* pixels from the end: the reader follows */
const STARTERS = [
  'Why is a relay race won at the hand-over?',
  'Write a haiku about two machines that share one memory.',
  'Write a Python function that merges two sorted lists, and say what it costs.',
];
const WIDE = matchMedia('(min-width: 1080px)');

export class Talk {
  /** @param page  {models, wantKey(error)} */
  constructor(root, page) {
    const kept = readKept(KEPT);
    this.root = root;
    this.page = page;
    this.talk = Conversation.fromJson(kept?.talk);
    this.model = kept?.model ?? '';
    this.views = new Map();
    this.under = null; /* {node, controller} */
    this.follows = true;
    this.build();
    page.models.addEventListener('change', () => this.showModels());
    this.showModels();
    this.showPath();
  }

  /* ---- the page ---- */

  build() {
    this.settings = new Settings(() => this.showCount());
    this.thread = h('div', { class: 'thread', role: 'log', 'aria-label': 'Conversation', 'aria-live': 'off' });
    this.blank = h('div', { class: 'blank' });
    this.buildComposer();
    this.down = h('button', { type: 'button', class: 'down', hidden: true, onclick: () => this.toEnd() }, icon('down'), 'To the end');
    this.sheet = h('dialog', { class: 'sheet', 'aria-labelledby': 'sheet-title' },
      h('div', { class: 'sheet-head' }, h('h2', { id: 'sheet-title' }, 'Generation settings'),
        iconButton('close', 'Close', () => this.toggleSheet(false))),
      this.settings.element);
    this.root.append(
      h('h1', { class: 'unseen' }, 'Talk'),
      h('div', { class: 'talk-main' }, this.blank, this.thread,
        h('div', { class: 'dock' }, this.down, this.composer)),
      this.sheet);
    document.addEventListener('keydown', (event) => {
      const isElsewhere = this.root.hidden || event.defaultPrevented || document.querySelector('dialog:modal') !== null;
      if (event.key === 'Escape' && this.under !== null && !isElsewhere) {
        event.preventDefault();
        this.stop();
      }
    });
    addEventListener('scroll', () => this.scrolled(), { passive: true });
    WIDE.addEventListener('change', () => this.placeSheet());
    this.placeSheet();
    this.showCount();
  }

  buildComposer() {
    this.input = h('textarea', { class: 'input', rows: '1', 'aria-label': 'Message', placeholder: 'Say something', enterkeyhint: 'send' });
    this.choice = h('select', { 'aria-label': 'Model', onchange: () => this.choose(this.choice.value) });
    this.sheetButton = h('button', { type: 'button', class: 'quiet', 'aria-expanded': 'false', onclick: () => this.toggleSheet(!this.sheet.open) },
      icon('sliders'), h('span', { class: 'wide-only' }, 'Settings'), h('span', { class: 'badge', hidden: true }));
    this.fresh = h('button', { type: 'button', class: 'quiet', onclick: () => this.startAnew(), 'aria-label': 'New conversation', title: 'New conversation' },
      icon('plus'), h('span', { class: 'wide-only' }, 'New'));
    this.sendButton = h('button', { type: 'submit', class: 'main round', 'aria-label': 'Send', title: 'Send' }, icon('send'));
    this.stopButton = h('button', { type: 'button', class: 'main round', 'aria-label': 'Stop', title: 'Stop (Esc)', hidden: true, onclick: () => this.stop() }, icon('stop'));
    this.problem = h('p', { class: 'problem', role: 'alert' });
    this.composer = h('form', { class: 'composer', onsubmit: (event) => {
      event.preventDefault();
      this.send(this.input.value);
    } },
    this.input, this.problem,
    h('div', { class: 'row' }, this.choice, this.sheetButton, this.fresh, h('span', { class: 'grow' }), this.sendButton, this.stopButton));
    this.input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.send(this.input.value);
      }
    });
    this.input.addEventListener('input', () => this.grow());
  }

  grow() {
    this.input.style.height = 'auto';
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
  }

  /* Beside the conversation where there is room for it, above it where there is not. */
  placeSheet() {
    const open = WIDE.matches ? readKept('baton.sheet') !== false : false;
    if (this.sheet.open) {
      this.sheet.close();
    }
    if (open) {
      this.sheet.show();
    }
    this.sheetButton.setAttribute('aria-expanded', String(this.sheet.open));
  }

  toggleSheet(open) {
    if (!open) {
      this.sheet.close();
      this.sheetButton.focus();
    } else if (WIDE.matches) {
      this.sheet.show();
    } else {
      this.sheet.showModal();
    }
    if (WIDE.matches) {
      keep('baton.sheet', open);
    }
    this.sheetButton.setAttribute('aria-expanded', String(open));
  }

  showCount() {
    const n = this.settings.count();
    const badge = this.sheetButton.querySelector('.badge');
    badge.hidden = n === 0;
    setText(badge, String(n));
    this.sheetButton.setAttribute('aria-label', `Generation settings${n > 0 ? `, ${plural(n, 'setting')} of your own` : ''}`);
  }

  showModels() {
    const { list, error, asked } = this.page.models;
    if (list.length > 0 && this.page.models.get(this.model) === null) {
      this.model = list[0].id;
    }
    this.choice.replaceChildren(...list.map((model) => h('option', { value: model.id, selected: model.id === this.model }, model.id)));
    if (list.length === 0) {
      this.choice.replaceChildren(h('option', { value: '' }, asked && error === null ? 'no model' : '…'));
    }
    this.choice.disabled = list.length < 2;
    this.settings.showDefaults(this.page.models.get(this.model));
    this.showBlank();
  }

  choose(model) {
    this.model = model;
    this.settings.showDefaults(this.page.models.get(model));
    this.save();
    this.showBlank();
  }

  /* ---- what is there before anything was said, or where nothing can be ---- */

  showBlank() {
    const { list, error, asked } = this.page.models;
    const isEmpty = this.talk.root.children.length === 0;
    this.blank.hidden = !isEmpty && error === null;
    this.fresh.hidden = isEmpty;
    this.root.classList.toggle('empty', isEmpty);
    /* Drawn again only when it says something else: a reader may be at it. */
    const what = JSON.stringify([list.length > 0, asked, this.model, this.page.models.get(this.model)?.max_model_len, error?.message, apiKey() !== '']);
    if (what === this.blankSays) {
      return;
    }
    this.blankSays = what;
    if (error !== null) {
      this.blank.replaceChildren(this.trouble(error));
    } else if (asked && list.length === 0) {
      this.blank.replaceChildren(h('h2', {}, 'No model is served yet'),
        h('p', {}, 'The server is here, but it lists no model. One that is being loaded comes by itself.'),
        h('button', { type: 'button', onclick: () => this.page.models.refresh() }, icon('retry'), 'Refresh'));
    } else if (asked) {
      this.blank.replaceChildren(...this.welcome());
    }
  }

  trouble(error) {
    if (error.status === 401 || error.status === 403) {
      return h('div', { class: 'trouble' }, h('p', {}, h('strong', {}, 'This server wants an API key. '), sentence(error.message)),
        h('button', { type: 'button', class: 'main', onclick: () => this.page.wantKey(error.message) }, 'Enter a key'));
    }
    return h('div', { class: 'trouble' }, h('p', {}, h('strong', {}, sentence(error.message))),
      h('p', { class: 'note' }, error.status === 0 ? 'It may have stopped, or the way to it is closed.' : `HTTP status ${error.status}.`),
      h('button', { type: 'button', onclick: () => this.page.models.refresh() }, icon('retry'), 'Try again'));
  }

  welcome() {
    const body = bodyOf(this.model, [{ role: 'user', content: STARTERS[0] }], {});
    const text = curlOf(address('.'), body, apiKey() !== '');
    const copy = iconButton('copy', 'Copy this command', () => copyText(text, copy));
    const room = this.page.models.get(this.model)?.max_model_len;
    return [
      h('p', { class: 'over' }, 'Talk to'),
      h('p', { class: 'title' }, this.model),
      room ? h('p', { class: 'note' }, `Room for ${plural(room, 'token')}.`) : null,
      h('div', { class: 'starters' }, STARTERS.map((words) => h('button', { type: 'button', onclick: () => this.send(words) }, words))),
      h('details', { class: 'programs' }, h('summary', {}, 'From a program'),
        h('p', { class: 'note' }, 'Clients of OpenAI’s API find it at ', h('code', {}, address('v1').href), ', Triton’s at ', h('code', {}, address('v2').href), '.'),
        h('div', { class: 'code' }, h('div', { class: 'code-head' }, h('span', {}, 'curl'), copy),
          h('pre', { tabindex: '0', role: 'group', 'aria-label': 'A call with curl' }, h('code', {}, text)))),
    ].filter((x) => x !== null);
  }

  /* ---- the conversation ---- */

  showPath() {
    const path = this.talk.path();
    const wanted = path.map((node) => this.viewOf(node).element);
    [...this.thread.children].forEach((element) => {
      if (!wanted.includes(element)) {
        element.remove();
      }
    });
    wanted.forEach((element, i) => {
      if (this.thread.children[i] !== element) {
        this.thread.insertBefore(element, this.thread.children[i] ?? null);
      }
    });
    for (const node of path) {
      this.views.get(node.id).showPlace(this.talk.place(node.id));
    }
    this.showBlank();
  }

  viewOf(node) {
    if (!this.views.has(node.id)) {
      this.views.set(node.id, new MessageView(node, {
        turn: (at, by) => this.turn(at, by),
        edit: (at, text) => this.edit(at, text),
        retry: (at) => this.retry(at),
        curl: (at) => this.curl(at),
      }));
    }
    return this.views.get(node.id);
  }

  save() {
    keep(KEPT, { model: this.model, talk: this.talk.toJson() });
  }

  startAnew() {
    this.stop();
    this.talk = new Conversation();
    this.views.clear();
    this.showPath();
    this.save();
    this.input.focus();
  }

  turn(node, by) {
    if (this.under !== null) {
      return;
    }
    this.talk.turn(node.id, by);
    this.showPath();
    this.save();
    const now = this.talk.get(node.parent);
    this.views.get(now.children[now.chosen]).pager.querySelector(by < 0 ? 'button:not(:disabled)' : 'button:last-of-type:not(:disabled), button:not(:disabled)')?.focus();
  }

  edit(node, text) {
    if (this.under !== null) {
      return;
    }
    const made = this.talk.add(node.parent, node.role, text);
    if (node.role === 'user') {
      this.generate(made.id);
    } else {
      made.asked = node.asked;
      this.showPath();
      this.save();
      this.input.focus();
    }
  }

  retry(node) {
    if (this.under !== null) {
      return;
    }
    const from = node.role === 'user' ? node.id : node.parent;
    if (node.role === 'assistant' && node.content === '' && node.children.length === 0) {
      this.talk.remove(node.id);
      this.views.delete(node.id);
      this.input.focus({ preventScroll: true }); /* what had the focus is gone */
    }
    this.generate(from);
  }

  curl(node) {
    const { model = this.model, system = '', sampling = {} } = node.asked ?? {};
    return curlOf(address('.'), bodyOf(model, this.talk.messagesTo(node.parent, system), sampling), apiKey() !== '');
  }

  send(text) {
    if (text.trim() === '' || this.under !== null) {
      return;
    }
    if (this.checked() === null) {
      return;
    }
    const path = this.talk.path();
    const node = this.talk.add(path.length === 0 ? 0 : path[path.length - 1].id, 'user', text.trim());
    this.input.value = '';
    this.grow();
    this.follows = true;
    this.generate(node.id);
  }

  /* @return the settings, or null: the reader was told what is wrong with them */
  checked() {
    const read = this.settings.read();
    this.problem.textContent = read.problem ?? '';
    if (read.problem !== undefined) {
      if (!this.sheet.open) {
        this.toggleSheet(true);
      }
      read.input.focus();
      return null;
    }
    return read;
  }

  async generate(parentId) {
    const read = this.checked();
    if (read === null || this.under !== null) {
      return;
    }
    const node = this.talk.add(parentId, 'assistant', '');
    const controller = new AbortController();
    node.asked = { model: this.model, system: read.system, sampling: read.sampling };
    this.under = { node, controller };
    const { talk } = this;
    const view = this.viewOf(node);
    this.showPath();
    view.begin();
    this.showBusy(true);
    this.toEnd();
    const body = bodyOf(this.model, talk.messagesTo(parentId, read.system), read.sampling);
    node.about = await answer(body, controller.signal, (what, value, since) => {
      if (what === 'tokens') {
        view.showSpeed(value, speed(value, since));
      } else {
        view.add(what, value, () => this.drawn());
      }
    });
    view.end();
    this.under = null;
    this.showBusy(false);
    this.finished(node, talk);
  }

  finished(node, talk) {
    const { about } = node;
    this.drawn();
    if (talk !== this.talk) {
      return; /* another conversation was begun meanwhile */
    }
    this.save();
    announce(about.error !== null ? `No whole answer: ${about.error.message}` : `The answer is there, ${plural(about.tokens, 'token')}.`);
    if (about.error !== null) {
      if (about.error.status === 401) {
        this.page.wantKey(about.error.message);
      }
      if (about.error.param) {
        this.settings.point(about.error.param);
      }
    }
    if (about.error !== null || this.page.models.error !== null) {
      this.page.models.refresh(); /* it has gone, or come back */
    }
  }

  stop() {
    this.under?.controller.abort();
  }

  showBusy(isBusy) {
    const hadFocus = [this.sendButton, this.stopButton].includes(document.activeElement);
    this.sendButton.hidden = isBusy;
    this.stopButton.hidden = !isBusy;
    this.root.classList.toggle('busy', isBusy);
    if (hadFocus) {
      (isBusy ? this.stopButton : this.sendButton).focus();
    }
  }

  /* ---- where the reader is ---- */

  scrolled() {
    if (this.root.hidden) {
      return;
    }
    const page = document.scrollingElement;
    this.follows = page.scrollHeight - page.scrollTop - page.clientHeight < NEAR;
    this.down.hidden = this.follows;
  }

  drawn() {
    if (this.follows && !this.root.hidden) {
      this.toEnd();
    }
  }

  toEnd() {
    document.scrollingElement.scrollTo({ top: document.scrollingElement.scrollHeight, behavior: 'instant' });
    this.follows = true;
    this.down.hidden = true;
  }

  /** It is looked at. */
  enter() {
    this.grow();
    if (this.talk.root.children.length > 0) {
      this.toEnd();
    }
    if (matchMedia('(pointer: fine)').matches) {
      this.input.focus({ preventScroll: true });
    }
  }

  leave() {}
}
