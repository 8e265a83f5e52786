"""Starts an mstar server of this build for the demo and the checks, and stops it again."""

import os
import pathlib
import re
import selectors
import signal
import subprocess
import time
import urllib.error
import urllib.request


class LocalServer:
    """`with LocalServer(program, model) as url:`; a port is chosen by the system. Raises RuntimeError with what the
    program said when it does not come up."""

    def __init__(self, program, model=None, flags=(), patience=120):
        self.command = [str(program), "serve", *([str(model)] if model else []), "--port", "0", *flags]
        self.patience = patience
        self.said = b""

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            return self._wait()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()

    def _wait(self):
        end = time.monotonic() + self.patience
        os.set_blocking(self.process.stderr.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stderr, selectors.EVENT_READ)
            while time.monotonic() < end:
                selector.select(0.2)
                self.said += self.process.stderr.read() or b""
                found = re.search(rb"serving .* on (http://\S+)", self.said)
                if found and self._is_ready(found.group(1).decode()):
                    return found.group(1).decode()
                if self.process.poll() is not None:
                    break
        raise RuntimeError(f"{' '.join(self.command)} did not come up:\n{self.said.decode(errors='replace')}")

    def _is_ready(self, url):
        try:
            with urllib.request.urlopen(url + "/ready", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def stop(self):
        """SIGTERM, then what is left of its patience; a server that does not end is killed."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stderr.close()


def repository():
    return pathlib.Path(__file__).resolve().parents[2]
