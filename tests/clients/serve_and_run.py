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

from tiny_server import byte_tokenizer, tiny_server

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
    tests = pathlib.Path(__file__).resolve().parent
    with tiny_server(program) as url:
        status = subprocess.run([python, tests / "run_clients.py", url, *rest]).returncode
    if has_package(python, "openai") and not rest:
        with tiny_server(program, tokenizer_json=byte_tokenizer()) as url:
            status = subprocess.run([python, tests / "run_json_clients.py", url]).returncode or status
    return status


if __name__ == "__main__":
    sys.exit(main())
