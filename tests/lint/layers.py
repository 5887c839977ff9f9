# SPDX-License-Identifier: Apache-2.0
"""Who may use whom: what the meson.build files declare against what the sources
include and the programs link. Nothing is built: a module is linked where it is
declared and nowhere else, because only the root meson.build makes the libraries.

All functions take a `Layers`, read from a dict {path: text}, so that tests can
hand in a tree of a few lines. Each returns reasons, none when all is well.
"""
import re

# Outside library, as meson.build names it -> who declares it; None: anybody. The load
# generator of bench is a client: it speaks TLS by itself.
LIBRARIES = {
    "threads": None,
    "libm": None,
    "libxxhash": "common/base",
    "zlib": "common/zip",
    "msgpack-c": "common/wire",
    "nng": "common/link",
    "libsodium": "common/crypt",
    "munge": "common/crypt",
    "mpi": "common/cluster",
    "dl": "kernels",
    "ucx": "kvtransfer",
    "libevent_core": "router/net",
    "libcurl": "router/otlp",
    "openssl": ("router/net", "bench"),
    "libnghttp2": "router/grpc",
    "libprotobuf-c": "router/grpc",
}

# Folder of a program -> modules that it must not link, each with all below it,
# and the outside libraries that it may (threads and libm always).
PROGRAMS = {
    "launcher": {
        "never": ["common/wire", "common/link", "common/cluster", "common/coll", "common/kv", "common/sched",
                  "inference", "kernels", "kvtransfer", "worker", "router"],
        "libraries": ["libxxhash"],
    },
    "launcher/orchestrator": {
        "never": ["common/link", "inference", "kernels", "kvtransfer", "worker", "router", "launcher"],
        "libraries": ["libxxhash", "mpi"],
    },
    "router": {
        "never": ["inference/packed", "inference/model", "inference/engine", "kernels", "kvtransfer", "worker",
                  "launcher"],
        "libraries": ["libxxhash", "msgpack-c", "nng", "libsodium", "munge", "mpi", "libevent_core", "libcurl", "openssl",
                      "libnghttp2", "libprotobuf-c", "zlib"],
    },
    "worker/main": {
        "never": ["common/metrics", "router", "launcher"],
        "libraries": ["libxxhash", "msgpack-c", "nng", "libsodium", "munge", "mpi", "dl", "ucx"],
    },
    "tools": {
        "never": ["common/link", "common/cluster", "inference/engine", "kvtransfer", "worker", "router", "launcher"],
        "libraries": ["libxxhash", "msgpack-c", "dl"],
    },
    "bench": {
        "never": ["common/cluster", "worker", "router", "launcher"],
        "libraries": ["libxxhash", "msgpack-c", "nng", "libsodium", "munge", "openssl", "dl", "ucx"],
    },
}

# A plugin is built by a compiler of its own and so declares nothing to meson.
PLUGINS = {"kernels/cuda": ["common/base", "common/coll", "kernels"]}

# Policy: what it decides hangs on its arguments alone.
PURE = ["common/kv", "common/sched", "router/core", "router/watch"]
IMPURE_HEADERS = re.compile(r"(time|pthread|threads|poll|unistd|signal|sys/(socket|time|epoll|random))\.h|"
                            r"mpi\.h|nng/.*|event2/.*|common/(base/(clock|process|thread)\.h|(link|cluster)/.*)")


def _owners(row):
    return (row,) if isinstance(row, str) else row


def _uncommented(text):
    return re.sub(r"#.*", "", text)


def includes(text):
    return re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', text, re.M)


def _under(path, folders):
    return any(path == f or path.startswith(f + "/") for f in folders)


