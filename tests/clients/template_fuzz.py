# SPDX-License-Identifier: Apache-2.0
"""Small expressions and statements at random, for comparing two renderers."""

VARIABLES = {
    "s": "Hello wOrld  foo-bar", "u": "été ß Σας ΟΔΟΣ ﬁn 中文", "l": [3, 1, 2], "e": "", "n": 7, "f": 2.5, "z": 0,
    "t": True, "d": {"b": 1, "a": [1, 2, {"x": None}], "c": "C"}, "w": " \n a\tb \u3000",
    "m": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "k": [1]},
          {"role": "tool", "content": "<|x|>"}],
}
ATOMS = ["s", "u", "l", "e", "n", "f", "z", "t", "d", "m", "w", "nothing", "none", "true", "false", "0", "1", "2", "-1",
         "3", "10", "0.5", "1e3", "'a'", "'o'", "' '", "''", "'Ab c'", "'role'", "'b'", "[]", "[1, 'a']", "(1, 2)",
         "{}", "{'b': 2, 'a': 1}", "range(4)", "m[0]", "m[1].content", "d.a", "l[0]", "s[1:3]", "loop"]
FILTERS = ["trim", "upper", "lower", "title", "capitalize", "length", "first", "last", "list", "string", "int", "float",
           "abs", "round", "reverse", "reverse|list", "sort", "unique|list", "sum", "min", "max", "tojson",
           "tojson(indent=2)", "items|list", "dictsort", "join", "join(', ')", "default('D')", "default('D', true)",
           "replace('o', '0')", "replace('a', '')", "indent", "indent(2, true)", "map('string')|list",
           "map('upper')|join('-')", "map(attribute='role')|list", "select|list", "reject|list",
           "selectattr('role')|list|length", "selectattr('role', 'equalto', 'user')|list",
           "rejectattr('content')|map(attribute='role')|list", "batch(2)|list", "slice(2)|list", "center(9)", "count",
           "trim('H')", "sort(reverse=true)", "map('length')|list", "select('string')|list", "truncate(5)", "d",
           "sort(attribute='role')|map(attribute='content')|list", "join('/', attribute='role')", "round(1)",
           "int(5)", "attr('role')", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "iterable",
         "sequence", "true", "false", "odd", "even", "eq 1", "equalto('a')", "ne 2", "lt 3", "gt 'a'", "ge 2", "le 2",
         "in [1, 2]", "divisibleby 2", "lower", "upper", "callable", "sameas none"]
METHODS = ["strip()", "lstrip()", "rstrip('r')", "split()", "split('o')", "split('o', 1)", "rsplit(' ', 1)", "upper()",
           "lower()", "title()", "capitalize()", "replace('o', '')", "startswith('H')", "endswith(('r', 'a'))",
           "find('o')", "rfind('o')", "count('o')", "splitlines()", "isdigit()", "isalpha()", "isspace()", "isupper()",
           "items()", "keys()|list", "values()|list", "get('b')", "get('q', 1)", "index(1)", "count(1)", "zfill(4)",
           "ljust(9, '.')", "partition('o')", "removeprefix('He')", "swapcase()", "copy()", "append(1)", "pop()",
           "join(['x', 'y'])", "islower()", "index('l')"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def expression(random, depth):
    if depth == 0 or random.random() < 0.15:
        return random.choice(ATOMS)

    def inner():
        return expression(random, depth - 1)
    kind = random.randrange(13)
    if kind < 3:
        return f"{inner()} {random.choice(BINARY)} {inner()}"
    if kind < 6:
        return f"{group(inner())}|{random.choice(FILTERS)}"
    if kind == 6:
        return f"{group(inner())} is {random.choice(['', 'not '])}{random.choice(TESTS)}"
    if kind == 7:
        return f"{group(inner())}.{random.choice(METHODS)}"
    if kind == 8:
        return f"{group(inner())}[{inner()}]"
    if kind == 9:
        parts = [random.choice(["", "1", "-1", "-2", "3", inner()]) for _ in range(3)]
        return f"{group(inner())}[{':'.join(parts[:random.choice([2, 3])])}]"
    if kind == 10:
        return random.choice([f"not {inner()}", f"-{inner()}", f"[{inner()}, {inner()}]", f"({inner()},)",
                              f"{{'k': {inner()}, 'j': {inner()}}}"])
    if kind == 11:
        return f"{inner()} if {inner()}" + random.choice(["", f" else {inner()}"])
    return group(inner())


def group(text):
    return text if text.isalnum() else f"({text})"


def statements(random, depth):
    """Text, prints and blocks with every kind of white space around their tags."""
    return "".join(statement(random, depth) for _ in range(random.randrange(1, 4)))


def tag(random, text):
    return f"{{%{random.choice(['', '', '', '-', '+'])} {text} {random.choice(['', '', '', '-', '+'])}%}}"


def white(random):
    return random.choice(["", "", "\n", "  ", "\n  ", " \n\n ", "x", " y\n", "\t"])


def statement(random, depth):
    def body():
        return white(random) + (statements(random, depth - 1) if depth > 0 else "b") + white(random)

    def value():
        return expression(random, 1)
    kind = random.randrange(12)
    if kind < 2:
        return white(random)
    if kind == 2:
        return f"{{{{{random.choice(['', '-'])} {value()} {random.choice(['', '-'])}}}}}"
    if kind == 3:
        return f"{{#{random.choice(['', '-'])} note {random.choice(['', '-', '+'])}#}}"
    if kind == 4:
        return (tag(random, f"if {value()}") + body() + random.choice(["", tag(random, f"elif {value()}") + body()])
                + random.choice(["", tag(random, "else") + body()]) + tag(random, "endif"))
    if kind == 5:
        condition = random.choice(["", "", f" if {random.choice(['i', 'i is string', 'i != 1', value()])}"])
        jump = random.choice(["", "", tag(random, "if loop.index0 == 1") + tag(
            random, random.choice(["break", "continue"])) + tag(random, "endif")])
        what = random.choice(["loop.index", "loop.last", "loop.first", "loop.length", "i", "loop.revindex", "x",
                              "loop.nextitem is defined", "loop.previtem is defined", "loop.cycle('p', 'q')",
                              "loop.changed(i)"])
        return (tag(random, f"for i in {random.choice(['l', 'm', 's', 'd', 'range(3)', 'nothing', value()])}{condition}")
                + jump + body() + f"{{{{ {what} }}}}" + random.choice(["", tag(random, "else") + body()])
                + tag(random, "endfor"))
    if kind == 6:
        return tag(random, f"set x = {value()}") + random.choice(["", "{{ x }}"])
    if kind == 7:
        return tag(random, random.choice(["set x", "set x | upper", "set x|trim"])) + body() + tag(
            random, "endset") + "{{ x }}"
    if kind == 8:
        return (tag(random, f"macro f(a, c={value()})") + body() + "{{ a }}{{ c }}" + tag(random, "endmacro")
                + random.choice(["{{ f(1) }}", "{{ f(c=2, a=3) }}", "{{ f() }}", "{{ f(1, 2, 3) }}", ""]))
    if kind == 9:
        opens = random.choice(["filter upper", "filter trim|length", "with x = 5", "generation"])
        return tag(random, opens) + body() + "{{ x }}" + tag(random, "end" + opens.split()[0])
    if kind == 10:
        return (tag(random, "set ns = namespace(q=1)") + tag(random, f"set ns.q = {value()}") + "{{ ns.q }}")
    return tag(random, "raw") + "{{ a }}{% b" + white(random) + tag(random, "endraw")

