#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ask the running server and print the answer as it comes.

  baton ask WORDS...           one question; quotes are not needed
  cat FILE | baton ask WORDS   the same, with the file behind it
  baton ask                    a conversation, on a terminal

The server's address is in BATON_URL or behind --url: ADDR:PORT or a URL such as
http://ADDR:PORT/v1. Else it is the server that BATON_HTTP has serve at ADDR:PORT,
127.0.0.1:8000 by default. A key for it, where it wants one, is in BATON_API_KEY
(or OPENAI_API_KEY), or behind --api-key.

Nothing is sent that was not asked for: without --temperature and the like the
server's own defaults hold. Exit status: 0, 1 after an error, 2 for a mistake in
the options, 130 after Ctrl-C.
"""
import os
import sys

import command
import endpoint as endpoints
import talk
from printer import Printer, say_end
from words import Parser, Trouble, at_least_0, count, finite

MOST_INPUT_BYTES = 64 << 20


def read_options(argv):
    parser = Parser(prog="baton ask", description=__doc__)
    parser.add_argument("words", metavar="WORD", nargs="*")
    parser.add_argument("--system", metavar="TEXT", help="how the model is to behave")
    parser.add_argument("--model", metavar="NAME", help="one of several models (default: the first)")
    parser.add_argument("--max-tokens", type=count, metavar="N", help="the longest answer")
    parser.add_argument("--temperature", type=at_least_0, metavar="X", help="0: the likeliest token, always")
    parser.add_argument("--top-p", type=finite, metavar="X")
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same answer")
    parser.add_argument("--raw", action="store_true", help="the text as it is, without the model's chat template")
    parser.add_argument("--stats", action="store_true",
                        help="tokens, tokens per second and time to first token, on standard error")
    parser.add_argument("--history", metavar="FILE", default=os.environ.get("BATON_ASK_HISTORY"),
                        help="keep the lines of conversations in FILE (default: BATON_ASK_HISTORY, or nowhere)")
    parser.add_argument("--url", metavar="URL", help="the server (default: BATON_URL, or BATON_HTTP, or 127.0.0.1:8000)")
    endpoints.add_key_option(parser)
    endpoints.add_tls_options(parser)
    options = parser.read(argv)
    if options.raw and options.system is not None:
        parser.error("--system is part of a chat, and --raw is none")
    return options


class Asker:
    """Questions to one server with the options of the command line."""

    def __init__(self, options, where):
        self.options, self.where = options, where
        self.model = options.model

    def ask(self, messages):
        """@param messages  of the chat; of --raw the last one alone counts
        @return a talk.Answer that has not begun"""
        options = self.options
        self.model = self.model or talk.first_model(self.where)
        body = {"model": self.model, "stream": True, "stream_options": {"include_usage": True}}
        for name in ("max_tokens", "temperature", "top_p", "seed"):
            if getattr(options, name) is not None:
                body[name] = getattr(options, name)
        if options.raw:
            body["prompt"] = messages[-1]["content"]
            return talk.Answer(self.where, "/completions", body)
        body["messages"] = messages
        if options.system is not None:
            body["messages"] = [{"role": "system", "content": options.system}] + messages
        return talk.Answer(self.where, "/chat/completions", body)


def read_input():
    """What was piped in, or nothing."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    data = sys.stdin.buffer.read(MOST_INPUT_BYTES + 1)
    if len(data) > MOST_INPUT_BYTES:
        raise Trouble(f"standard input has more than {MOST_INPUT_BYTES} bytes")
    return data.decode("utf-8", "replace")


def clean(word):
    """An argument that was no UTF-8."""
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def ask_once(asker, text, printer):
    answer = asker.ask([{"role": "user", "content": text}])
    for piece in answer.pieces():
        printer.piece(piece)
    printer.end_line()
    say_end(answer, asker.options)


def run(options, printer, where, address):
    text = " ".join(clean(word) for word in options.words)
    asker = Asker(options, where)
    if options.system is not None:
        options.system = clean(options.system)
    if not text and sys.stdin is not None and sys.stdin.isatty():
        import chat  # a terminal's needs, which no pipe has
        return chat.converse(asker, printer, address)
    piped = read_input()
    whole = "\n\n".join(part for part in (text, piped.rstrip("\n")) if part.strip())
    if not whole:
        raise Trouble('nothing was asked: ./baton ask "TEXT"')
    ask_once(asker, whole, printer)
    return 0


def main():
    options = read_options(sys.argv[1:])
    # Text is UTF-8 whatever the locale says.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    sys.stderr.reconfigure(encoding="utf-8", errors="replace")
    printer = Printer()
    address, name = endpoints.named(options.url)
    return command.run(lambda where: run(options, printer, where, address), options, address, name, printer.complain)


if __name__ == "__main__":
    sys.exit(main())
