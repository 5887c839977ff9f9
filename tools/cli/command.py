# SPDX-License-Identifier: Apache-2.0
"""How a command that talks to a server begins and ends: its address, and the exit status of all that can happen."""
import os
import sys

import endpoint as endpoints
import talk
from words import in_a_line


def _run(work, options, address, name, complain):
    where = None
    try:
        where = endpoints.find(address, name, options.cacert, options.cert, options.key, options.api_key)
        return work(where)
    except BrokenPipeError:
        raise
    except talk.TROUBLES as error:
        complain(in_a_line(talk.describe(error, where, address)))
        return 1


def run(work, options, address, name, complain):
    """@param work     called with the Endpoint; gives the exit status
    @param options     has those of endpoint.add_tls_options()
    @param name        what to call `address` in a complaint, such as BATON_URL
    @param complain    is told, in a sentence, why the command fails
    @return the exit status: that of `work`, 1 after trouble or when nobody reads any more, 130 after Ctrl-C"""
    try:
        return _run(work, options, address, name, complain)
    except BrokenPipeError:
        # Who read us has enough; nor may the interpreter try once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
