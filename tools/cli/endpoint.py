# SPDX-License-Identifier: Apache-2.0
"""Where a server of OpenAI's API is, and how it is reached.

    127.0.0.1:8000, http://127.0.0.1:8000, http://127.0.0.1:8000/v1 and, behind a
    gateway, https://HOST/any/path/v1 are all understood.
"""
import http.client
import json
import os
import ssl
from urllib.parse import urlsplit

from words import Trouble

DEFAULT = "127.0.0.1:8000"
CONNECT_S = 20
TIMEOUT_S = 600
MOST_LINE_BYTES = 16 << 20
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Endpoint:
    """host, port, scheme and `base`, the path before /chat/completions; `tls` is a context or None."""

    def __init__(self, host, port, base, tls, api_key=None):
        self.host, self.port, self.base, self.tls, self.api_key = host, port, base, tls, api_key
        shown = f"[{host}]" if ":" in host else host
        self.netloc = f"{shown}:{port}"

    def connect(self):
        if self.tls:
            connection = http.client.HTTPSConnection(self.host, self.port, timeout=CONNECT_S, context=self.tls)
        else:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=CONNECT_S)
        connection.connect()
        connection.sock.settimeout(TIMEOUT_S)
        return connection


def tls_context(cacert, cert, key):
    try:
        context = ssl.create_default_context(cafile=cacert or None)
        if cert:
            context.load_cert_chain(cert, key or None)
    except (OSError, ssl.SSLError) as error:
        raise Trouble(f"cannot read {cacert or ''} {cert or ''} {key or ''}: {error}") from None
    return context


def named(url=None):
    """The server that a command asks: of --url, else of BATON_URL, else the one that serves where BATON_HTTP says.

    @return (address, what to call it in a complaint)"""
    for text, name in ((url, "--url"), (os.environ.get("BATON_URL"), "BATON_URL")):
        if text:
            return text, name
    return os.environ.get("BATON_HTTP") or DEFAULT, "BATON_HTTP"


def find(text, name, cacert=None, cert=None, key=None, api_key=None):
    """@param name     what to call `text` in a complaint, such as BATON_URL
    @param api_key  of --api-key; None: the environment's
    @return an Endpoint"""
    scheme, split, rest = text.rpartition("://")
    if name == "BATON_HTTP" and "/" in text:
        raise Trouble(f"BATON_HTTP is '{text}', and not ADDR:PORT, where a server serves; BATON_URL (or --url) says which one "
                      "to ask")
    scheme = scheme.lower()
    if split and scheme not in ("http", "https"):
        raise Trouble(f"{name} is '{text}', and neither http nor https")
    if scheme == "http" and cacert:
        raise Trouble(f"--cacert is for https, and {name} is '{text}'")
    secure = scheme == "https" or bool(cacert)
    try:
        parts = urlsplit(("https" if secure else "http") + "://" + rest)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = parts = None
    if port is None and parts is not None and not parts.netloc.endswith(":"):
        port = (443 if secure else 80) if split else None
    if not host or port is None or parts.query or parts.fragment or parts.username is not None:
        raise Trouble(f"{name} is '{text}', not ADDR:PORT or http://ADDR:PORT/v1")
    base = parts.path.rstrip("/")
    if base.rpartition("/")[2] != "v1":
        base += "/v1"
    context = tls_context(cacert, cert, key) if secure else None
    return Endpoint(EVERYWHERE.get(host, host), port, base, context, api_key or key_of_environment())


def key_of_environment():
    """The key for the server; that which programs for OpenAI's API use, where there is none of ours."""
    return os.environ.get("BATON_API_KEY") or os.environ.get("OPENAI_API_KEY") or None


def headers(endpoint):
    """Of every request."""
    key = endpoint.api_key
    if not key:
        return {}
    if not all("!" <= c <= "~" for c in key):
        raise Trouble("the API key has a character that no header can have")
    return {"Authorization": f"Bearer {key}"}


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
        return body.decode("utf-8", "replace").strip()[:2000]
    if isinstance(error, dict):
        return str(error.get("message", error))
    return str(error)


def add_key_option(parser):
    parser.add_argument("--api-key", metavar="KEY",
                        help="the server's key for us (default: BATON_API_KEY, or else OPENAI_API_KEY); others on this "
                        "machine can read arguments, so the environment is the better place")


def add_tls_options(parser):
    parser.add_argument("--cacert", metavar="FILE", default=os.environ.get("BATON_CACERT"),
                        help="ask over TLS; who signed the server's certificate (default: BATON_CACERT)")
    parser.add_argument("--cert", metavar="FILE", help="our own certificate, where the server wants one")
    parser.add_argument("--key", metavar="FILE", help="its private key, when that is another file")
