/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation as a tree: to edit or to ask again makes a sibling, and what was said
 * before is still there. The path through it is what the model is sent.
 *
 *     root ─ user "a" ─┬─ assistant #1
 *                      └─ assistant #2 (chosen) ─ user "b" ─ …
 *
 * Pure: no page, no network. */

export class Conversation {
  constructor() {
    this.nodes = new Map();
    this.nextId = 1;
    this.root = { id: 0, role: 'root', children: [], chosen: -1 };
    this.nodes.set(0, this.root);
  }

  get(id) {
    return this.nodes.get(id);
  }

  /** A new last child of a node, which becomes the chosen one. */
  add(parentId, role, content) {
    const parent = this.nodes.get(parentId);
    const node = { id: this.nextId++, role, content, parent: parentId, children: [], chosen: -1, about: null };
    this.nodes.set(node.id, node);
    parent.children.push(node.id);
    parent.chosen = parent.children.length - 1;
    return node;
  }

  /** @return the nodes from the first message to the last that is chosen */
  path() {
    const found = [];
    let at = this.root;
    while (at.chosen >= 0) {
      at = this.nodes.get(at.children[at.chosen]);
      found.push(at);
    }
    return found;
  }

  /** @return {index, count}: which of its siblings it is */
  place(id) {
    const parent = this.nodes.get(this.nodes.get(id).parent);
    return { index: parent.children.indexOf(id), count: parent.children.length };
  }

  /** Go over to the sibling that many places further. */
  turn(id, by) {
    const parent = this.nodes.get(this.nodes.get(id).parent);
    const to = parent.children.indexOf(id) + by;
    if (to >= 0 && to < parent.children.length) {
      parent.chosen = to;
    }
  }

  /** Take a leaf away, as if it had never been. */
  remove(id) {
    const parent = this.nodes.get(this.nodes.get(id).parent);
    parent.children = parent.children.filter((child) => child !== id);
    parent.chosen = Math.min(parent.chosen, parent.children.length - 1);
    this.nodes.delete(id);
  }

  /** What the model is sent to answer this node: the messages from the first to it,
   *  but for answers of which nothing came.
   *  @param system  the system prompt; '': none */
  messagesTo(id, system) {
    const found = [];
    for (let at = this.nodes.get(id); at.role !== 'root'; at = this.nodes.get(at.parent)) {
      if (at.content !== '') {
        found.unshift({ role: at.role, content: at.content });
      }
    }
    return system === '' ? found : [{ role: 'system', content: system }, ...found];
  }

  toJson() {
    return { nextId: this.nextId, nodes: [...this.nodes.values()] };
  }

  /** @return a conversation; an empty one where this is none */
  static fromJson(kept) {
    const made = new Conversation();
    const isNode = (node) => Number.isInteger(node?.id) && (node.role === 'root' || typeof node.content === 'string');
    if (!Array.isArray(kept?.nodes) || !Number.isInteger(kept.nextId) || !kept.nodes.every(isNode)) {
      return made;
    }
    made.nodes = new Map(kept.nodes.map((node) => [node.id, node]));
    made.nextId = Math.max(kept.nextId, ...made.nodes.keys()) + 1;
    made.root = made.nodes.get(0);
    for (const node of made.nodes.values()) {
      const isSound = Array.isArray(node.children) && node.chosen < node.children.length &&
        node.children.every((id) => made.nodes.get(id)?.parent === node.id);
      if (!isSound) {
        return new Conversation();
      }
    }
    return made.root === undefined ? new Conversation() : made;
  }
}
