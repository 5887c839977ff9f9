# SPDX-License-Identifier: Apache-2.0
"""What may follow a text, from the definition of the texts: choices, regular expressions, EBNF and JSON Schema.

A description becomes an expression over bytes, and a state is a set of continuations (an expression, and what follows it) that
are derived byte by byte (Brzozowski's derivatives, with continuations for rules). There are no automata, tables or counters, and
nothing is shared with Baton's compiler: regular expressions are parsed by Python's own parser.
"""
import re
import re._constants as sre
import re._parser as sre_parser
import sys

# Expressions: (EMPTY,) | (NONE,) | (BYTES, lo, hi) | (SEQ, a, b) | (ALT, (a, …)) | (REPEAT, a, min, max or None) | (RULE, name)
#            | (TOKEN, id) | (KEY, names, read, state): a text in its one spelling but some, what was read, and the state in any text
# (None: its start)
EMPTY, NONE = ("empty",), ("none",)


def seq(*parts):
    x = EMPTY
    for part in reversed(parts):
        if part == NONE or x == NONE:
            return NONE
        x = part if x == EMPTY else x if part == EMPTY else ("seq", part, x)
    return x


def alt(*parts):
    parts = tuple(p for p in dict.fromkeys(parts) if p != NONE)
    return NONE if not parts else parts[0] if len(parts) == 1 else ("alt", parts)


def literal(data):
    return seq(*[("bytes", b, b) for b in data])


def repeat(x, least, most):
    return EMPTY if most == 0 or x == EMPTY else ("repeat", x, least, most)


def code_points(ranges):
    """One code point of some ranges, in UTF-8: split where the number of bytes changes, and then by common first bytes."""
    ways = []
    for lo, hi in ranges:
        for a, b in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)):
            if max(lo, a) <= min(hi, b):
                ways += byte_ranges(chr(max(lo, a)).encode(), chr(min(hi, b)).encode())
    return alt(*[seq(*[("bytes", a, b) for a, b in way]) for way in ways])


def byte_ranges(lo, hi):
    if len(lo) == 1:
        return [[(lo[0], hi[0])]]
    if lo[0] == hi[0]:
        return [[(lo[0], lo[0])] + rest for rest in byte_ranges(lo[1:], hi[1:])]
    first, last = b"\x80" * (len(lo) - 1), b"\xbf" * (len(lo) - 1)
    ways = [[(lo[0], lo[0])] + rest for rest in byte_ranges(lo[1:], last)]
    if lo[0] + 1 <= hi[0] - 1:
        ways += [[(lo[0] + 1, hi[0] - 1)] + rest for rest in byte_ranges(first, last)]
    return ways + [[(hi[0], hi[0])] + rest for rest in byte_ranges(first, hi[1:])]


# Regular expressions

SPACE = [(9, 13), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F),
         (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)]  # ECMA-262: WhiteSpace and LineTerminator
CLASSES = {"CATEGORY_DIGIT": [(48, 57)], "CATEGORY_WORD": [(48, 57), (65, 90), (95, 95), (97, 122)], "CATEGORY_SPACE": SPACE}


def without(ranges):
    out, at = [], 0
    for lo, hi in sorted(ranges):
        if lo > at:
            out.append((at, lo - 1))
        at = max(at, hi + 1)
    return out + ([(at, 0x10FFFF)] if at <= 0x10FFFF else [])


def category(name):
    name = str(name)
    return without(CLASSES[name.replace("NOT_", "")]) if "NOT_" in name else CLASSES[name]


def of_class(items):
    ranges, negated = [], False
    for op, arg in items:
        if op is sre.NEGATE:
            negated = True
        elif op is sre.LITERAL:
            ranges.append((arg, arg))
        elif op is sre.RANGE:
            ranges.append(arg)
        else:
            ranges += category(arg)
    return without(ranges) if negated else ranges


