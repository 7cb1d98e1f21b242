#!/usr/bin/env python3
"""Serves a directory on this machine as another kind of object store than S3 until it is killed: stores.py KIND DIR. Says its port.

KIND is `dav` (a web server that lists folders by PROPFIND), `dav1` (the same, one folder at a time, as Apache does), `gs` (Google's
XML interface) or `az` (Azure's blobs); the latter two have one bucket, `traces`. Only what is asked of them to read is answered:
listing, in small pages, and files or ranges of these. Who asks `gs` signs its tokens with the key in DIR/.account.json, which is made
here; who asks `az` signs each request with `KEY`.
"""

import base64
import hashlib
import hmac
import json
import os
import sys
import threading
from datetime import datetime, timezone
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

KIND, ROOT = sys.argv[1:]
BUCKET = "traces"
ACCOUNT, KEY = "somebody", base64.b64encode(b"a-secret-key")
MAIL = "somebody@traces.example"
PAGE = 7


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def parts(self):
        """The path below the root or bucket, None for another bucket; and the query."""
        url = urlsplit(self.path)
        path = unquote(url.path).lstrip("/")
        if KIND in ("gs", "az"):
            account = ACCOUNT + "/"
            path = path[len(account):] if KIND == "az" and path.startswith(account) else path
            bucket, _, path = path.partition("/")
            path = path if bucket == BUCKET else None
        return path, dict(parse_qsl(url.query, keep_blank_values=True))

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, query = self.parts()
        if not is_allowed(self):
            self.answer(403)
        elif path is None:
            self.answer(404)
        elif KIND == "gs" and query.get("list-type") == "2":
            self.answer(200, listed_gs(*page(query, "continuation-token")))
        elif KIND == "az" and query.get("comp") == "list":
            self.answer(200, listed_az(*page(query, "marker")))
        elif not os.path.isfile(os.path.join(ROOT, path)):
            self.answer(404)
        else:
            self.file(os.path.join(ROOT, path))

    def file(self, path):
        with open(path, "rb") as file:
            content = file.read()
        about = {"ETag": etag(path), "Last_Modified": formatdate(os.stat(path).st_mtime, usegmt=True)}
        asked = self.headers.get("Range") or self.headers.get("x-ms-range")
        if not asked:
            return self.answer(200, content, **about)
        first, last = asked.removeprefix("bytes=").split("-")
        first, last = int(first), min(int(last), len(content) - 1)
        self.answer(206, content[first:last + 1], Content_Range=f"bytes {first}-{last}/{len(content)}", **about)

    def do_PROPFIND(self):
        """What is in a folder, or everything below it, as RFC 4918 has it."""
        path, _ = self.parts()
        top = os.path.join(ROOT, path)
        if not os.path.exists(top):
            return self.answer(404)
        everything = self.headers.get("Depth") == "infinity"
        if everything and KIND == "dav1":
            return self.answer(403, b"<D:error xmlns:D='DAV:'><D:propfind-finite-depth/></D:error>")
        walk = os.walk(top) if everything else list(os.walk(top))[:1]
        found = [top] + [os.path.join(folder, name) for folder, folders, files in walk for name in folders + files]
        self.answer(207, listed_dav(found), Content_Type="application/xml; charset=utf-8")


def etag(path):
    about = os.stat(path)
    return f'"{about.st_mtime_ns:x}-{about.st_size:x}"'


def page(query, name):
    """Names of a page below a prefix with their paths, and where the next one begins."""
    files = [os.path.join(folder, file) for folder, _, files in os.walk(ROOT) for file in files]
    names = sorted(os.path.relpath(path, ROOT) for path in files)
    names = [name for name in names if name.startswith(query.get("prefix", "")) and not name.startswith(".account")]
    begin = int(query.get(name) or 0)
    more = begin + PAGE if begin + PAGE < len(names) else ""
    return [(name, os.path.join(ROOT, name)) for name in names[begin:begin + PAGE]], more


