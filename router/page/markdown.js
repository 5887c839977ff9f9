/* SPDX-License-Identifier: Apache-2.0 */
/* Markdown as models write it, drawn while it comes. Every text becomes a text node; a
 * picture is only named, a link says where it leads; HTML is text.
 *
 *     text ─▶ lines ─▶ sections ─▶ elements
 *                        └ the last one is open: it alone is drawn again
 *
 * What a frame costs does not grow with the answer: a section is closed at MOST_OPEN
 * characters whatever it is, code is appended to, and of very long answers the
 * beginning is folded away. */

import { h, iconButton, copyText } from './dom.js';
import { count } from './format.js';

const MOST_OPEN = 6000;     /* characters of a section that is drawn again */
const CODE_PART = 8000;     /* characters of one element of code */
const MOST_SECTIONS = 300;  /* that are shown; then the first of them fold, */
const MOST_SHOWN = 200000;  /* and where they have so many characters */
const MOST_DEEP = 6;        /* of lists in lists, quotes in quotes, emphasis in emphasis */

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:\s+(.*))?$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-{1,}:?\s*(?:\|\s*:?-{1,}:?\s*)*\|?\s*$/;

/* ---- what stands in a line ---- */

/* Where the delimiter comes next, or -1; that it does not come any more is remembered,
 * so that a line of nothing but stars costs no more than another. One star is none of two. */
function closing(text, mark, from, missing) {
  if (missing.has(mark)) {
    return -1;
  }
  let at = text.indexOf(mark, from);
  while (mark.length === 1 && '*_'.includes(mark) && at >= 0 && text[at + 1] === mark) {
    while (text[at] === mark) {
      at += 1;
    }
    at = text.indexOf(mark, at);
  }
  if (at < 0) {
    missing.add(mark);
  }
  return at;
}

function isWord(letter) {
  return letter !== undefined && /[\p{L}\p{N}]/u.test(letter);
}

function webAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url : null;
  } catch {
    return null;
  }
}

/* Where it leads is said beside what it calls itself. */
function link(words, target) {
  const url = webAddress(target);
  if (url === null) {
    return h('span', {}, words, target === '' ? '' : ` (${target})`);
  }
  const named = words === target || words === '' ? target : words;
  return [
    h('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer nofollow' }, named),
    named === target ? '' : h('span', { class: 'leads' }, ` (${url.host})`),
  ];
}

const MARKS = [['**', 'strong'], ['__', 'strong'], ['~~', 's'], ['*', 'em'], ['_', 'em']];

function emphasis(text, at, missing, deep) {
  for (const [mark, tag] of MARKS) {
    if (!text.startsWith(mark, at)) {
      continue;
    }
    const from = at + mark.length;
    const inWord = mark[0] === '_' && isWord(text[at - 1]);
    if (inWord || text[from] === undefined || /\s/.test(text[from])) {
      return null;
    }
    const end = closing(text, mark, from + 1, missing);
    if (end < 0 || /\s/.test(text[end - 1]) || (mark[0] === '_' && isWord(text[end + mark.length]))) {
      continue;
    }
    return { end: end + mark.length, nodes: [h(tag, {}, inline(text.slice(from, end), deep + 1))] };
  }
  return null;
}

function bracket(text, at, missing) {
  const from = text[at] === '!' ? at + 2 : at + 1;
  const middle = closing(text, '](', from, missing);
  if (middle < 0 || middle - from > 1000) {
    return null;
  }
  const end = closing(text, ')', middle + 2, missing);
  if (end < 0 || end - middle > 2000) {
    return null;
  }
  const words = text.slice(from, middle);
  return { end: end + 1, nodes: [link(words, text.slice(middle + 2, end).trim().split(/\s/)[0])].flat() };
}

