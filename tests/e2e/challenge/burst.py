#!/usr/bin/env python3
"""burst.py [-H FIELD]... [--hang-up] N METHOD PATH BODY HOST:PORT... - N requests at once.

All connections are open before the first request is sent, and all requests are sent before the first
answer is read: they are really there at the same time. Request number i goes to address i modulo the
number of addresses; in FIELD, PATH and BODY "{i}" stands for i, "{d}" for its last digit. Prints a line per request, in their order: status,
milliseconds, body, with tabs between; status 000: there was no answer within a minute.
--hang-up: nobody waits for an answer; the connections are closed as soon as everything is sent."""
import argparse
import selectors
import socket
import sys
import time

LIMIT_S = 60


def filled(text, i):
    return text.replace("{i}", str(i)).replace("{d}", str(i % 10))


def request(args, i, address):
    body = filled(args.body, i).encode()
    fields = "".join(f"{filled(field, i)}\r\n" for field in args.fields)
    if body:
        fields += "Content-Type: application/json\r\n"
    head = (f"{args.method} {filled(args.path, i)} HTTP/1.1\r\nHost: {address}\r\n"
            f"{fields}Content-Length: {len(body)}\r\n\r\n")
    return head.encode() + body


def answer(raw):
    """Status and body, or None if it is not all there."""
    head, found, body = raw.partition(b"\r\n\r\n")
    if not found:
        return None
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return (head.split(b" ", 2)[1].decode(), body[:length].decode()) if len(body) >= length else None


def connect(address):
    host, port = address.rsplit(":", 1)
    one = socket.create_connection((host, int(port)), timeout=LIMIT_S)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def collect(sockets, began):
    answers = [("000", 0, "")] * len(sockets)
    raw = [b""] * len(sockets)
    waiting = selectors.DefaultSelector()
    for i, one in enumerate(sockets):
        one.setblocking(False)
        waiting.register(one, selectors.EVENT_READ, i)
    end = time.monotonic() + LIMIT_S
    while waiting.get_map() and time.monotonic() < end:
        for key, _ in waiting.select(end - time.monotonic()):
            try:
                piece = key.fileobj.recv(65536)
            except OSError:
                piece = b""
            raw[key.data] += piece
            whole = answer(raw[key.data])
            if whole or not piece:
                waiting.unregister(key.fileobj)
            if whole:
                answers[key.data] = (whole[0], round((time.monotonic() - began) * 1000), whole[1])
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-H", dest="fields", action="append", default=[])
    parser.add_argument("--hang-up", action="store_true")
    parser.add_argument("count", type=int)
    parser.add_argument("method")
    parser.add_argument("path")
    parser.add_argument("body")
    parser.add_argument("addresses", nargs="+")
    args = parser.parse_args()
    addresses = [args.addresses[i % len(args.addresses)] for i in range(args.count)]
    sockets = [connect(address) for address in addresses]
    requests = [request(args, i, address) for i, address in enumerate(addresses)]
    began = time.monotonic()
    for one, content in zip(sockets, requests):
        one.sendall(content)
    if args.hang_up:
        for one in sockets:
            one.close()
        return
    for code, ms, body in collect(sockets, began):
        print(code, ms, body.replace("\t", " ").replace("\n", " "), sep="\t")


main()
