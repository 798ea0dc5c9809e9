"""The job: an HTTP server at the ADDRESS:PORT of its argument. It answers with the member and the term that it runs under."""

import http.server
import os
import sys

ANSWER = "{DR_MEMBER} leads {DR_JOB} in term {DR_TERM}\n".format_map(os.environ).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # a connection stays open

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)


address, port = sys.argv[1].rsplit(":", 1)
http.server.ThreadingHTTPServer((address, int(port)), Handler).serve_forever()
