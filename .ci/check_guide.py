#!/usr/bin/env python3
"""Runs the commands of the guide and of the README. `.ci/check_guide.py PROGRAM` reads every block marked `console`: lines that
begin with `$ ` are run, one after the other, in a folder for each file that holds the tables of `examples/data`; the lines below a command must be lines of its output, in order, where `…`
stands for any text."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```", re.S | re.M)


def steps(text):
    """(command, expected lines) of all blocks."""
    for block in BLOCK.findall(text):
        command, expected = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, expected
                command, expected = line[2:], []
            elif command and command.endswith("\\"):
                command = command[:-1] + line
            elif line.strip() and line.strip() != "…":
                expected.append(line)
        if command:
            yield command, expected


def missing(expected, output):
    """The first expected line that the output does not have, in order."""
    lines = iter(output.splitlines())
    for want in expected:
        pattern = re.compile(".*".join(map(re.escape, want.rstrip().split("…"))))
        if not any(pattern.fullmatch(line.rstrip()) for line in lines):
            return want
    return None


def check(path, environment):
    """Runs the commands of one file; how many there were."""
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for table in (HERE / "examples/data").glob("*.csv"):
            shutil.copy(table, folder)
        for command, expected in steps(path.read_text()):
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            if done.returncode:
                sys.exit(f"{path.name}: exit code {done.returncode}\n$ {command}\n{done.stdout}")
            wrong = missing(expected, done.stdout)
            if wrong is not None:
                sys.exit(f"{path.name}: the output has no line\n  {wrong}\n$ {command}\n{done.stdout}")
            count += 1
    return count


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    files = [HERE / "README.md", *sorted((HERE / "docs/src").glob("*.md"))]
    total = sum(check(path, environment) for path in files)
    if total < 10:
        sys.exit(f"only {total} commands were found: the blocks are not marked `console`")
    print(f"{total} commands of the guide ran")


if __name__ == "__main__":
    main()
