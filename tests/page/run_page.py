#!/usr/bin/env python3
"""Serves a tiny recorded checkpoint and runs the page's script against it, without a browser.

    run_page.py MSTAR_PROGRAM

Ends with 77, which ctest shows as skipped, where there is no node (20 or later).
"""
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
from tiny_server import tiny_server  # noqa: E402

SKIPPED = 77


def main():
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout if node else "v0"
    if int(version.strip().removeprefix("v").split(".")[0]) < 20:
        print("SKIPPED: no node 20 or later")
        return SKIPPED
    with tiny_server(sys.argv[1]) as url:
        return subprocess.run([node, HERE / "page_test.mjs", url]).returncode


if __name__ == "__main__":
    sys.exit(main())
