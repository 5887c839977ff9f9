/* SPDX-License-Identifier: Apache-2.0 */
/* One message of a conversation on the page: its text, what can be done with it, what
 * it took. It knows how to show; what happens is the talk's (talk.js). */

import { copyText, h, icon, iconButton } from './dom.js';
import { count, ms, plural, rate, sentence } from './format.js';
import { drawMarkdown, MarkdownView } from './markdown.js';

const ENDS = {
  stop: null,
  length: 'cut at the limit of tokens',
  stopped: 'stopped by you',
  broken: 'broke off',
  refused: null,
  content_filter: 'filtered',
  tool_calls: 'asks for a tool',
};

function figure(label, value, title) {
  return h('span', { class: 'figure', title }, h('span', { class: 'figure-label' }, label), ' ', h('b', {}, value));
}

/** The line below an answer. */
function figuresOf(about) {
  const end = about.finish in ENDS ? ENDS[about.finish] : about.finish;
  return [
    about.ttftMs === null ? null : figure('TTFT', ms(about.ttftMs), 'Time to the first token, as this browser saw it'),
    about.tokensPerSecond === null ? null : figure('Speed', `${rate(about.tokensPerSecond)} tokens/s`, 'Behind the first token'),
    about.tokens > 0 ? figure('Tokens', count(about.tokens), 'Of the answer') : null,
    about.finish === 'refused' ? null : figure('Took', ms(about.totalMs), 'From the request to the end of the answer'),
    about.cachedTokens > 0 ? figure('Reused', `${count(about.cachedTokens)} of ${count(about.promptTokens)}`, 'Tokens of the prompt that were not computed again') : null,
    end === null ? null : h('span', { class: 'figure end' }, end),
  ];
}

export class MessageView {
  /**
   * @param node  of the conversation
   * @param acts  what happens: {turn, edit, retry, curl}
   */
  constructor(node, acts) {
    this.node = node;
    this.acts = acts;
    this.isUser = node.role === 'user';
    this.body = h('div', { class: this.isUser ? 'said' : 'said markdown' });
    this.thought = h('details', { class: 'thought', hidden: true }, h('summary', {}, 'Thought'), h('div', { class: 'thought-text' }));
    this.trouble = h('div', { class: 'trouble', hidden: true });
    this.figures = h('div', { class: 'figures' });
    this.pager = h('div', { class: 'pager' });
    this.buttons = h('div', { class: 'acts' });
    this.element = h('article', { class: `message ${node.role}`, data: { id: node.id } },
      h('div', { class: 'message-head' }, h('h2', {}, this.isUser ? 'You' : (node.asked?.model ?? 'Answer')), this.pager),
      this.thought, this.body, this.trouble,
      h('div', { class: 'message-foot' }, this.figures, this.buttons));
    this.view = null;
    this.waiting = '';
    this.waitingThought = '';
    this.frame = 0;
    this.show();
  }

  show() {
    if (this.isUser) {
      this.body.textContent = this.node.content;
    } else {
      drawMarkdown(this.body, this.node.content);
      this.showThought();
      this.showAbout();
    }
    this.showButtons();
  }

  showThought() {
    const thought = this.node.thought ?? '';
    this.thought.hidden = thought === '';
    this.thought.lastChild.textContent = thought;
  }

  showAbout() {
    const { about } = this.node;
    this.figures.replaceChildren(...(about === null ? [] : figuresOf(about).filter((x) => x !== null)));
    const error = about?.error ?? null;
    this.trouble.hidden = error === null;
    if (error !== null) {
      this.trouble.replaceChildren(
        h('p', {}, h('strong', {}, about.finish === 'broken' ? 'The answer broke off. ' : 'No answer. '), sentence(error.message)),
        h('p', { class: 'note' }, this.adviceOf(error)),
        h('button', { type: 'button', onclick: () => this.acts.retry(this.node) }, icon('retry'), 'Try again'));
    }
  }

  adviceOf(error) {
    const kept = this.node.content === '' ? '' : 'What came is kept. ';
    if (error.retryAfter !== null) {
      return `${kept}The server asks to wait ${plural(error.retryAfter, 'second')}.`;
    }
    if (error.param) {
      return `${kept}It is about the field ${error.param}.`;
    }
    return error.status === 0 ? `${kept}Nothing is sent again by itself.` : `${kept}HTTP status ${error.status}.`;
  }

