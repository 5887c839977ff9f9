# SPDX-License-Identifier: Apache-2.0
"""What is to be pulled: a word of the command line becomes a Plan, which names every file with its address, size and
checksum.

A repository is asked for through the API of the Hugging Face Hub:
    GET /api/models/OWNER/REPO/revision/REV?blobs=true   its commit and its files, with sizes and checksums
    GET /OWNER/REPO/resolve/COMMIT/FILE                  a file, or a redirect to it
"""
import os
import re
import urllib.error
from urllib.parse import quote, unquote, urlsplit

import model_http
from model_store import PART, SUFFIX, check_name, name_of_file, shown
from words import Trouble, near, suggestion

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.txt")
WORD = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<rev>[^:@]+))?(?::(?P<file>[^:@]+))?(?:@(?P<rev2>[^:@]+))?\Z", re.A)
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+,=@~()\[\] -]{0,200}\Z")
FOLDER_SUFFIXES = (".safetensors", ".json", ".jinja")
FOLDER_FILES = ("tokenizer.model", "merges.txt", "vocab.txt")
NO_MODELS = ("mmproj", "imatrix")  # GGUF files that go with a model
MOST_PARTS = 4096
MOST_SHOWN = 12


class File:
    """`name` is what it will be called, `check` ("sha256" or "git", hex digits) or None, `size` None: the server says."""

    def __init__(self, name, url, size=None, check=None):
        self.name, self.url, self.size, self.check = name, url, size, check


class Plan:
    """`again` are the words after ./baton pull that go on with it."""

    def __init__(self, name, source, files, commit=None):
        self.name, self.source, self.files, self.commit = name, source, files, commit
        self.again = source


def known():
    """@return {name: (source, what it is)} of the list in this repository"""
    names = {}
    with open(LIST, encoding="utf-8") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                name, source, about = line.split(None, 2)
                names[name] = (source, about.strip())
    return names


def plan_for(word, web, name=None, sha256=None):
    """@param name    what the model shall be called, or None
    @param sha256  that a single file must have, or None"""
    if "://" in word:
        plan = of_url(word, web)
    elif "/" in word:
        plan = of_repository(word, web)
    else:
        names = known()
        if word not in names:
            raise Trouble(f"no model '{shown(word)}' in the list, which ./baton list --known shows; OWNER/REPO names a "
                          f"repository{suggestion(word, names)}")
        plan = of_repository(names[word][0], web)
        plan.name = plan.again = word
    if name:
        plan.name = check_name(name)
        plan.again += f" --name {name}"
    if sha256:
        if len(plan.files) != 1:
            raise Trouble(f"--sha256 is of one file, and {plan.name} has {len(plan.files)}")
        plan.files[0].check = ("sha256", sha256)
    return plan


# --- one file somewhere ----------------------------------------------------------------------------------------------

def of_url(url, web):
    model_http.check_url(url, "the address")
    parts = urlsplit(url)
    path = unquote(parts.path).strip("/")
    ours = model_http.origin(url) == model_http.origin(web.endpoint)
    match = re.match(r"([\w.-]+/[\w.-]+)(?:/(resolve|blob|tree)/([^/]+)(?:/(.+))?)?\Z", path, re.A)
    if ours and match:
        repo, _, revision, file = match.groups()
        return of_repository(f"{repo}@{revision or 'main'}" + (f":{file}" if file else ""), web)
    base = check_file(path.rpartition("/")[2])
    if not base.lower().endswith(SUFFIX):
        raise Trouble(f"'{shown(base)}' at the end of the address is no {SUFFIX} file")
    part = PART.match(base)
    bases = parts_of(part) if part else [base]
    folder = parts.path.rpartition("/")[0]
    files = [File(one, parts._replace(path=f"{folder}/{quote(one)}", fragment="").geturl()) for one in bases]
    return Plan(name_of_file(base), url, files)