def listed_gs(found, more):
    """https://cloud.google.com/storage/docs/xml-api/get-bucket-list"""
    def item(name, path):
        about = os.stat(path)
        return (f"<Contents><Key>{escape(name)}</Key><Generation>1</Generation><LastModified>{iso(about.st_mtime)}</LastModified>"
                f"<ETag>{escape(etag(path))}</ETag><Size>{about.st_size}</Size></Contents>")
    token = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    items = "".join(item(*one) for one in found)
    return (f"<?xml version='1.0'?><ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'><Name>{BUCKET}</Name>"
            f"{items}{token}</ListBucketResult>").encode()


def listed_az(found, more):
    """https://learn.microsoft.com/en-us/rest/api/storageservices/list-blobs"""
    def item(name, path):
        about = os.stat(path)
        return (f"<Blob><Name>{escape(name)}</Name><Properties><Last-Modified>{formatdate(about.st_mtime, usegmt=True)}</Last-Modified>"
                f"<Etag>{escape(etag(path))}</Etag><Content-Length>{about.st_size}</Content-Length>"
                "<Content-Type>application/octet-stream</Content-Type></Properties></Blob>")
    items = "".join(item(*one) for one in found)
    return (f"<?xml version='1.0'?><EnumerationResults ContainerName='{BUCKET}'><Blobs>{items}</Blobs>"
            f"<NextMarker>{more}</NextMarker></EnumerationResults>").encode()


def listed_dav(found):
    def item(path):
        about, folder = os.stat(path), os.path.isdir(path)
        href = quote("/" + os.path.relpath(path, ROOT).removeprefix(".")) + ("/" if folder else "")
        kind = "<D:resourcetype><D:collection/></D:resourcetype>" if folder else "<D:resourcetype/>"
        size = "" if folder else f"<D:getcontentlength>{about.st_size}</D:getcontentlength><D:getetag>{escape(etag(path))}</D:getetag>"
        return (f"<D:response><D:href>{escape(href)}</D:href><D:propstat><D:prop>{kind}{size}"
                f"<D:getlastmodified>{formatdate(about.st_mtime, usegmt=True)}</D:getlastmodified></D:prop>"
                "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>")
    items = "".join(map(item, found))
    return f"<?xml version='1.0' encoding='utf-8'?><D:multistatus xmlns:D='DAV:'>{items}</D:multistatus>".encode()


def iso(seconds):
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def signed_az(asked):
    """https://learn.microsoft.com/en-us/rest/api/storageservices/authorize-with-shared-key"""
    url = urlsplit(asked.path)
    of = lambda name: asked.headers.get(name, "")
    length = of("Content-Length") if of("Content-Length") != "0" else ""
    standard = [asked.command, of("Content-Encoding"), of("Content-Language"), length, of("Content-MD5"), of("Content-Type"), of("Date")]
    standard += [of("If-Modified-Since"), of("If-Match"), of("If-None-Match"), of("If-Unmodified-Since"), of("Range")]
    own = sorted((name.lower(), value.strip()) for name, value in asked.headers.items() if name.lower().startswith("x-ms-"))
    query = sorted((name.lower(), value) for name, value in parse_qsl(url.query, keep_blank_values=True))
    text = "\n".join(standard) + "\n" + "".join(f"{name}:{value}\n" for name, value in own)
    text += f"/{ACCOUNT}{url.path}" + "".join(f"\n{name}:{value}" for name, value in query)
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    return hmac.compare_digest(of("Authorization"), f"SharedKey {ACCOUNT}:{signature}")


def account_gs():
    """Writes what Google gives a service account; a check of the tokens that are signed with it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    account = {"type": "service_account", "client_email": MAIL, "private_key_id": "1", "private_key": pem}
    with open(os.path.join(ROOT, ".account.json"), "w") as file:
        json.dump(account, file)

    def is_signed(asked):
        token = asked.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            text, signature = token.rsplit(".", 1)
            decoded = lambda part: base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
            key.public_key().verify(decoded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
            return json.loads(decoded(text.split(".")[1]))["iss"] == MAIL
        except (ValueError, KeyError, InvalidSignature):
            return False

    return is_signed


is_allowed = {"gs": account_gs, "az": lambda: signed_az}.get(KIND, lambda: lambda _: True)()
server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
# Whoever started it holds the other end.
sys.stdin.read()