def of_regex(parsed, spell):
    """`spell` makes an expression of ranges of code points."""
    parts = []
    for op, arg in parsed:
        if op is sre.LITERAL:
            parts.append(spell([(arg, arg)]))
        elif op is sre.NOT_LITERAL:
            parts.append(spell(without([(arg, arg)])))
        elif op is sre.ANY:
            parts.append(spell(without([(10, 10), (13, 13), (0x2028, 0x2029)])))
        elif op is sre.IN:
            parts.append(spell(of_class(arg)))
        elif op is sre.CATEGORY:
            parts.append(spell(category(arg)))
        elif op is sre.BRANCH:
            parts.append(alt(*[of_regex(p, spell) for p in arg[1]]))
        elif op is sre.SUBPATTERN:
            parts.append(of_regex(arg[3], spell))
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, x = arg
            parts.append(repeat(of_regex(x, spell), least, None if most is sre.MAXREPEAT else most))
        elif op is sre.AT:
            raise ValueError("anchors only around the whole pattern")
        else:
            raise ValueError(str(op))
    return seq(*parts)


def regex(pattern, spell=code_points):
    return of_regex(sre_parser.parse(pattern, re.DOTALL & 0), spell)


# EBNF

EBNF = re.compile(r'\s+|#[^\n]*|(?P<define>[\w-]+\s*::=)|(?P<name>[\w-]+)|"(?P<text>(?:[^"\\]|\\.)*)"|\[(?P<set>(?:[^\]\\]|\\.)*)\]'
                  r"|\{(?P<count>\d*,?\d*)\}|<\[(?P<token>\d+)\]>|(?P<sign>[()|*+?.])")


def unescaped(text):
    return re.sub(r"\\(?:x(..)|u(....)|U(........)|(.))",
                  lambda m: chr(int(m[1] or m[2] or m[3], 16)) if not m[4] else {"n": "\n", "r": "\r", "t": "\t"}.get(m[4], m[4]), text)


class Ebnf:
    def __init__(self, source):
        self.items = [(k, m[k]) for m in EBNF.finditer(source) for k in [m.lastgroup] if k]
        self.at, self.rules = 0, {}
        while self.at < len(self.items):
            name = self.take()[1].split()[0].replace("::=", "")
            self.rules[name] = self.alternatives()

    def peek(self):
        return self.items[self.at] if self.at < len(self.items) else ("end", "")

    def take(self):
        self.at += 1
        return self.items[self.at - 1]

    def alternatives(self):
        ways = [self.sequence()]
        while self.peek() == ("sign", "|"):
            self.take()
            ways.append(self.sequence())
        return alt(*ways)

    def sequence(self):
        parts = []
        while self.peek()[0] not in ("end", "define") and self.peek() not in (("sign", "|"), ("sign", ")")):
            parts.append(self.repeated())
        return seq(*parts)

    def repeated(self):
        kind, arg = self.take()
        if kind == "text":
            x = literal(unescaped(arg).encode())
        elif kind == "name":
            x = ("rule", arg)
        elif kind == "set":
            op, items = list(sre_parser.parse("[" + arg + "]"))[0]
            x = code_points(of_class(items if op is sre.IN else [(op, items)]) if op is not sre.NOT_LITERAL
                            else without([(items, items)]))
        elif kind == "token":
            x = ("token", int(arg))
        elif arg == ".":
            x = code_points([(0, 0x10FFFF)])
        else:
            x = self.alternatives()
            self.take()
        while self.peek()[0] == "count" or self.peek() in (("sign", "*"), ("sign", "+"), ("sign", "?")):
            kind, arg = self.take()
            least, comma, most = ({"*": ("0", ",", ""), "+": ("1", ",", ""), "?": ("0", ",", "1")}[arg] if kind == "sign"
                                  else arg.partition(","))
            x = repeat(x, int(least or 0), int(most) if most else None if comma else int(least))
        return x


# JSON Schema, as common/grammar/json_schema.h says what is written

HEX = alt(("bytes", 48, 57), ("bytes", 65, 70), ("bytes", 97, 102))
PLAIN = code_points([(0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF)])


def hex_digit(digits):
    return alt(*[("bytes", ord(c), ord(c)) for d in digits for c in dict.fromkeys((d, d.upper()))])