  showButtons() {
    const { node, acts } = this;
    const what = this.isUser ? 'message' : 'answer';
    const copy = iconButton('copy', `Copy this ${what}`, () => copyText(node.content, copy));
    const made = [copy, iconButton('edit', `Edit this ${what}`, () => this.edit()),
      iconButton('retry', this.isUser ? 'Ask this again' : 'Answer again', () => acts.retry(node))];
    if (!this.isUser) {
      const curl = iconButton('terminal', 'Copy as curl', () => copyText(acts.curl(node), curl), { data: { icon: 'terminal' } });
      made.push(curl);
      if (node.about?.id) {
        made.push(h('a', { class: 'quiet icon button', href: `#/explain/${encodeURIComponent(node.about.id)}`,
          title: 'Where its time went', 'aria-label': 'Where the time of this answer went' }, icon('explain')));
      }
    }
    this.buttons.replaceChildren(...made);
  }

  /** @param place  {index, count} among its siblings */
  showPlace({ index, count: n }) {
    if (n < 2) {
      this.pager.replaceChildren();
      return;
    }
    this.pager.replaceChildren(
      iconButton('back', 'The version before', () => this.acts.turn(this.node, -1), { disabled: index === 0 }),
      h('span', { class: 'pager-at' }, h('span', { class: 'unseen' }, 'Version '), `${index + 1} / ${n}`),
      iconButton('next', 'The next version', () => this.acts.turn(this.node, 1), { disabled: index === n - 1 }));
  }

  /* ---- while it comes ---- */

  begin() {
    this.element.setAttribute('aria-busy', 'true');
    this.buttons.hidden = true;
    this.view = new MarkdownView(this.body);
    this.figures.replaceChildren(h('span', { class: 'pulse' }, h('span', { class: 'unseen' }, 'Waits for the first token')));
  }

  /** @param drawn  called behind each frame that drew something */
  add(what, text, drawn) {
    if (what === 'thought') {
      this.node.thought = (this.node.thought ?? '') + text;
      this.waitingThought += text;
    } else {
      this.node.content += text;
      this.waiting += text;
    }
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.draw();
        drawn();
      });
    }
  }

  showSpeed(tokens, speed) {
    if (tokens > 0) {
      this.figures.replaceChildren(figure('Tokens', count(tokens)), speed === null ? '' : figure('Speed', `${rate(speed)} tokens/s`));
    }
  }

  draw() {
    if (this.waitingThought !== '') {
      this.thought.hidden = false;
      this.thought.lastChild.append(this.waitingThought);
      this.waitingThought = '';
    }
    if (this.waiting !== '') {
      this.view.append(this.waiting);
      this.waiting = '';
    }
  }

  end() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.draw();
    this.view.finish();
    this.element.removeAttribute('aria-busy');
    this.buttons.hidden = false;
    this.showAbout();
    this.showButtons();
  }

  /* ---- edited ---- */

  edit() {
    const area = h('textarea', { class: 'editor', value: this.node.content, 'aria-label': this.isUser ? 'Your message' : 'The answer', spellcheck: 'true' });
    const done = (text) => {
      form.replaceWith(this.body);
      this.buttons.hidden = false;
      if (text !== null && text !== this.node.content && text.trim() !== '') {
        this.acts.edit(this.node, text);
      } else {
        this.buttons.querySelector('button:nth-of-type(2)')?.focus();
      }
    };
    const form = h('form', { class: 'edit', onsubmit: (event) => {
      event.preventDefault();
      done(area.value);
    } },
    area, h('div', { class: 'row end' },
      h('span', { class: 'note grow' }, this.isUser ? 'A new version is made and sent; this one stays.' : 'The model will believe that it said this.'),
      h('button', { type: 'button', class: 'quiet', onclick: () => done(null) }, 'Cancel'),
      h('button', { type: 'submit', class: 'main' }, this.isUser ? 'Send' : 'Keep')));
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        done(null);
      } else if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
        done(area.value);
      }
    });
    this.body.replaceWith(form);
    this.buttons.hidden = true;
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}
