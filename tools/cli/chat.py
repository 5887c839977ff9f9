# SPDX-License-Identifier: Apache-2.0
"""A conversation on a terminal.

Ctrl-C stops the answer that is being written, or drops the line that is being
typed; Ctrl-D leaves. A line that ends in \\ goes on in the next one, and so does
a text between two lines of triple quotes.
"""
import contextlib
import os
import sys

import talk
from printer import say_end
from words import shown, suggestion

PROMPT, MORE = ">>> ", "... "
QUOTES = '"""'
HELP = """\
/clear          forget what was said
/system TEXT    how the model is to behave from now on; without TEXT: as it will
/model NAME     another model
/help           this
/bye            leave, as Ctrl-D does
A line that ends in \\ goes on in the next one; \"\"\" begins and ends a text of
several lines. Ctrl-C stops an answer."""
COMMANDS = ("/clear", "/system", "/model", "/help", "/bye")


class Lines:
    """Lines that are typed, with editing and history where the terminal has them."""

    def __init__(self, history):
        self.edits = sys.stdout.isatty()
        self.history = history
        self.readline = None
        if self.edits:
            with contextlib.suppress(ImportError):
                import readline
                self.readline = readline
                self._load()

    def _load(self):
        self.readline.set_auto_history(True)
        self.readline.parse_and_bind("set enable-bracketed-paste on")
        if self.history:
            with contextlib.suppress(FileNotFoundError):
                self.readline.read_history_file(self.history)
            self.readline.set_history_length(1000)

    def save(self):
        if self.readline and self.history:
            # It has what was asked: nobody else's to read.
            os.close(os.open(self.history, os.O_CREAT | os.O_WRONLY, 0o600))
            self.readline.write_history_file(self.history)

    def read(self, prompt):
        """@raise EOFError, KeyboardInterrupt"""
        if self.edits:
            return input(prompt)
        sys.stderr.write(prompt)  # who reads standard output wants answers alone
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def text(self):
        """One input, of one line or of several."""
        line = self.read(PROMPT)
        if line.lstrip().startswith(QUOTES):
            return self._quoted(line.lstrip()[len(QUOTES):])
        parts = []
        while line.endswith("\\"):
            parts.append(line[:-1])
            line = self.read(MORE)
        return "\n".join(parts + [line])

    def _quoted(self, line):
        parts = []
        while not line.rstrip().endswith(QUOTES):
            parts.append(line)
            line = self.read(MORE)
        parts.append(line.rstrip()[:-len(QUOTES)])
        return "\n".join(parts).strip("\n")


class Conversation:
    def __init__(self, asker, printer, address):
        self.asker, self.printer, self.address = asker, printer, address
        self.messages = []

    def command(self, text):
        """@return True: it was one"""
        word, _, rest = text.partition(" ")
        rest = rest.strip()
        if word == "/clear" and not rest:
            self.messages = []
        elif word == "/system":
            self.asker.options.system = rest or None
        elif word == "/model" and rest:
            self.asker.model = rest
        elif word == "/help" and not rest:
            print(HELP, file=sys.stderr)
        elif word == "/bye" and not rest:
            raise EOFError
        elif text.startswith("/") and word[1:].isalpha() and (not rest or word in COMMANDS):
            print(f"no command {text}{suggestion(word, COMMANDS)}; /help lists them", file=sys.stderr)
        else:
            return False
        return True

    def turn(self, text):
        """Ask, and remember both sides: also half of an answer that was stopped."""
        raw = self.asker.options.raw
        asked = {"role": "user", "content": text}
        answer = None
        try:
            answer = self.asker.ask([asked] if raw else self.messages + [asked])
            for piece in answer.pieces():
                self.printer.piece(piece)
            self.printer.end_line()
            say_end(answer, self.asker.options)
        except KeyboardInterrupt:
            self.printer.end_line()
            print("[stopped]", file=sys.stderr)
        except BrokenPipeError:
            raise
        except talk.TROUBLES as error:
            self.printer.complain(talk.describe(error, self.asker.where, self.address))
            return
        if answer is not None and answer.text and not raw:
            self.messages += [asked, {"role": "assistant", "content": answer.text}]


def greet(asker):
    print(f"Talking to {shown(asker.model)} at {asker.where.netloc}. Ctrl-C stops an answer, Ctrl-D leaves, /help says more.",
          file=sys.stderr)


def converse(asker, printer, address):
    """@return the exit status"""
    lines = Lines(asker.options.history)
    conversation = Conversation(asker, printer, address)
    # That there is no server is said before anybody types a question.
    asker.model = asker.model or talk.first_model(asker.where)
    greet(asker)
    try:
        while True:
            try:
                text = lines.text()
            except KeyboardInterrupt:
                print("\n(Ctrl-D leaves)", file=sys.stderr)
                continue
            if text.strip() and not conversation.command(text.strip()):
                conversation.turn(text)
    except EOFError:
        print(file=sys.stderr)
    finally:
        with contextlib.suppress(OSError):
            lines.save()
    return 0
