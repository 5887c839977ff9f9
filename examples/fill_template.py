#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills ${NAME} of a config.pbtxt: fill_template.py [-i] FILE NAME:VALUE[,NAME:VALUE...]

-i writes the file itself, else the text is printed. A name without a value stays as it is.
"""
import argparse
import string
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-i", "--in_place", action="store_true")
    parser.add_argument("file")
    parser.add_argument("substitutions", help="NAME:VALUE, with commas between them")
    options = parser.parse_args(arguments)
    values = {}
    for pair in options.substitutions.split(","):
        name, colon, value = pair.partition(":")
        if not colon:
            parser.error(f"'{pair}' is not NAME:VALUE")
        values[name] = value
    with open(options.file, encoding="utf-8") as f:
        text = string.Template(f.read()).safe_substitute(values)
    if options.in_place:
        with open(options.file, "w", encoding="utf-8") as f:
            f.write(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
