# SPDX-License-Identifier: Apache-2.0
"""What transformers' apply_chat_template renders, over jinja2 itself: the
environment of transformers/utils/chat_template_utils.py (sandboxed, immutable,
trim_blocks and lstrip_blocks, loop controls, its own tojson, raise_exception and
strftime_now, and generation blocks, which print what is in them). Written over
jinja2 rather than taken from transformers because that package needs no model to
say what a template renders, and because jinja2 is what decides it.
"""
import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %}: a scope of its own, nothing else."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    @staticmethod
    def _print(caller):
        return caller()


def _raise(message):
    raise jinja2.exceptions.TemplateError(message)


def _tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@functools.lru_cache(maxsize=None)
def environment(now):
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise
    moment = datetime.datetime.fromtimestamp(now, datetime.timezone.utc)
    env.globals["strftime_now"] = moment.strftime
    return env


@functools.lru_cache(maxsize=16)
def compiled(template, now):
    """Most of a rendering's time, where it is not there yet."""
    return environment(now).from_string(template)


def render(template, variables, now=0):
    return compiled(template, now).render(variables)
