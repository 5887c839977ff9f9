# SPDX-License-Identifier: Apache-2.0
"""Requests to a server of models: redirects, the token, and what went wrong in words.

The token goes to the server that HF_ENDPOINT names and to nobody else: neither to where that one redirects to, nor over
a network in clear text. Proxies are those of the environment (https_proxy, no_proxy).
"""
import errno
import http.client
import json
import os
import re
import socket
import ssl
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from model_store import shown
from words import Trouble

DEFAULT_ENDPOINT = "https://huggingface.co"
TIMEOUT_S = 30
MOST_REPLY = 32 << 20
# What a connection can end with; another attempt may do better.
CUTS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, socket.timeout, ssl.SSLError)
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def origin(url):
    """What two URLs of one server have in common."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def check_url(url, name):
    try:
        scheme, host, _ = origin(url)
    except ValueError:
        scheme = host = None
    if scheme not in ("http", "https") or not host or urlsplit(url).username is not None or \
            any(c <= " " or c == "\x7f" for c in url):
        raise Trouble(f"{name} is '{shown(url)}', and no http:// or https:// address")
    return url


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self):
        self.linked = None  # X-Linked-Etag of the last: the checksum of what it leads to

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        self.linked = headers.get("X-Linked-Etag") or self.linked
        before, after = origin(req.full_url), origin(newurl)
        if after[0] not in ("http", "https") or (before[0] == "https" and after[0] != "https"):
            raise Trouble(f"{before[1]} sends us to {shown(newurl)}, which is not safe")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None and before == after and req.unredirected_hdrs.get("Authorization"):
            request.add_unredirected_header("Authorization", req.unredirected_hdrs["Authorization"])
        return request


class Web:
    """@param endpoint  where repositories are
    @param token     of HF_TOKEN, or None"""

    def __init__(self, endpoint, token):
        self.endpoint = check_url(endpoint.rstrip("/"), "HF_ENDPOINT")
        self.token = token or None
        if self.token and not all("!" <= c <= "~" for c in self.token):
            raise Trouble("HF_TOKEN has a character that no header can have")
        scheme, host, _ = origin(self.endpoint)
        if self.token and scheme == "http" and host not in LOOPBACK:
            raise Trouble(f"HF_TOKEN would go to {host} in clear text: HF_ENDPOINT is http://; use https://, or unset HF_TOKEN")
        self.redirects = _Redirects()
        self.opener = urllib.request.build_opener(self.redirects)

    def open(self, url, headers=None):
        request = urllib.request.Request(url, headers={"User-Agent": "baton", "Accept-Encoding": "identity",
                                                       **(headers or {})})
        if self.token and origin(url) == origin(self.endpoint):
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        self.redirects.linked = None
        return self.opener.open(request, timeout=TIMEOUT_S)

    def linked_sha256(self):
        """Of the file that was opened last, where its server said so when it redirected; else None."""
        tag = (self.redirects.linked or "").removeprefix("W/").strip('"')
        return tag if re.fullmatch("[0-9a-f]{64}", tag) else None

    def json(self, url):
        with self.open(url) as reply:
            body = reply.read(MOST_REPLY + 1)
        if len(body) > MOST_REPLY:
            raise Trouble(f"{shown(url)} is longer than {MOST_REPLY >> 20} MiB")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Trouble(f"{shown(url)} is no JSON; is {self.endpoint} such a server?") from None


def from_environment():
    return Web(os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT, os.environ.get("HF_TOKEN"))


def describe(error, host):
    """Why no connection came about, or how it ended."""
    reason = getattr(error, "reason", None) or error
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} of {host}"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (f"the certificate of {host} is not to be trusted: {reason.verify_message}; SSL_CERT_FILE names a file with "
                "that which signed it")
    if isinstance(reason, socket.gaierror):
        return f"{host} is not found: no network, or no such name (a proxy goes into https_proxy, another server into HF_ENDPOINT)"
    if isinstance(reason, socket.timeout):
        return f"{host} says nothing for {TIMEOUT_S} s"
    if isinstance(reason, OSError) and reason.errno in (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH):
        return f"{host} cannot be reached: {os.strerror(reason.errno).lower()}"
    return f"the connection to {host} was cut" if isinstance(error, (http.client.IncompleteRead, ConnectionError)) \
        else f"{host}: {shown(reason) or type(error).__name__}"
