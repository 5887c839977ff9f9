#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models that are here.

  baton list [--json]      name, size and kind of each; ./baton serve --model NAME
  baton list --known       the names that ./baton pull knows
  baton rm NAME...         remove models, and what is left of a pull that was stopped

Exit status: 0, 1 after an error, 2 for a mistake in the options.
"""
import json
import os
import sys

import model_store
from model_source import known
from model_store import add_folder_option, folder_of, shown
from progress import size_text
from words import COMMAND, Parser, Trouble


def table(head, rows):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  ".join(cell.rjust(width) if name == "SIZE" else cell.ljust(width)
                        for cell, width, name in zip(row, widths, head)).rstrip())


def print_known(_folder, as_json):
    names = known()
    if as_json:
        print(json.dumps([{"name": name, "source": source, "about": about} for name, (source, about) in names.items()], indent=1))
    else:
        table(("NAME", "MODEL", "FROM"), [(name, about, source) for name, (source, about) in names.items()])


def print_models(folder, as_json):
    models, stopped = model_store.models(folder), model_store.unfinished(folder)
    if as_json:
        print(json.dumps(
            [{"name": m.name, "bytes": m.n_bytes(), "kind": m.kind(), "path": m.path, "source": m.source(),
              "commit": m.manifest.get("commit"), "complete": True} for m in models]
            + [{"name": name, "bytes": have, "bytes_in_all": total, "pull": again, "complete": False}
               for name, again, have, total in stopped], indent=1))
        return
    if models:
        table(("NAME", "SIZE", "KIND", "FROM"),
              [(m.name, size_text(m.n_bytes()), m.kind(), shown(m.source() or "-")) for m in models])
    elif not stopped:
        print(f"no models in {folder}; {COMMAND} pull NAME fetches one, {COMMAND} list --known has names", file=sys.stderr)
    for name, again, have, total in stopped:
        print(f"{name}: {size_text(have)}{' of ' + size_text(total) if total else ''} are here; "
              f"{COMMAND} pull {shown(again)} goes on", file=sys.stderr)


def main_list(argv):
    parser = Parser(prog="baton list", description=__doc__)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--known", action="store_true", help=f"the names that {COMMAND} pull knows")
    add_folder_option(parser)
    options = parser.read(argv)
    (print_known if options.known else print_models)(folder_of(options.models_dir), options.json)


def main_rm(argv):
    parser = Parser(prog="baton rm", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="+")
    add_folder_option(parser)
    options = parser.read(argv)
    folder = folder_of(options.models_dir)
    for word in options.names:
        by_source = model_store.from_source(folder, word)
        name = by_source[0].name if len(by_source) == 1 else word
        n_bytes = model_store.remove(folder, name)
        print(f"{name} is removed: {size_text(n_bytes)}")


def main():
    command, argv = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("list", [])
    try:
        (main_rm if command == "rm" else main_list)(argv)
        sys.stdout.flush()
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (Trouble, OSError) as error:
        print(f"baton: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
