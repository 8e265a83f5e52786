#!/usr/bin/env python3
"""Talks to `mstar run` on a terminal and through a pipe, with a tiny recorded checkpoint.

    run_conversation.py MSTAR_PROGRAM
"""
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "clients"))
from tiny_server import tiny_checkpoint  # noqa: E402

PATIENCE = 60.0  # seconds; a loaded machine is slow, a broken program silent
LONG = 200_000  # tokens: an answer that does not end before it is interrupted


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *command):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)
        self.text = ""

    def expect(self, pattern):
        """Reads until `pattern` is found, and takes what was read up to its end."""
        limit = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.text, re.DOTALL)):
            assert time.monotonic() < limit, f"no {pattern!r} in {self.text!r}"
            try:
                self.text += os.read(self.descriptor, 4096).decode(errors="replace")
            except OSError as error:  # the program has gone
                raise AssertionError(f"ended without {pattern!r}: {self.text!r}") from error
        before, self.text = self.text[:found.end()], self.text[found.end():]
        return before

    def type(self, text):
        os.write(self.descriptor, text.encode())

    def end(self):
        """The exit code."""
        try:
            while os.read(self.descriptor, 4096):
                pass
        except OSError:
            pass
        os.close(self.descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def check_turns(program, model):
    """Turns remember each other until /clear; the end of input ends the program."""
    talk = Terminal(program, "run", model, "--max-tokens", "8", "--temperature", "0", "--ignore-eos", "true")
    talk.expect("> ")
    answers = []
    for line in ("t1 t2", "t1 t2", "/clear", "t1 t2"):
        talk.type(line + "\r")
        said = talk.expect(r"\n.*?> $" if line == "/clear" else r"\[8 tokens[^\n]*\n> ")
        answers.append(re.findall(r"\bt\d+\b", said.split("\r\n", 1)[1]))
    first, second, _, again = answers
    assert len(first) == 8, answers
    assert first == again, answers
    assert first != second, answers
    talk.type("/nonsense\r")
    talk.expect("/clear +forgets")
    talk.type("/image no-such-file.png\r")
    talk.expect("no-such-file.png")
    talk.type("\x04")
    assert talk.end() == 0


def check_interrupt(program, model):
    """Ctrl-C ends an answer; the conversation goes on. At the prompt it ends the program."""
    talk = Terminal(program, "run", model, "--max-tokens", str(LONG), "--temperature", "0", "--ignore-eos",
                    "true")
    talk.expect("> ")
    talk.type("t1 t2\r")
    talk.expect(r"(t\d+ ){20}")
    talk.type("\x03")
    talk.expect("\n> ")
    talk.type("t3\r")
    talk.expect(r"(t\d+ ){20}")
    talk.type("\x03")
    talk.expect("\n> ")
    talk.type("\x03")
    assert talk.end() == 128 + signal.SIGINT


def check_pipe(program, model):
    """A prompt through a pipe is a prompt."""
    options = ["--max-tokens", "8", "--temperature", "0"]
    by_word = subprocess.run([program, "run", model, "t1 t2", *options], capture_output=True, text=True, check=True)
    by_pipe = subprocess.run([program, "run", model, *options], input="t1 t2\n", capture_output=True, text=True,
                             check=True)
    assert by_word.stdout == by_pipe.stdout != "\n", (by_word, by_pipe)
    refused = subprocess.run([program, "run", model, "t1", "--interactive"], capture_output=True, text=True)
    assert refused.returncode == 2 and "--interactive" in refused.stderr, refused


def main():
    program = sys.argv[1]
    with tiny_checkpoint(max_position_embeddings=2 * LONG) as model:
        for check in (check_turns, check_interrupt, check_pipe):
            check(program, model)
            print(f"{check.__name__}: ok")


if __name__ == "__main__":
    main()
