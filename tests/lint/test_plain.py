# SPDX-License-Identifier: Apache-2.0
"""plain.py finds retired names and dangling comments, and no others."""
import unittest

import plain

PAGE = """| Kind | Before | Now |
|---|---|---|
| file | `common/base/sink` | `common/base/async_writer` |
| prefix | `bt_sink_*` | `bt_async_writer_*` |
| symbol | `bt_sink` | `bt_async_writer` |
| option | `--late-join` | `--midstep-join` |
| option | `--model-name` | `--served-model-name` |
| metric | `baton_kv_bytes` | `baton_kv_bytes_total` |
| alert | `BatonForeignKv` | `BatonKvUnauthenticated` |
| log | `is on duty again` | is in service again |
"""
OPTIONS = """    TEXT(COMMON, "a", "FILE", "", ALL, a,
         "Short, with \\" and a bracket (x); "
         "in two literals", "Details"),
    COUNT(INTERNAL, "b", "0", 0, 1, "ms", S | R, b,
         "%s", ""),
"""


class Plain(unittest.TestCase):
    def test_retired_files_symbols_and_prefixes_are_found(self):
        texts = {"a.c": "int bt_sink;\nbt_sink_add(x);\nmy_bt_sink_add(); bt_sinks();\n"}
        self.assertEqual(plain.retired_names(PAGE, ["common/base/sink.c", "router/sink.c", "common/base/sinks.c"], texts),
                         ["common/base/sink.c: docs/RENAMED.md retired this name of a file",
                          "a.c:1: docs/RENAMED.md retired bt_sink", "a.c:2: docs/RENAMED.md retired bt_sink_add"])

    def test_the_repositorys_own_page_is_read(self):
        with open(__file__.replace("tests/lint/test_plain.py", plain.RENAMED), encoding="utf-8") as file:
            page = file.read()
        names = plain.retired(page)
        self.assertEqual(sum(len(n) for n in names.values()), page.count("\n| ") - 1)
        self.assertTrue(all(names.values()))

    def test_retired_names_of_users_are_found_where_they_stand_alone(self):
        texts = {"a.md": "--late-join off\n--late-joining x--late-join\nbaton_kv_bytes{x} baton_kv_bytes_total\n",
                 "b.yml": "BatonForeignKv\n", "c.c": '"worker %s is on duty again"', "examples/d.py": "--model-name",
                 "CHANGELOG.md": "--late-join"}
        self.assertEqual(plain.retired_by_users(PAGE, texts), [
            "a.md:1: docs/RENAMED.md retired --late-join", "a.md:3: docs/RENAMED.md retired baton_kv_bytes",
            "b.yml:1: docs/RENAMED.md retired BatonForeignKv", "c.c:1: docs/RENAMED.md retired is on duty again"])
        self.assertEqual(plain.retired_by_users(PAGE, {"x.py": "--model-name"}), ["x.py:1: docs/RENAMED.md retired --model-name"])

    def test_help_texts_over_the_limit_are_found(self):
        self.assertEqual(plain.long_help(OPTIONS % ("x" * 100)), [])
        self.assertEqual(plain.long_help(OPTIONS % ("x" * 101)), [
            "common/config/config_options.c: the help of --b has 101 characters, at most 100; more is for its details"])
        self.assertEqual(plain.long_help(OPTIONS % ""), ["common/config/config_options.c: --b has no help"])
        self.assertEqual(plain.long_help(""), ["common/config/config_options.c: no option was found"])

    def test_comments_that_point_at_others_are_found(self):
        texts = {"a.h": "/** @file a.h\n *\n * What it does. */\nint a; /**< the same */\n/** Itself. */\n/* Of it. */\n"
                        "/** Number of rows. It may be 0. */\nint b; /**< of one,\n at most */\n/***** What *****/\n"}
        self.assertEqual([line.split(":")[1] for line in plain.dangling(texts)], ["1", "4", "8"])

    def test_overloaded_words_are_found_outside_their_one_meaning(self):
        text = '#include "a/room.h"\nint lane; /* no room */\nchar *no = "a place"; int sched_place, n_places, replaced;\n'
        found = plain.overloaded({"router/net/a.c": text, "kernels/cpu/a.c": "int sum_lanes, kv_groups;\n"})
        self.assertEqual([line.split(": '")[0] for line in found], ["router/net/a.c:2: lane", "router/net/a.c:3: n_places"])
