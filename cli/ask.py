#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ask the running server and print the answer as it comes.

Usage: baton ask TEXT [--model NAME] [--max-tokens N]
                 [--cacert FILE] [--cert FILE [--key FILE]]

The server's address is in BATON_HTTP (ADDR:PORT, or https://ADDR:PORT),
127.0.0.1:8000 by default. With --cacert, or BATON_CACERT, it is asked over TLS
and shows a certificate signed by one of FILE; --cert is our own, where the
server wants one.
"""
import argparse
import http.client
import json
import os
import ssl
import sys

TIMEOUT_S = 600


class AskError(Exception):
    """Something a person should read."""


def tls_context(cacert, cert, key):
    try:
        context = ssl.create_default_context(cafile=cacert or None)
        if cert:
            context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        raise AskError(f"cannot read {cacert or ''} {cert or ''} {key or ''}: {error}") from None
    return context


def connect(address, cacert=None, cert=None, key=None):
    scheme, split, rest = address.rpartition("://")
    if split and scheme not in ("http", "https"):
        raise AskError(f"BATON_HTTP is '{address}', and neither http nor https")
    if scheme == "http" and cacert:
        raise AskError(f"--cacert is for https, and BATON_HTTP is '{address}'")
    address = rest.rstrip("/")
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise AskError(f"BATON_HTTP is '{address}', not ADDR:PORT")
    host = host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    if scheme == "https" or cacert:
        return http.client.HTTPSConnection(host, int(port), timeout=TIMEOUT_S, context=tls_context(cacert, cert, key))
    return http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)


def tls_trouble(address, error):
    """What a person can do about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (f"the certificate of {address} is not to be trusted: {error.verify_message}; name the file with "
                "that which signed it: --cacert FILE, or BATON_CACERT")
    reason = getattr(error, "reason", None) or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return f"{address} does not speak TLS; ask it without https:// and --cacert"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"{address} wants a certificate of ours that it knows: --cert FILE [--key FILE]"
    return f"TLS with {address} failed: {reason}"


def error_text(body):
    """The message inside an error body of either protocol."""
    try:
        error = json.loads(body).get("error")
    except (ValueError, AttributeError):
        return body.decode("utf-8", "replace").strip()
    if isinstance(error, dict):
        return str(error.get("message", error))
    return str(error)


def first_model(connection):
    connection.request("GET", "/v1/models")
    reply = connection.getresponse()
    body = reply.read()
    if reply.status != 200:
        raise AskError(f"HTTP {reply.status}: {error_text(body)}")
    models = json.loads(body)["data"]
    if not models:
        raise AskError("the server has no model loaded")
    return models[0]["id"]


def events(reply):
    """The data of each server-sent event."""
    for line in reply:
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            yield line[5:].lstrip(b" ")


def ask(connection, text, model, max_tokens):
    body = {"model": model or first_model(connection), "stream": True,
            "messages": [{"role": "user", "content": text}]}
    if max_tokens is not None:
        body["max_tokens"] = max_tokens
    connection.request("POST", "/v1/chat/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise AskError(f"HTTP {reply.status}: {error_text(reply.read())}")
    for data in events(reply):
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise AskError(error_text(data))
        for choice in event.get("choices", []):
            sys.stdout.write(choice.get("delta", {}).get("content") or "")
            sys.stdout.flush()
    raise AskError("the server ended the answer in the middle")


def main():
    parser = argparse.ArgumentParser(prog="baton ask",
                                     description=__doc__.splitlines()[0])
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("--model", metavar="NAME",
                        help="one of several models (default: the first)")
    parser.add_argument("--max-tokens", type=int, metavar="N")
    parser.add_argument("--cacert", metavar="FILE", default=os.environ.get("BATON_CACERT"),
                        help="ask over TLS; who signed the server's certificate (default: BATON_CACERT)")
    parser.add_argument("--cert", metavar="FILE", help="our own certificate, where the server wants one")
    parser.add_argument("--key", metavar="FILE", help="its private key, when that is another file")
    arguments = parser.parse_args()
    address = os.environ.get("BATON_HTTP") or "127.0.0.1:8000"
    # Text is UTF-8 whatever the locale says.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        connection = connect(address, arguments.cacert, arguments.cert, arguments.key)
        ask(connection, arguments.text, arguments.model,
            arguments.max_tokens)
        print()
        return 0
    except ConnectionRefusedError:
        print(f"baton: nobody answers at {address}; start the server with "
              "./baton serve", file=sys.stderr)
    except ssl.SSLError as error:
        print(f"\nbaton: {tls_trouble(address, error)}", file=sys.stderr)
    except AskError as error:
        print(f"\nbaton: {error}", file=sys.stderr)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, http.client.HTTPException, ValueError, KeyError,
            IndexError) as error:
        print(f"\nbaton: the server at {address} does not answer as Baton "
              f"does: {error!r}", file=sys.stderr)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