def parts_of(match):
    """@return the names of all parts of a split file"""
    n = int(match.group(3))
    if not 1 <= n <= MOST_PARTS:
        raise Trouble(f"'{shown(match.group(0))}' says that it has {n} parts")
    return [f"{match.group(1)}-{i:05d}-of-{n:05d}{SUFFIX}" for i in range(1, n + 1)]


def check_file(base):
    if not FILE.match(base):
        raise Trouble(f"the server has a file '{shown(base)}'; so it shall not be called here")
    return base


def check_path(path):
    """@return the file's own name: whatever folder it lies in there, here it lies in that of its model"""
    if any(piece in ("", ".", "..") for piece in path.split("/")):
        raise Trouble(f"the server has a file '{shown(path)}'; so it shall not be called here")
    return check_file(path.rpartition("/")[2])


# --- repositories ----------------------------------------------------------------------------------------------------

def of_repository(word, web):
    match = WORD.match(word)
    if not match or match["rev"] and match["rev2"] or ".." in word:
        raise Trouble(f"'{shown(word)}' is not OWNER/REPO, OWNER/REPO:FILE or OWNER/REPO@REVISION")
    repo, wanted = match["repo"], match["file"]
    revision = match["rev"] or match["rev2"] or "main"
    commit, files = list_repository(repo, revision, web)
    if wanted is None and "config.json" in files and any(name.endswith(".safetensors") and "/" not in name for name in files):
        chosen, name = choose_folder(files), name_of_file(repo)
    else:
        chosen = choose_gguf(repo, files, wanted)
        name = name_of_file(chosen[0])
    source = repo + (f"@{revision}" if revision != "main" else "") + (f":{wanted}" if wanted else "")
    return Plan(name, source, [File(check_path(path),
                                    f"{web.endpoint}/{repo}/resolve/{quote(commit, safe='')}/{quote(path)}", *files[path])
                               for path in chosen], commit)


def list_repository(repo, revision, web):
    """@return the commit, {path: (size or None, check or None)}"""
    url = f"{web.endpoint}/api/models/{repo}/revision/{quote(revision, safe='')}?blobs=true"
    try:
        reply = web.json(url)
    except urllib.error.HTTPError as error:
        with error:
            raise Trouble(explain(error, web, repo, revision)) from None
    try:
        commit = reply.get("sha") or revision
        files = {}
        for row in reply["siblings"]:
            lfs = row.get("lfs") or {}
            size, sha256, blob = lfs.get("size", row.get("size")), lfs.get("sha256") or lfs.get("oid"), row.get("blobId")
            check = ("sha256", sha256) if is_hex(sha256, 64) else ("git", blob) if not lfs and is_hex(blob, 40) else None
            if size is not None and (not isinstance(size, int) or size < 0):
                raise ValueError("size")
            if not isinstance(row["rfilename"], str) or not isinstance(commit, str):
                raise TypeError("name")
            files[row["rfilename"]] = (size, check)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise Trouble(f"{web.endpoint} does not describe {repo} as the API of the Hugging Face Hub does") from None
    return commit, files


def is_hex(text, n):
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{n}}}", text) is not None


def explain(error, web, repo, revision):
    """What a person can do about an answer that is none."""
    host = web.endpoint
    code = error.headers.get("X-Error-Code", "")
    if error.code in (401, 403) and code != "RepoNotFound":
        return gated(web, repo)
    if code == "RevisionNotFound":
        return f"{repo} has no revision '{shown(revision)}'"
    if error.code in (401, 404):
        private = "" if web.token else " (or it is private: then HF_TOKEN says who asks)"
        return f"{host} has no repository {repo}{private}{others(repo, web)}"
    if error.code == 429:
        return f"{host} wants fewer requests for a while (HTTP 429); HF_TOKEN has limits of its own"
    return f"{host} answers HTTP {error.code} about {repo}: {shown(error.headers.get('X-Error-Message') or error.reason)}"