CHAR = alt(PLAIN, seq(literal(b"\\"), alt(
    *[literal(c.encode()) for c in '"\\/bfnrt'],
    seq(literal(b"u"), alt(
        seq(alt(hex_digit("0123456789abcef"), NONE), HEX, HEX, HEX), seq(hex_digit("d"), hex_digit("01234567"), HEX, HEX),
        seq(hex_digit("d"), hex_digit("89ab"), HEX, HEX, literal(b"\\u"), hex_digit("d"), hex_digit("cdef"), HEX, HEX))))))
ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def spelling(c):
    return (ESCAPES.get(c) or (f"\\u{c:04x}" if c < 0x20 else chr(c))).encode()


def spelled(ranges):
    """One code point of a JSON string, in its one spelling."""
    special = [c for c in list(range(0x20)) + [0x22, 0x5C] if any(lo <= c <= hi for lo, hi in ranges)]
    plain = []
    for lo, hi in ranges:
        for a, b in ((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF)):
            if max(lo, a) <= min(hi, b):
                plain.append((max(lo, a), min(hi, b)))
    return alt(code_points(plain), *[literal(spelling(c)) for c in special])


def quoted(text):
    return literal(b'"' + spelled_text(text) + b'"')


def spelled_text(text):
    return b"".join(spelling(ord(c)) for c in text)


def key_but(names):
    return ("key", tuple(spelled_text(n) for n in names), b"", None)


# Numbers that every reader has exactly, or as a double: 20 digits before the point and 20 behind it, exponents of two.
DIGIT = ("bytes", 48, 57)
ABOVE_0 = seq(("bytes", 49, 57), repeat(DIGIT, 0, 19))
MINUS = repeat(literal(b"-"), 0, 1)
INTEGER = alt(literal(b"0"), seq(MINUS, ABOVE_0))
NUMBER = seq(MINUS, alt(literal(b"0"), ABOVE_0), repeat(seq(literal(b"."), repeat(DIGIT, 1, 20)), 0, 1),
             repeat(seq(alt(literal(b"e"), literal(b"E")), repeat(alt(literal(b"+"), literal(b"-")), 0, 1), repeat(DIGIT, 1, 2)), 0, 1))


class Schema:
    """Types, enum, const, anyOf, lengths, patterns between ^ and $, items with bounds, and objects with properties, required and
    additionalProperties."""

    def __init__(self, schema, compact):
        self.root, self.rules = schema, {}
        self.space = EMPTY if compact else alt(EMPTY, literal(b" "), seq(repeat(literal(b"\n"), 1, 2), repeat(literal(b" "), 0, 20)))
        self.rules["root"] = self.value(schema)

    def ref(self, path):
        name = path
        if name not in self.rules:
            self.rules[name] = None
            at = self.root
            for part in path.lstrip("#/").split("/") if path != "#" else []:
                at = at[part]
            self.rules[name] = self.value(at)
        return ("rule", name)

    def value(self, s):
        if s is True or s == {}:
            return self.any()
        if "$ref" in s:
            return self.ref(s["$ref"])
        if "anyOf" in s:
            return alt(*[self.value(x) for x in s["anyOf"]])
        if "enum" in s or "const" in s:
            return alt(*[self.given(v) for v in s.get("enum", [s.get("const")])])
        types = s["type"] if isinstance(s["type"], list) else [s["type"]]
        return alt(*[getattr(self, "of_" + t)(s) for t in types])

    def given(self, value):
        return quoted(value) if isinstance(value, str) else literal({True: b"true", False: b"false", None: b"null"}.get(
            value, str(value).encode()) if not isinstance(value, int) or isinstance(value, bool) else str(value).encode())

    def any(self):
        name = "any value"
        if name not in self.rules:
            self.rules[name] = None
            self.rules[name] = self.value({"type": ["null", "boolean", "number", "string", "array", "object"]})
        return ("rule", name)

    def of_null(self, _):
        return literal(b"null")

    def of_boolean(self, _):
        return alt(literal(b"true"), literal(b"false"))

    def of_integer(self, _):
        return INTEGER

    def of_number(self, _):
        return NUMBER

    def of_string(self, s):
        if "pattern" in s:
            inside = regex(s["pattern"][1:-1], spelled)
        else:
            inside = repeat(CHAR, s.get("minLength", 0), s.get("maxLength"))
        return seq(literal(b'"'), inside, literal(b'"'))

    def of_array(self, s):
        least, most = s.get("minItems", 0), s.get("maxItems")
        item = self.value(s.get("items", True))
        more = repeat(seq(literal(b","), self.space, item), max(least - 1, 0), None if most is None else max(most - 1, 0))
        return seq(literal(b"["), self.space, alt(
            seq(item, more, self.space, literal(b"]")) if most != 0 else NONE, literal(b"]") if least == 0 else NONE))

    def of_object(self, s):
        names = list(s.get("properties", {}))
        extra = s.get("additionalProperties", True)
        members = [(n in s.get("required", []), self.member(quoted(n), s["properties"][n])) for n in names]
        tail = NONE if extra is False else self.member(seq(literal(b'"'), key_but(names), literal(b'"')), extra)
        comma = seq(literal(b","), self.space)

        def rest(i, first):
            """Members from the i-th on; EMPTY in the right form where there are none."""
            if i == len(members):
                more = repeat(seq(comma, tail), 0, None) if tail != NONE else EMPTY
                ends = [EMPTY if first else more]
                if first and tail != NONE:
                    ends.append(seq(tail, more))
                return alt(*ends)
            must, member = members[i]
            taken = seq(EMPTY if first else comma, member, rest(i + 1, False))
            return taken if must else alt(taken, rest(i + 1, first))
        body = rest(0, True)
        nothing = not any(must for must, _ in members)
        return seq(literal(b"{"), self.space, alt(seq(not_empty(body), self.space, literal(b"}")),
                                                  literal(b"}") if nothing else NONE))

    def member(self, key, schema):
        return seq(key, literal(b":"), self.space, self.value(schema))


