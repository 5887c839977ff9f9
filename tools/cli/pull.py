#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch a model, so that ./baton serve --model NAME finds it.

  baton pull NAME                     one of ./baton list --known
  baton pull OWNER/REPO[:FILE]        of a server with the API of the Hugging Face
                                      Hub: the GGUF file that is called so or is of
                                      that quantization (:Q4_K_M), with all its
                                      parts; without :FILE the only one, or the
                                      folder of safetensors. @REVISION may follow
  baton pull URL                      of such a repository or file, or of a .gguf
                                      file anywhere

What is stopped goes on with the same command. Files are checked (SHA-256, as the
server states it) before the model gets its name.

HF_ENDPOINT is the server (https://huggingface.co), HF_TOKEN says who asks, where a
model is not for everybody. Proxies are those of https_proxy and no_proxy.

Exit status: 0, 1 after an error, 2 for a mistake in the options, 130 after Ctrl-C.
"""
import argparse
import errno
import re
import sys
from urllib.parse import urlsplit

import model_http
from model_fetch import Fetch
from model_source import plan_for
from model_store import add_folder_option, find, folder_of, shown
from progress import size_text
from words import COMMAND, Parser, Trouble, in_a_line


def sha256(text):
    if not re.fullmatch("[0-9a-f]{64}", text.lower()):
        raise argparse.ArgumentTypeError(f"'{text}' is no SHA-256: 64 hex digits")
    return text.lower()


def make_parser():
    parser = Parser(prog="baton pull", description=__doc__)
    parser.add_argument("model", metavar="NAME|OWNER/REPO[:FILE]|URL")
    parser.add_argument("--name", metavar="NAME", help="what it shall be called here, and by clients")
    parser.add_argument("--sha256", metavar="HEX", type=sha256, help="what a single file must have")
    add_folder_option(parser)
    return parser


def say(text):
    print(f"baton: {in_a_line(text)}", file=sys.stderr, flush=True)


def pull(options):
    web = model_http.from_environment()
    folder = folder_of(options.models_dir)
    plan = plan_for(options.model, web, options.name, options.sha256)
    is_new = Fetch(folder, plan, web, say).run()
    model = find(folder, plan.name)
    print(f"{model.name} {'is here' if is_new else 'was here already'}: {size_text(model.n_bytes())}, {model.kind()}, {model.path}")
    if is_new:
        folder_words = f" --models-dir {folder}" if options.models_dir else ""
        print(f"{COMMAND} serve --model {model.name}{folder_words} serves it")


def main():
    options = make_parser().read(sys.argv[1:])
    try:
        pull(options)
        return 0
    except KeyboardInterrupt:
        print(file=sys.stderr)
        say("stopped; the same command goes on from here")
        return 130
    except Trouble as error:
        say(error)
    except model_http.CUTS as error:
        url = options.model if "://" in options.model else model_http.from_environment().endpoint
        say(model_http.describe(error, urlsplit(url).netloc))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        say(f"{shown(error)}" + ("; with more room the same command goes on from here" if full else ""))
    return 1


if __name__ == "__main__":
    sys.exit(main())
