"""Has a program run by `program_server`, and ends as it does.

``python -IS program_client.py SOCKET ARGUMENT ...`` stands for ``python ARGUMENT ...``. It imports
nothing but a few small modules, so that it starts at once.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(address: str, arguments: list[str]) -> int:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(address)

    def pass_on(number: int, frame: object) -> None:
        server.send(bytes([number]))

    ignored = [number for number in _PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    for number in set(_PASSED_ON) - set(ignored):
        signal.signal(number, pass_on)
    request = {
        "arguments": arguments,
        "folder": os.getcwd(),  # noqa: PTH109  # pathlib takes longer to import than the rest
        "environment": dict(os.environ),
        "ignored": ignored,
    }
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    answer = server.recv(16)
    if not answer:
        print("the server of programs is gone", file=sys.stderr)
        return 1
    code = int(answer)
    if code < 0:  # a signal ended it
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
