# SPDX-License-Identifier: Apache-2.0
"""Each check of layers.py finds what it is there for: a tree in order gives no
reason, and the same with one thing altered gives the one expected."""
import unittest

import layers

TREE = {
    "meson.build": "modules = [\n  # low\n  'common/base', 'common/wire',\n  'kernels', 'common/cluster',\n"
                   "  'router/http', 'router/frontend',\n]\n",
    "common/base/meson.build": "deps = []\next_deps = [threads]\n",
    "common/base/log.h": "",
    "common/wire/meson.build": "deps = ['base'] # not 'kernels'\next_deps = [dependency('msgpack')]\n",
    "common/wire/wire.h": '#include "common/base/log.h"\n',
    "kernels/meson.build": "deps = ['base']\n",
    "kernels/kernels.h": '#include "common/base/log.h"\n',
    "kernels/cuda/coll.cu": '#include "kernels/kernels.h"\n',
    "common/cluster/meson.build": "deps = ['base']\next_deps = [dependency('mpi', language: 'c')]\n",
    "common/cluster/cluster.h": '#include <mpi.h>\n#include "common/base/log.h"\n',
    "router/http/meson.build": "deps = ['base']\n",
    "router/http/http.h": '#include "common/base/log.h"\n',
    "router/frontend/meson.build": "deps = ['base',\n        'router_http']\n",
    "router/frontend/call.h": '#include "common/base/log.h"\n#include "router/http/http.h"\n',
    "router/meson.build": "executable('r', 'main.c',\n  dependencies: [bt_router_frontend_dep, bt_cluster_dep])\n",
    "router/main.c": '#include "common/cluster/cluster.h"\n#include "router/frontend/call.h"\n',
    "tool/meson.build": "lib = static_library('x', 'a.c', dependencies: [bt_base_dep, libm])\n"
                        "bt_tool_dep = declare_dependency(link_with: lib)\n",
    "tool/a.h": '#include "common/base/log.h"\n',
}
PROGRAMS = {
    "router": {"never": ["kernels"], "libraries": ["mpi"]},
    "tool": {"never": ["common/cluster", "router"], "libraries": []},
}
PLUGINS = {"kernels/cuda": ["kernels"]}
OWNERS = {"threads": None, "libm": None, "msgpack": "common/wire", "mpi": "common/cluster"}


def reasons(**changes):
    """Of all checks; a change is a path with __ for / and _dot_ for a dot."""
    tree = dict(TREE)
    for path, text in changes.items():
        tree[path.replace("__", "/").replace("_dot_", ".")] = text
    read = layers.Layers(tree, PROGRAMS, PLUGINS)
    return (layers.directions(read) + layers.unused(read) + layers.links(read) + layers.libraries(read, OWNERS))


class Layers(unittest.TestCase):
    def expect(self, found, *parts):
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_a_tree_in_order_gives_no_reason(self):
        self.assertEqual(reasons(), [])

    def test_an_include_of_a_module_that_is_not_declared(self):
        self.expect(reasons(kernels__more_dot_c='#include "common/wire/wire.h"\n'),
                    "kernels/more.c", "common/wire", "not among its own deps")

    def test_what_a_dependency_declares_is_not_declared(self):
        self.expect(reasons(router__frontend__meson_dot_build="deps = ['router_http']\n"),
                    "router/frontend/call.h", "common/base", "not among its own deps")

    def test_a_module_that_stands_later_in_the_list(self):
        self.expect(reasons(common__wire__meson_dot_build="deps = ['base', 'kernels']\n",
                            common__wire__more_dot_c='#include "kernels/kernels.h"\n'),
                    "common/wire/meson.build", "kernels does not stand before it")

    def test_a_dep_of_no_module(self):
        self.expect(reasons(kernels__meson_dot_build="deps = ['base', 'kernel']\n"), "no module is named kernel")

    def test_a_header_of_a_program_outside_of_it(self):
        self.expect(reasons(router__http__more_dot_c='#include "tool/a.h"\n'), "a header of tool", "from outside")

    def test_a_header_of_the_router_outside_of_it(self):
        self.expect(reasons(tool__a_dot_c='#include "router/http/http.h"\n'),
                    "tool/a.c", "from outside the router")

    def test_a_plugin_uses_what_its_row_has(self):
        self.expect(reasons(kernels__cuda__more_dot_cu='#include "common/wire/wire.h"\n'),
                    "kernels/cuda", "not among its own deps")

    def test_a_header_of_a_plugin_outside_of_it(self):
        self.expect(reasons(kernels__more_dot_c='#include "kernels/cuda/cuda.h"\n'), "a header of kernels/cuda")

    def test_a_dep_that_nobody_includes(self):
        self.expect(reasons(kernels__meson_dot_build="deps = ['base', 'wire']\n"),
                    "kernels/meson.build: common/wire", "nothing of it is included")

    def test_a_dep_of_a_program_that_nobody_includes(self):
        self.expect(reasons(tool__meson_dot_build="lib = [bt_base_dep, bt_kernels_dep]\n"),
                    "tool/meson.build: kernels", "nothing of it is included")

    def test_a_program_that_links_what_it_must_not_know(self):
        self.expect(reasons(common__cluster__meson_dot_build="deps = ['base', 'kernels']\n",
                            common__cluster__more_dot_c='#include "kernels/kernels.h"\n'),
                    "router links kernels by way of common/cluster")

    def test_a_library_that_a_program_must_not_have(self):
        self.expect(reasons(router__http__meson_dot_build="deps = ['base', 'wire']\n",
                            router__http__more_dot_c='#include "common/wire/wire.h"\n'),
                    "router links msgpack, which is common/wire's")

    def test_a_library_of_another_module(self):
        self.expect(reasons(kernels__meson_dot_build="deps = ['base']\next_deps = dependency('mpi')\n"),
                    "kernels/meson.build: only common/cluster may declare mpi")

    def test_a_library_in_no_row(self):
        self.expect(reasons(kernels__meson_dot_build="deps = ['base']\next_deps = [cc.find_library('z')]\n"),
                    "kernels/meson.build: z is in no row")

    def test_a_library_that_a_program_declares_itself(self):
        found = reasons(tool__meson_dot_build="lib = [bt_base_dep, dependency('mpi')]\n")
        self.assertEqual(found, ["tool/meson.build: only common/cluster may declare mpi",
                                 "tool links mpi, which is tool's"])

    def test_a_pure_folder_that_sees_a_clock_a_thread_or_a_socket(self):
        for header in ("<time.h>", "<pthread.h>", "<sys/socket.h>", '"common/base/clock.h"', '"common/link/link.h"'):
            found = layers.impure({"common/kv/x.c": f"#include {header}\n", "common/base/x.c": f"#include {header}\n"})
            self.expect(found, "common/kv/x.c: pure", header[1:-1])
        self.assertEqual(layers.impure({"common/kv/x.c": "#include <string.h>\n"}), [])


if __name__ == "__main__":
    unittest.main()
