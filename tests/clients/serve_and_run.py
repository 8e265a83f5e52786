#!/usr/bin/env python3
"""Serves a tiny recorded checkpoint and lets the public Python clients talk to it.

    serve_and_run.py MSTAR_PROGRAM [ARGUMENTS OF run_clients.py]

Ends with 77, which ctest shows as skipped, when none of the clients' packages is installed. Another
Python than the one that runs this is taken from MSTAR_TEST_PYTHON.
"""
import os
import pathlib
import subprocess
import sys

from tiny_server import tiny_server

SKIPPED = 77


def has_package(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode == 0


def main():
    python = os.environ.get("MSTAR_TEST_PYTHON", sys.executable)
    if not any(has_package(python, module) for module in ("openai", "mstar.client")):
        print(f"SKIPPED: {python} has neither openai nor mstar-ai; pip install openai, "
              "or name another Python in MSTAR_TEST_PYTHON")
        return SKIPPED
    program, *rest = sys.argv[1:]
    with tiny_server(program) as url:
        tests = pathlib.Path(__file__).resolve().parent / "run_clients.py"
        return subprocess.run([python, tests, url, *rest]).returncode


if __name__ == "__main__":
    sys.exit(main())
