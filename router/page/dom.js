/* SPDX-License-Identifier: Apache-2.0 */
/* Elements, made one by one. Text becomes text nodes, never markup: what a model, a
 * worker or a tenant is called stays text whatever stands in it. */

const SVG = 'http://www.w3.org/2000/svg';

function apply(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (name === 'class') {
      element.setAttribute('class', value);
    } else if (name === 'value') {
      element.value = value;
    } else if (name === 'data') {
      Object.assign(element.dataset, value);
    } else {
      element.setAttribute(name, value === true ? '' : value);
    }
  }
}

function fill(element, children) {
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
  return element;
}

/** h('p', {class: 'note'}, 'text', child, …) */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  apply(element, properties);
  return fill(element, children);
}

/** The same, of SVG. */
export function s(tag, properties = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  apply(element, properties);
  return fill(element, children);
}

const ICONS = {
  send: 'M12 19V5M5.5 11.5 12 5l6.5 6.5',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h10v11H9zM15 9V4H5v11h4',
  edit: 'M4 20l1-4L16 5l3 3L8 19zM14 7l3 3',
  retry: 'M19.5 12a7.5 7.5 0 1 1-2.3-5.4M19.5 3.5V8H15',
  terminal: 'M5 7l4 4-4 4M12 16h7',
  explain: 'M5 6h8M9 12h10M5 18h5',
  back: 'M14 6l-6 6 6 6',
  next: 'M10 6l6 6-6 6',
  down: 'M12 5v13M6 12.5 12 19l6-6.5',
  sliders: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  plus: 'M12 5v14M5 12h14',
  close: 'M6 6l12 12M18 6 6 18',
  sun: 'M12 8a4 4 0 1 1 0 8 4 4 0 0 1 0-8M12 2.5V4M12 20v1.5M2.5 12H4M20 12h1.5M5.3 5.3l1 1M17.7 17.7l1 1M5.3 18.7l1-1M17.7 6.3l1-1',
  moon: 'M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z',
  check: 'M5 12.5l4.5 4.5L19 7.5',
};

export function icon(name) {
  return s('svg', { class: 'glyph', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, s('path', { d: ICONS[name] }));
}

/** A button that is only a picture has its words for those who do not see it. */
export function iconButton(name, label, onclick, more = {}) {
  return h('button', { type: 'button', class: 'quiet icon', title: label, 'aria-label': label, onclick, ...more }, icon(name));
}

/** Sets text only where it differs: a selection in it, or a reader at it, is left alone. */
export function setText(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

export function setAttribute(element, name, value) {
  if (value === null) {
    element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

const announcer = h('div', { class: 'unseen', role: 'status', 'aria-live': 'polite' });

/** One sentence for screen readers. */
export function announce(text) {
  if (!announcer.isConnected) {
    document.body.append(announcer);
  }
  announcer.textContent = text;
}

/** Copy, and say on the button that it was done. */
export async function copyText(text, button) {
  const label = button.getAttribute('aria-label');
  let said = 'Copied';
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    /* Over plain HTTP from another host there is no clipboard: a selection can be copied. */
    said = copyBySelection(text) ? 'Copied' : 'The browser did not let us copy';
  }
  announce(said);
  if (label !== null && button.dataset.said === undefined) {
    button.dataset.said = label;
    button.setAttribute('aria-label', said);
    button.replaceChildren(icon(said === 'Copied' ? 'check' : 'close'));
    setTimeout(() => {
      button.setAttribute('aria-label', button.dataset.said);
      button.replaceChildren(icon(button.dataset.icon ?? 'copy'));
      delete button.dataset.said;
    }, 1200);
  }
}

function copyBySelection(text) {
  const area = h('textarea', { class: 'unseen', value: text, 'aria-hidden': 'true', tabindex: '-1' });
  const before = document.activeElement;
  document.body.append(area);
  area.select();
  let done = false;
  try {
    done = document.execCommand('copy');
  } catch {
    done = false;
  }
  area.remove();
  before?.focus?.();
  return done;
}
