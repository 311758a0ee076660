"""What goes on in a server beside a client that is tried."""

import contextlib
import json
import socket
import threading
import time
import urllib.request


def idle(port, seconds=10):
    """Wait until no reply is being made: whoever left made room."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/slots") as answer:
            if not any(slot["is_processing"] for slot in json.load(answer)):
                return
        time.sleep(0.01)
    raise AssertionError("replies go on for nobody")


@contextlib.contextmanager
def full(port, seconds):
    """All places of a server are taken, for so long at most: who asks is told to come again."""
    body = json.dumps({"prompt": "x", "max_tokens": 100000, "ignore_eos": True, "stream": True})
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    taken = []
    for _ in range(60):
        one = socket.create_connection(("127.0.0.1", int(port)))
        one.sendall(request)
        taken.append(one)

    def leave():
        for one in taken:
            one.close()

    timer = threading.Timer(seconds, leave)
    timer.start()
    time.sleep(0.1)
    try:
        yield
    finally:
        timer.cancel()
        leave()