function code(text, at, missing) {
  const mark = /^`+/.exec(text.slice(at, at + 32))[0];
  const end = closing(text, mark, at + mark.length, missing);
  return end < 0 ? null : { end: end + mark.length, nodes: [h('code', {}, text.slice(at + mark.length, end).trim())] };
}

function piece(text, at, missing, deep) {
  const letter = text[at];
  if (letter === '\\' && /[\\`*_{}[\]()#+\-.!~>|]/.test(text[at + 1] ?? '')) {
    return { end: at + 2, nodes: [text[at + 1]] };
  }
  if (letter === '`') {
    return code(text, at, missing);
  }
  if (letter === '[' || (letter === '!' && text[at + 1] === '[')) {
    return bracket(text, at, missing);
  }
  if (letter === 'h' && !isWord(text[at - 1])) {
    const found = /^https?:\/\/[^\s<>"'`)\]]{1,2000}/.exec(text.slice(at, at + 2010));
    if (found !== null) {
      const target = found[0].replace(/[.,;:!?*_]+$/, '');
      return { end: at + target.length, nodes: [link(target, target)].flat() };
    }
    return null;
  }
  return deep < MOST_DEEP ? emphasis(text, at, missing, deep) : null;
}

/** @return nodes and strings */
function inline(text, deep = 0) {
  const nodes = [];
  const missing = new Set();
  let plain = 0;
  for (let at = 0; at < text.length;) {
    const found = /[\\`*_~![h]/.test(text[at]) ? piece(text, at, missing, deep) : null;
    if (found === null) {
      at += 1;
      continue;
    }
    nodes.push(text.slice(plain, at), ...found.nodes);
    at = found.end;
    plain = at;
  }
  nodes.push(text.slice(plain));
  return nodes.filter((node) => node !== '');
}

/* ---- blocks ---- */

function paragraph(lines) {
  const nodes = [];
  lines.forEach((line, i) => {
    nodes.push(...inline(line.trim()));
    if (i + 1 < lines.length) {
      nodes.push(/ {2}$|\\$/.test(line) ? h('br') : '\n');
    }
  });
  return h('p', {}, nodes);
}

function cells(line) {
  return line.trim().replace(/^\|/, '').replace(/\|$/, '').split('|').map((cell) => cell.trim());
}

function table(lines) {
  const head = cells(lines[0]);
  const rows = lines.slice(2).map((line) => h('tr', {}, head.map((_, i) => h('td', {}, inline(cells(line)[i] ?? '')))));
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': 'Table' },
    h('table', {}, h('thead', {}, h('tr', {}, head.map((cell) => h('th', { scope: 'col' }, inline(cell))))), h('tbody', {}, rows)));
}

/* An item has what is indented below it; one level of blank lines is its own. */
function takeList(lines, from, deep) {
  const first = ITEM.exec(lines[from]);
  const indent = first[1].length;
  const ordered = /\d/.test(first[2]);
  const items = [];
  let at = from;
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (item === null || item[1].length < indent || item[1].length > indent + 1 || /\d/.test(item[2]) !== ordered ||
        RULE.test(lines[at])) {
      break;
    }
    const inside = [item[3] ?? ''];
    at += 1;
    while (at < lines.length) {
      const next = ITEM.exec(lines[at]);
      const isBlank = lines[at].trim() === '';
      const isDeeper = /^\s{2,}/.test(lines[at]) && (next === null || next[1].length > indent + 1);
      if (!isDeeper && !(isBlank && at + 1 < lines.length && /^\s{2,}\S/.test(lines[at + 1]))) {
        break;
      }
      inside.push(lines[at].slice(Math.min(indent + 2, /^\s*/.exec(lines[at])[0].length)));
      at += 1;
    }
    items.push(h('li', {}, inside.length === 1 ? inline(inside[0]) : blocks(inside, deep + 1)));
    while (at + 1 < lines.length && lines[at].trim() === '' && ITEM.test(lines[at + 1])) {
      at += 1;
    }
  }
  const start = ordered ? parseInt(first[2], 10) : 1;
  return { at: Math.max(at, from + 1), node: h(ordered ? 'ol' : 'ul', start === 1 ? {} : { start }, items) };
}

function takeFence(lines, from) {
  const open = FENCE.exec(lines[from]);
  const view = new CodeView(open[2].trim());
  let at = from + 1;
  while (at < lines.length && !(lines[at].trim().startsWith(open[1]) && FENCE.test(lines[at]))) {
    view.append(`${lines[at]}\n`);
    at += 1;
  }
  return { at: at + 1, node: view.element };
}

function takeQuote(lines, from, deep) {
  const inside = [];
  let at = from;
  while (at < lines.length && QUOTE.test(lines[at])) {
    inside.push(QUOTE.exec(lines[at])[1]);
    at += 1;
  }
  return { at, node: h('blockquote', {}, blocks(inside, deep + 1)) };
}

function isSpecial(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line) ||
    (line.includes('|') && TABLE_RULE.test(lines[at + 1] ?? '') && lines[at + 1].includes('|'));
}

function takeSpecial(lines, at, deep) {
  const line = lines[at];
  if (FENCE.test(line)) {
    return takeFence(lines, at);
  }
  const heading = HEADING.exec(line);
  if (heading !== null) {
    /* Each message has a heading of its own: those of its text stand right below it, for
     * a text may begin with any level. */
    return { at: at + 1, node: h('h3', { class: `level-${heading[1].length}` }, inline(heading[2].replace(/\s+#+\s*$/, ''))) };
  }
  if (RULE.test(line)) {
    return { at: at + 1, node: h('hr') };
  }
  if (QUOTE.test(line)) {
    return takeQuote(lines, at, deep);
  }
  if (ITEM.test(line)) {
    return takeList(lines, at, deep);
  }
  let end = at + 2;
  while (end < lines.length && lines[end].includes('|')) {
    end += 1;
  }
  return { at: end, node: table(lines.slice(at, end)) };
}

/** @return elements */
function blocks(lines, deep = 0) {
  if (deep > MOST_DEEP) {
    return [paragraph(lines)];
  }
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === '') {
      at += 1;
    } else if (isSpecial(lines, at)) {
      const taken = takeSpecial(lines, at, deep);
      found.push(taken.node);
      at = taken.at;
    } else {
      const from = at;
      do {
        at += 1;
      } while (at < lines.length && lines[at].trim() !== '' && !isSpecial(lines, at));
      found.push(paragraph(lines.slice(from, at)));
    }
  }
  return found;
}

/* ---- code ---- */

/** Code that grows: what is there is never touched again. */
class CodeView {
  constructor(language) {
    this.parts = h('pre', { tabindex: '0', 'aria-label': language === '' ? 'Code' : `Code, ${language}`, role: 'group' });
    const copy = iconButton('copy', 'Copy this code', () => copyText(this.text(), copy));
    this.element = h('div', { class: 'code' },
      h('div', { class: 'code-head' }, h('span', {}, language.slice(0, 40)), copy), this.parts);
    this.size = CODE_PART;
  }

  text() {
    return [...this.parts.children].map((part) => part.textContent).join('');
  }

  append(text) {
    if (this.size >= CODE_PART) {
      this.last = document.createTextNode('');
      this.parts.append(h('code', {}, this.last));
      this.size = 0;
    }
    this.last.appendData(text);
    this.size += text.length;
  }
}

/* ---- the whole ---- */

/** A text that grows, drawn into an element. */
export class MarkdownView {
  /** @param most  sections that are shown at a time */
  constructor(element, most = MOST_SECTIONS) {
    this.element = element;
    this.most = most;
    this.begin();
  }

  begin() {
    this.element.replaceChildren();
    this.all = '';      /* of the whole text */
    this.tail = '';     /* of it, the line that has no end yet */
    this.lines = [];    /* of the open section */
    this.size = 0;      /* characters of them */
    this.section = null;
    this.code = null;   /* {view, fence, isWithin}: the open section is code; a part of the line is drawn */
    this.sections = []; /* that are shown: {element, size} */
    this.shown = 0;     /* characters of them */
    this.folded = 0;    /* sections */
    this.note = null;
  }

  /** Draw more of the text. Once in a frame is enough. */
  append(text) {
    this.all += text;
    const lines = (this.tail + text).split('\n');
    this.tail = lines.pop();
    for (const line of lines) {
      this.line(line);
    }
    if (this.tail.length > MOST_OPEN) {
      const at = this.tail.lastIndexOf(' ');
      const cut = at > MOST_OPEN / 2 ? at : MOST_OPEN;
      this.line(this.tail.slice(0, cut), true);
      this.tail = this.tail.slice(cut);
    }
    this.draw();
  }

  finish() {
    if (this.tail !== '') {
      this.line(this.tail);
      this.tail = '';
    }
    this.draw();
    this.close();
  }

  /* @param isCut  it goes on: there is no end of a line here */
  line(line, isCut = false) {
    if (this.code !== null) {
      const fence = this.code.isWithin ? null : FENCE.exec(line);
      this.code.isWithin = isCut;
      if (fence !== null && fence[1].startsWith(this.code.fence) && fence[2].trim() === '') {
        this.code = null;
        this.close();
      } else {
        this.code.view.append(isCut ? line : `${line}\n`);
        this.grow(line.length + 1);
      }
      return;
    }
    const fence = FENCE.exec(line);
    if (fence !== null && !/^ {1,3}/.test(line)) {
      this.close();
      this.code = { view: new CodeView(fence[2].trim()), fence: fence[1], isWithin: false };
      this.open().replaceChildren(this.code.view.element);
      return;
    }
    if (this.ends(line)) {
      this.close();
    }
    if (line.trim() !== '' || this.lines.length > 0) {
      this.lines.push(line);
      this.size += line.length + 1;
      this.open();
      this.grow(line.length + 1);
    }
    if (this.size > MOST_OPEN) {
      this.close();
    }
  }

  /* Does the open section end before this line? A list goes on behind a blank line
   * where the next is one of its items, or indented. */
  ends(line) {
    if (this.lines.length === 0 || line.trim() === '') {
      return false;
    }
    if (HEADING.test(line)) {
      return true;
    }
    if (this.lines[this.lines.length - 1].trim() !== '') {
      return false;
    }
    return !(ITEM.test(this.lines[0]) && (ITEM.test(line) || /^\s{2,}/.test(line)));
  }

  open() {
    if (this.section === null) {
      this.section = { element: h('div', { class: 'section' }), size: 0 };
      this.sections.push(this.section);
      this.element.append(this.section.element);
      this.fold();
    }
    return this.section.element;
  }

  grow(n) {
    this.section.size += n;
    this.shown += n;
  }

  draw() {
    if (this.code !== null) {
      /* What may become the end of the code waits for the rest of its line. */
      if (this.tail !== '' && (this.code.isWithin || !/^ {0,3}(?:[`~]|$)/.test(this.tail))) {
        this.code.view.append(this.tail);
        this.code.isWithin = true;
        this.tail = '';
      }
      return;
    }
    const lines = this.tail === '' ? this.lines : [...this.lines, this.tail];
    if (lines.some((line) => line.trim() !== '')) {
      this.open().replaceChildren(...blocks(lines));
    }
  }

  close() {
    if (this.lines.some((line) => line.trim() !== '')) {
      this.open().replaceChildren(...blocks(this.lines));
    }
    this.lines = [];
    this.size = 0;
    this.section = null;
  }

  fold() {
    const n = this.sections.length;
    if (n <= this.most && (this.shown <= MOST_SHOWN || this.most === Infinity || n < 3)) {
      return;
    }
    for (const { element, size } of this.sections.splice(0, Math.max(1, Math.floor(n / 3)))) {
      element.remove();
      this.shown -= size;
      this.folded += 1;
    }
    if (this.note === null) {
      this.note = h('p', { class: 'folded' }, h('span'), ' ',
        h('button', { type: 'button', class: 'link', onclick: () => this.unfold() }, 'Show all of it'));
      this.element.prepend(this.note);
    }
    this.note.firstChild.textContent = `The first ${count(this.folded)} sections are folded away.`;
  }

  unfold() {
    const all = this.all;
    this.most = Infinity;
    this.begin();
    this.append(all);
  }
}

/** A text that is whole. */
export function drawMarkdown(element, text) {
  const view = new MarkdownView(element);
  view.append(text);
  view.finish();
  return view;
}
