# SPDX-License-Identifier: Apache-2.0
"""A program of another user that passes on what it gets, as a gateway on the server's host does.

    with passed_on(cluster.http) as address: what connects there comes to the cluster from user `nobody`

As a program: prints the port it listens at. Usage: other_user.py HOST PORT
"""
import contextlib
import os
import pwd
import socket
import subprocess
import sys
import threading

NOBODY = pwd.getpwnam("nobody").pw_uid


@contextlib.contextmanager
def passed_on(address):
    """Needs root. @return where to connect to"""
    with open(os.path.abspath(__file__), encoding="utf-8") as f:
        program = f.read()  # the user may not read this folder
    command = ["python3", "-c", program, address[0], str(address[1])]
    with subprocess.Popen(command, user=NOBODY, cwd="/", stdout=subprocess.PIPE, text=True) as process:
        try:
            yield "127.0.0.1", int(process.stdout.readline())
        finally:
            process.kill()


def copy(source, to):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)


def main():
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            client, _ = server.accept()
            there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
            for pair in ((client, there), (there, client)):
                threading.Thread(target=copy, args=pair, daemon=True).start()


if __name__ == "__main__" and len(sys.argv) == 3:
    main()
