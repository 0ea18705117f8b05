#!/usr/bin/env python3
"""haunt.py HOST:PORT HASH ID - what a hash in Redis has with this id in it is always there again.

Finds the field whose value has the id in it, prints its length when it begins, and puts field and value
back until it is killed. There are always commands of ours that Redis has not read yet: whoever deletes
the field, is told so, and comes back, is behind one of them."""
import socket
import sys

AT_ONCE, AHEAD = 1000, 4
ANSWER = len(":0\r\n")


def words(*parts):
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def bulk(stream):
    return stream.read(int(stream.readline()[1:]) + 2)[:-2]


def main():
    address, name, ghost = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
    host, port = address.rsplit(":", 1)
    redis = socket.create_connection((host, int(port)))
    stream = redis.makefile("rb")
    redis.sendall(words(b"HGETALL", name))
    both = [bulk(stream) for _ in range(int(stream.readline()[1:]))]
    field, value = next(pair for pair in zip(both[::2], both[1::2]) if ghost in pair[1])
    print(len(value), flush=True)
    again = words(b"HSETNX", name, field, value) * AT_ONCE
    for _ in range(AHEAD):
        redis.sendall(again)
    while True:
        stream.read(AT_ONCE * ANSWER)
        redis.sendall(again)


main()
