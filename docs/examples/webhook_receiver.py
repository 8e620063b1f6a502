import base64
import hashlib
import hmac
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

SECRET = "whsec_bm90LWEtc2VjcmV0"
PORT = 8080


def is_ours(headers, body):
    if abs(time.time() - int(headers["webhook-timestamp"])) > 300:
        return False  # too old: it may be a replay
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, signature) for signature in headers["webhook-signature"].split(" "))


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        ours = is_ours(self.headers, body)
        self.send_response(204 if ours else 401)
        self.end_headers()
        if ours:
            print(body.decode(), flush=True)


HTTPServer(("127.0.0.1", PORT), Receiver).serve_forever()
