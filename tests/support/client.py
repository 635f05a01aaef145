"""Client of ``programs``: client.py ADDRESS PROGRAM [ARGUMENTS...] runs a fork of the server with the streams of this process."""

import json
import os
import socket
import sys

address, *command = sys.argv[1:]
if command[0] == "python" and not (command[1:2] == ["-m"] or command[1:2] and command[1].endswith(".py")):
    os.execv(sys.executable, [sys.executable, *command[1:]])  # few lines, which import neither torch nor fairseq
with socket.socket(socket.AF_UNIX) as server:
    server.connect(address)
    socket.send_fds(server, [b"0"], [0, 1, 2])
    server.sendall(json.dumps([command, os.getcwd(), dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    status = server.recv(16)
sys.exit(int(status or 1))
