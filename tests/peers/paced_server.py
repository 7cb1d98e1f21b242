#!/usr/bin/env python3
"""An OpenAI-compatible server that streams tokens at known times, to judge load generators by.

    tests/peers/paced_server.py [--port N] [--first MS] [--gap MS] [--log FILE]

Each answer has as many tokens as were asked for: the first `--first` ms after the request was read, the others `--gap`
ms apart, by absolute deadlines, so that a late one delays no other. What a busy machine adds is known too: `--log` gets
a line of JSON for each answer with the times at which its tokens were really sent, in nanoseconds since the request was
read, and the end of the stream. It prints its address.
"""
import argparse
import json
import socket
import threading
import time


def answer(connection, path, asked, log):
    """Streams one answer, or says what there is. Deadlines count from now."""
    arrived = time.perf_counter_ns()
    chat = "chat" in path
    tokens = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16)

    def event(body):
        text = body if isinstance(body, str) else json.dumps({"id": "1", "model": "paced", "created": 0, **body})
        data = f"data: {text}\n\n".encode()
        return b"%x\r\n%s\r\n" % (len(data), data)

    def token(text, finish=None):
        kind = "chat.completion.chunk" if chat else "text_completion"
        what = {"delta": {"content": text} if text else {}} if chat else {"text": text}
        return event({"object": kind, "choices": [{"index": 0, "finish_reason": finish, **what}]})

    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    sent = []
    for n in range(tokens):
        piece = token(f" {n % 10}")
        due = arrived + int((first + n * gap) * 1e6)
        while (left := due - time.perf_counter_ns()) > 0:
            time.sleep(left / 1e9)
        sent.append(time.perf_counter_ns() - arrived)
        connection.sendall(piece)
    prompt = asked.get("prompt") or " ".join(str(m.get("content")) for m in asked.get("messages", []))
    words = len(str(prompt).split())
    usage = {"prompt_tokens": words, "completion_tokens": tokens, "total_tokens": words + tokens}
    tail = token("", "length") + event({"choices": [], "usage": usage}) + event("[DONE]")
    connection.sendall(tail + b"0\r\n\r\n")
    line = {"tokens": tokens, "sent_ns": sent, "end_ns": time.perf_counter_ns() - arrived}
    if log:
        with lock:
            print(json.dumps(line), file=log, flush=True)


def serve(connection, log):
    """Requests of one connection, until the client closes it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, connection.makefile("rb") as reader:
        while line := reader.readline():
            method, path, _ = line.decode().split()
            headers = {}
            while (line := reader.readline().decode().strip()):
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            body = reader.read(int(headers.get("content-length", 0)))
            if method == "POST" and path.split("?")[0].endswith("/completions"):
                answer(connection, path, json.loads(body), log)
                continue
            found = path.endswith("/models")
            models = {"object": "list", "data": [{"id": "paced", "object": "model"}]}
            text = json.dumps(models if found else {}).encode()
            status = b"200 OK" if found else b"404 Not Found"
            head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            connection.sendall(head % (status, len(text)) + text)


def one(connection, log):
    try:
        serve(connection, log)
    except (ConnectionError, TimeoutError):
        # A client that went away is no matter of the server's.
        pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--first", type=float, default=500, help="milliseconds to the first token")
    parser.add_argument("--gap", type=float, default=25, help="milliseconds between tokens")
    parser.add_argument("--log", help="file for the times at which tokens were sent")
    options = parser.parse_args()
    first, gap = options.first, options.gap
    lock = threading.Lock()
    log = open(options.log, "a", encoding="utf-8") if options.log else None
    listener = socket.create_server(("127.0.0.1", options.port), backlog=128)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    while True:
        threading.Thread(target=one, args=(listener.accept()[0], log), daemon=True).start()