class Layers:
    """modules, in the order of the list; deps and libraries: of each folder the
    declared ones, direct; used: of each folder {module: a file that includes it}."""

    def __init__(self, tree, programs=None, plugins=None):
        self.programs = PROGRAMS if programs is None else programs
        self.plugins = PLUGINS if plugins is None else plugins
        listed = re.search(r"^modules = \[(.*?)^\]", tree["meson.build"], re.S | re.M).group(1)
        self.modules = re.findall(r"'([^']+)'", _uncommented(listed))
        self._by_name = {self._name(m): m for m in self.modules}
        self.unknown = []
        self.deps = {p: list(d) for p, d in self.plugins.items()}
        self.libraries = {}
        for folder in self.modules + list(self.programs):
            text = _uncommented(tree.get(folder + "/meson.build", ""))
            self.deps[folder] = self._declared(folder, text)
            self.libraries[folder] = self._outside(text)
        self.used = self._includes(tree)

    @staticmethod
    def _name(module):
        return module.replace("/", "_") if module.startswith("router/") else module.split("/")[-1]

    def _declared(self, folder, text):
        """A module names others in `deps`, a program their bt_NAME_dep."""
        if folder in self.programs:
            names = [n for n in re.findall(r"\bbt_(\w+?)_dep\b", text) if n in self._by_name]
        else:
            names = re.findall(r"'([^']+)'", " ".join(re.findall(r"^deps \+?= \[(.*?)\]", text, re.S | re.M)))
            self.unknown += [f"{folder}/meson.build: no module is named {n}" for n in names if n not in self._by_name]
        return sorted({self._by_name[n] for n in names if n in self._by_name})

    @staticmethod
    def _outside(text):
        found = set(re.findall(r"\b(?:dependency|find_library)\('([^']+)'", text))
        found |= {w for w in ("threads", "libm") if re.search(rf"\b{w}\b", text)}
        return sorted(found - {"cmocka"})

    def folder_of(self, path):
        known = self.modules + list(self.programs) + list(self.plugins)
        return max((k for k in known if path.startswith(k + "/")), key=len, default="")

    def _includes(self, tree):
        used = {}
        for path in sorted(tree):
            mine = self.folder_of(path)
            if mine and path.endswith((".c", ".h", ".cu")):
                for header in includes(tree[path]):
                    other = self.folder_of(header)
                    if other and other != mine:
                        used.setdefault(mine, {}).setdefault(other, path)
        return used

    def linked(self, folder):
        """{module: by way of which others}, all that this folder pulls in."""
        found = {}
        todo = [(d, []) for d in self.deps[folder]]
        while todo:
            module, way = todo.pop(0)
            if module not in found:
                found[module] = way
                todo += [(d, way + [module]) for d in self.deps[module]]
        return found


def directions(layers):
    """An include names a module among the folder's own deps, one of an earlier
    line of the list; nobody includes a program's header."""
    bad = list(layers.unknown)
    order = {m: i for i, m in enumerate(layers.modules)}
    for mine, others in layers.used.items():
        for other, path in others.items():
            if other in layers.programs or other in layers.plugins:
                bad.append(f"{path}: a header of {other} is included from outside")
            elif other.startswith("router/") and not _under(mine, ["router"]):
                bad.append(f"{path}: a header of {other} is included from outside the router")
            elif other not in layers.deps[mine]:
                bad.append(f"{path}: {mine} includes {other}, which is not among its own deps")
    for module in layers.modules:
        for dep in layers.deps[module]:
            if order[dep] >= order[module]:
                bad.append(f"{module}/meson.build: {dep} does not stand before it in the list")
    return bad


def impure(tree, pure=None):
    """Pure code sees no clock, socket or thread."""
    return [f"{path}: pure policy code includes {header}"
            for path, text in tree.items() if path.endswith((".c", ".h")) and _under(path, pure or PURE)
            for header in includes(text) if IMPURE_HEADERS.fullmatch(header)]


def unused(layers):
    """What is declared is included: else it is linked, and waited for, for nothing."""
    return [f"{folder}/meson.build: {dep} is among the deps, but nothing of it is included"
            for folder in layers.deps if folder not in layers.plugins
            for dep in layers.deps[folder] if dep not in layers.used.get(folder, {})]


def links(layers):
    """No program links, over whatever way, what it must not know."""
    return [f"{program} links {module}" + (f" by way of {', '.join(way)}" if way else "")
            for program, rules in layers.programs.items()
            for module, way in layers.linked(program).items() if _under(module, rules["never"])]


def libraries(layers, owners=None):
    """An outside library is declared by its one owner, and a program links those
    of its row alone."""
    owners = LIBRARIES if owners is None else owners
    bad = []
    for folder, found in layers.libraries.items():
        for lib in found:
            if lib not in owners:
                bad.append(f"{folder}/meson.build: {lib} is in no row of LIBRARIES in tests/lint/layers.py")
            elif owners[lib] is not None and folder not in _owners(owners[lib]):
                bad.append(f"{folder}/meson.build: only {' and '.join(_owners(owners[lib]))} may declare {lib}")
    for program, rules in layers.programs.items():
        for folder in [program, *layers.linked(program)]:
            for lib in layers.libraries[folder]:
                if owners.get(lib, "") is not None and lib not in rules["libraries"]:
                    bad.append(f"{program} links {lib}, which is {folder}'s")
    return bad