def not_empty(x):
    """An expression of alternatives and sequences, without its empty text."""
    if x == EMPTY:
        return NONE
    if x[0] == "alt":
        return alt(*[not_empty(p) for p in x[1]])
    return x


FAR = float("inf")
MAX_CONTINUATIONS = 3000


class TooAmbiguous(Exception):
    """A text may go on in more than MAX_CONTINUATIONS ways."""


ANY_TEXT = repeat(spelled([(0, 0x10FFFF)]), 0, None)
sys.setrecursionlimit(100000)


class Oracle:
    """An automaton of sets of continuations, a row at a time: state 0 is dead.

    Expressions and continuations are interned: a continuation is a number, of (expression, continuation behind it), and END is the
    end of the text; None has no text."""
    END = 0

    def __init__(self, rules, root):
        self.xs, self.x_ids, self.least_of = [], {}, {}
        self.conts, self.cont_ids, self.bytes_of_cont = [None], {}, [0]
        self.states, self.state_ids, self.rows = [], {}, {}
        self.state([])
        self.empty, self.any_text = self.intern(EMPTY), None
        self.rules = {name: self.intern(x) for name, x in rules.items()}
        root = self.intern(root)
        self.bytes_of_rule = {name: FAR for name in rules}
        changed = True
        while changed:
            self.least_of.clear()
            found = {name: self.least(x) for name, x in self.rules.items()}
            changed = found != self.bytes_of_rule
            self.bytes_of_rule = found
        self.start = self.state([self.cont(root, self.END)])

    def intern(self, x):
        """@return the number of an expression, whose parts are numbers too"""
        kind = x[0]
        if kind == "seq":
            x = (kind, self.intern(x[1]), self.intern(x[2]))
        elif kind == "alt":
            x = (kind, tuple(self.intern(p) for p in x[1]))
        elif kind == "repeat":
            x = (kind, self.intern(x[1]), x[2], x[3])
        elif kind == "key":
            if self.any_text is None:
                self.any_text = self.state([self.cont(self.intern(ANY_TEXT), self.END)])
            x = (kind, x[1], x[2], self.any_text)
        return self.number(x)

    def number(self, x):
        if x not in self.x_ids:
            self.x_ids[x] = len(self.xs)
            self.xs.append(x)
        return self.x_ids[x]

    def least(self, number):
        """Fewest bytes of an expression's texts; a token by its id is one."""
        if number not in self.least_of:
            self.least_of[number] = self.find_least(self.xs[number])
        return self.least_of[number]

    def find_least(self, x):
        kind = x[0]
        if kind == "empty":
            return 0
        if kind in ("bytes", "token"):
            return 1
        if kind == "seq":
            return self.least(x[1]) + self.least(x[2])
        if kind == "alt":
            return min(self.least(p) for p in x[1])
        if kind == "repeat":
            return x[2] * self.least(x[1]) if x[2] else 0
        if kind == "rule":
            return self.bytes_of_rule[x[1]]
        return self.least_of_key(x) if kind == "key" else FAR

    def least_of_key(self, x):
        seen, todo = {x}, [(x, 0)]
        for y, n in todo:
            if y[2] not in y[1] and self.accepts(y[3]):
                return n
            for _, _, z in self.key_edges(y):
                if z not in seen:
                    seen.add(z)
                    todo.append((z, n + 1))
        return FAR

    def cont(self, number, rest):
        """@return the continuation, or None where it has no text"""
        x = self.xs[number]
        if number == self.empty or rest is None:
            return rest
        if x[0] == "seq":
            return self.cont(x[1], self.cont(x[2], rest))
        key = (number, rest)
        if key not in self.cont_ids:
            least = self.least(number)
            self.cont_ids[key] = None
            if least != FAR:
                self.cont_ids[key] = len(self.conts)
                self.bytes_of_cont.append(least + self.bytes_of_cont[rest])
                self.conts.append((x, rest))
        return self.cont_ids[key]

    def state(self, conts):
        key = frozenset(conts) - {None}
        if key not in self.state_ids:
            self.state_ids[key] = len(self.states)
            self.states.append(key)
        return self.state_ids[key]

    def heads(self, state):
        """What a state begins with: [(lo, hi, continuation)], [(token, continuation)], and whether it may end."""
        edges, takes, ends = [], [], False
        seen, todo = {None}, list(self.states[state])
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if len(seen) > MAX_CONTINUATIONS:
                raise TooAmbiguous
            if at == self.END:
                ends = True
                continue
            x, rest = self.conts[at]
            kind = x[0]
            if kind == "alt":
                todo += [self.cont(p, rest) for p in x[1]]
            elif kind == "repeat":
                _, item, least, most = x
                if least == 0:
                    todo.append(rest)
                if most != 0:
                    more = self.empty if most == 1 else self.number((kind, item, max(least - 1, 0), most and most - 1))
                    todo.append(self.cont(item, self.cont(more, rest)))
            elif kind == "rule":
                todo.append(self.cont(self.rules[x[1]], rest))
            elif kind == "bytes":
                edges.append((x[1], x[2], rest))
            elif kind == "token":
                takes.append((x[1], rest))
            else:
                edges += [(lo, hi, self.cont(self.number(y), rest)) for lo, hi, y in self.key_edges(x)]
                if x[2] not in x[1] and self.accepts(x[3]):
                    todo.append(rest)
        return edges, takes, ends

    def key_edges(self, x):
        _, names, read, state = x
        for lo, hi, to in self.row(state)[2]:
            if read is None:
                yield lo, hi, ("key", names, None, to)
                continue
            for byte in range(lo, hi + 1):
                data = read + bytes([byte])
                yield byte, byte, ("key", names, data if any(n.startswith(data) for n in names) else None, to)

    def row(self, state):
        """@return (may end, fewest bytes to the end, [(lo, hi, state)], [(token, state)])"""
        if state not in self.rows:
            edges, takes, ends = self.heads(state)
            begins = sorted({lo for lo, _, _ in edges} | {hi + 1 for _, hi, _ in edges})
            behind = {b: [] for b in begins}
            for lo, hi, to in edges:
                for b in begins:
                    if lo <= b <= hi:
                        behind[b].append(to)
            ranges = [(b, e - 1, self.state(behind[b])) for b, e in zip(begins, begins[1:])]
            self.rows[state] = (
                ends, min((self.bytes_of_cont[c] for c in self.states[state]), default=FAR), [r for r in ranges if r[2]],
                [(t, self.state([c for u, c in takes if u == t])) for t in sorted({t for t, _ in takes})])
        return self.rows[state]

    def accepts(self, state):
        return self.row(state)[0]

    def union(self, a, b):
        return self.state(self.states[a] | self.states[b])

    def reads(self, data):
        """@return the state behind some bytes"""
        state = self.start
        for byte in data:
            state = next((to for lo, hi, to in self.row(state)[2] if lo <= byte <= hi), 0)
        return state