def gated(web, repo):
    if web.token:
        return (f"{web.endpoint} does not let the account of HF_TOKEN have {repo}: accept its terms at {web.endpoint}/{repo}, "
                "or take a token that may read it")
    return (f"{repo} is only for accounts that accepted its terms at {web.endpoint}/{repo}: then make a token at "
            f"{web.endpoint}/settings/tokens and put it into HF_TOKEN")


def others(repo, web):
    """Repositories of nearly that name, where the server says some."""
    try:
        rows = web.json(f"{web.endpoint}/api/models?limit=20&search={quote(repo.rpartition('/')[2], safe='')}")
        found = near(repo, [row["id"] for row in rows if isinstance(row.get("id"), str)])
    except (Trouble, OSError, ValueError, KeyError, TypeError, AttributeError, *model_http.CUTS):
        found = None
    return f"; did you mean {shown(found)}?" if found else ""


def choose_folder(files):
    """What belongs to a model in safetensors: no code, no weights in other formats, nothing below."""
    top = [name for name in files if "/" not in name]
    weights = [name for name in top if name.endswith(".safetensors")]
    named = [name for name in weights if not name.startswith("consolidated")]  # the same weights once more
    left_out = set(weights) - set(named or weights)
    return sorted(name for name in top if name not in left_out and not name.startswith((".", "adapter_"))
                  and (name.endswith(FOLDER_SUFFIXES) or name in FOLDER_FILES))


def gguf_units(files):
    """@return {first path: [paths of its parts]}"""
    units = {}
    for path in sorted(files):
        folder, slash, base = path.rpartition("/")
        if not base.lower().endswith(SUFFIX) or any(word in base.lower() for word in NO_MODELS):
            continue
        part = PART.match(base)
        if not part:
            units[path] = [path]
        elif int(part.group(2)) == 1:
            units[path] = [folder + slash + name for name in parts_of(part)]
    return units


def stem(path):
    part = PART.match(path.rpartition("/")[2])
    return part.group(1) if part else path.rpartition("/")[2][:-len(SUFFIX)]


def choose_gguf(repo, files, wanted):
    """@param wanted  a path, a file's name with or without .gguf, or its quantization; None: there is but one
    @return the paths of the file, or of its parts"""
    units = gguf_units(files)
    if not units:
        raise Trouble(f"{repo} has neither GGUF files nor safetensors with a config.json")
    found = [first for first in units if wanted is None or wanted in units[first]]
    if wanted is not None:
        text = wanted.lower()
        for matches in (lambda p: stem(p).lower() == text or p.rpartition("/")[2].lower() == text,
                        lambda p: re.search(r"(?<![A-Za-z0-9])(?<!ud[-_.])" + re.escape(text) + r"\Z", stem(p).lower()),
                        lambda p: re.search(r"(?<![A-Za-z0-9])" + re.escape(text) + r"\Z", stem(p).lower()),
                        lambda p: p.lower().startswith(text + "/")):
            found = found or [first for first in units if matches(first)]
    if len(found) != 1:
        raise Trouble(which(repo, units, found, wanted, files))
    missing = [path for path in units[found[0]] if path not in files]
    if missing:
        raise Trouble(f"{repo} lacks {shown(missing[0])}, a part of {shown(found[0])}")
    return units[found[0]]


def which(repo, units, found, wanted, files):
    rows = [shown(stem(first)) for first in (found or units)]
    shown_rows = ", ".join(rows[:MOST_SHOWN]) + (f" and {len(rows) - MOST_SHOWN} more" if len(rows) > MOST_SHOWN else "")
    if wanted is None:
        return f"{repo} has {len(rows)} models; name one, as {repo}:FILE: {shown_rows}"
    if len(found) > 1:
        return f"'{shown(wanted)}' could be {shown_rows}"
    if wanted in files:
        return f"{shown(wanted)} is no GGUF file; {repo} alone is the whole folder"
    return f"{repo} has no file '{shown(wanted)}'{suggestion(wanted, [stem(first) for first in units])}; it has {shown_rows}"
