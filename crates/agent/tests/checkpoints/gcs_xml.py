"""fake-gcs-server speaks Google's JSON API; object_store writes and lists through the XML API. This stands between.

usage: gcs_xml.py PORT http://127.0.0.1:PORT_OF_FAKE_GCS_SERVER    (standard library only, loopback only)
"""
import http.client, http.server, itertools, json, socketserver, sys, threading, urllib.parse as u
from xml.sax.saxutils import escape

PORT, BEHIND = int(sys.argv[1]), u.urlparse(sys.argv[2]).netloc
UPLOADS, NUMBERS, LOCK = {}, itertools.count(1), threading.Lock()


class Front(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        for key, value in headers:
            self.send_header(key, value)
        if "content-length" not in {key.lower() for key, _ in headers}:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def ask(self, method, path, body=None, headers=None):
        behind = http.client.HTTPConnection(BEHIND)
        behind.request(method, path, body, headers or {})
        reply = behind.getresponse()
        return reply.status, reply.read(), reply.headers

    def store(self, bucket, name, body):
        query = {"uploadType": "media", "name": name}
        if "x-goog-if-generation-match" in self.headers:
            query["ifGenerationMatch"] = self.headers["x-goog-if-generation-match"]
        with LOCK:  # the memory backend checks and writes in two steps
            status, reply, _ = self.ask("POST", f"/upload/storage/v1/b/{bucket}/o?{u.urlencode(query)}", body)
        if status != 200:
            return self.answer(status, reply)
        made = json.loads(reply)
        return made

    def route(self):
        split = u.urlsplit(self.path)
        query = dict(u.parse_qsl(split.query, keep_blank_values=True))
        parts = split.path.lstrip("/").split("/", 1)
        bucket, name = u.unquote(parts[0]), u.unquote(parts[1]) if len(parts) > 1 else ""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        at = f"/storage/v1/b/{bucket}/o/{u.quote(name, safe='')}"
        if parts[0] == "storage":
            status, reply, headers = self.ask(self.command, self.path, body, {"Content-Type": "application/json"})
            return self.answer(status, reply)
        if self.command == "GET" and not name:
            return self.list(bucket, query)
        if self.command == "POST" and "uploads" in query:
            upload = str(next(NUMBERS))
            UPLOADS[upload] = {}
            return self.answer(200, f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(name)}</Key><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode())
        if self.command == "PUT" and "partNumber" in query:
            UPLOADS[query["uploadId"]][int(query["partNumber"])] = body
            return self.answer(200, headers=[("ETag", f'"{query["partNumber"]}"')])
        if self.command == "POST" and "uploadId" in query:
            parts = UPLOADS.pop(query["uploadId"])
            made = self.store(bucket, name, b"".join(parts[n] for n in sorted(parts)))
            return made and self.answer(200, f'<CompleteMultipartUploadResult><ETag>"{made["etag"]}"</ETag></CompleteMultipartUploadResult>'.encode(), [("x-goog-generation", made["generation"]), ("ETag", made["etag"])])
        if self.command == "DELETE" and "uploadId" in query:
            UPLOADS.pop(query["uploadId"], None)
            return self.answer(204)
        if self.command == "PUT":
            made = self.store(bucket, name, body)
            return made and self.answer(200, headers=[("ETag", made["etag"]), ("x-goog-generation", made["generation"])])
        if self.command == "DELETE":
            status, reply, _ = self.ask("DELETE", at)
            return self.answer(204 if status == 200 else status)
        if self.command in ("GET", "HEAD"):
            status, reply, _ = self.ask("GET", at)
            if status != 200:
                return self.answer(status, reply)
            meta = json.loads(reply)
            asked = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
            headers = [("ETag", meta["etag"]), ("x-goog-generation", meta["generation"]), ("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")]
            if self.command == "HEAD":
                return self.answer(200, headers=[*headers, ("Content-Length", meta["size"])])
            status, reply, got = self.ask("GET", at + "?alt=media", headers=asked)
            if "Content-Range" in got:
                headers.append(("Content-Range", got["Content-Range"]))
            return self.answer(status, reply, headers)
        return self.answer(405)

    def list(self, bucket, query):
        status, reply, _ = self.ask("GET", f"/storage/v1/b/{bucket}/o?{u.urlencode({'prefix': query.get('prefix', '')})}")
        if status != 200:
            return self.answer(status, reply)
        rows = "".join(
            f"<Contents><Key>{escape(o['name'])}</Key><Size>{o['size']}</Size><LastModified>{o['updated']}</LastModified><ETag>{o['etag']}</ETag></Contents>"
            for o in json.loads(reply).get("items", [])
        )
        return self.answer(200, f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>".encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = route


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


Server(("127.0.0.1", PORT), Front).serve_forever()
