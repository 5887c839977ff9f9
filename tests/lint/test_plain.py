# SPDX-License-Identifier: Apache-2.0
"""plain.py finds retired names and dangling comments, and no others."""
import unittest

import plain

PAGE = """| Kind | Before | Now |
|---|---|---|
| file | `common/base/sink` | `common/base/async_writer` |
| prefix | `bt_sink_*` | `bt_async_writer_*` |
| symbol | `bt_sink` | `bt_async_writer` |
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

    def test_comments_that_point_at_others_are_found(self):
        texts = {"a.h": "/** @file a.h\n *\n * What it does. */\nint a; /**< the same */\n/** Itself. */\n/* Of it. */\n"
                        "/** Number of rows. It may be 0. */\nint b; /**< of one,\n at most */\n/***** What *****/\n"}
        self.assertEqual([line.split(":")[1] for line in plain.dangling(texts)], ["1", "4", "8"])
