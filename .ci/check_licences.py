#!/usr/bin/env python3
"""The licences and the sources of all dependencies, by `deny.toml`.

Each `Cargo.lock` is read by `cargo metadata --locked`. A package of another licence, of another source than crates.io, or without a
licence fails the check. Crates that are there in several versions are listed. Advisories are not looked for: their database is a
repository on GitHub, which `cargo deny check advisories` fetches.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict

HERE = pathlib.Path(__file__).resolve().parent.parent
WORKSPACES = ["Cargo.toml", "crates/mercer-python/Cargo.toml"]
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"


def allows(expression, allowed):
    """Whether a licence expression (AND before OR, parentheses, an old `/` for OR) can be met by allowed licences."""
    words = re.findall(r"[()]|[^\s()]+(?:\s+WITH\s+[^\s()]+)?", expression.replace("/", " OR "))

    def either():
        found = both()
        while words and words[0] == "OR":
            words.pop(0)
            found = both() or found
        return found

    def both():
        found = one()
        while words and words[0] == "AND":
            words.pop(0)
            found = one() and found
        return found

    def one():
        word = words.pop(0)
        if word != "(":
            return word in allowed
        found = either()
        words.pop(0)
        return found

    return either()


def check(manifest, allowed):
    """What is wrong with the packages of a workspace; says how many there are."""
    command = ["cargo", "metadata", "--locked", "--all-features", "--format-version", "1", "--manifest-path", str(HERE / manifest)]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    foreign = [package for package in packages if package["source"]]
    wrong, versions = [], defaultdict(list)
    for package in foreign:
        name = f"{package['name']} {package['version']}"
        versions[package["name"]].append(package["version"])
        if package["source"] != CRATES_IO:
            wrong.append(f"{name} comes from {package['source']}, not from crates.io")
        if not allows(package["license"] or "none", allowed):
            wrong.append(f"{name} has the licence {package['license'] or 'that a file of it states'}, which deny.toml does not allow")
    several = [f"{name} {', '.join(found)}" for name, found in sorted(versions.items()) if len(found) > 1]
    print(f"{manifest}: {len(foreign)} packages; in several versions: {'; '.join(several) or 'none'}")
    return wrong


def main():
    allowed = set(tomllib.loads((HERE / "deny.toml").read_text())["licenses"]["allow"])
    wrong = sorted({sentence for manifest in WORKSPACES for sentence in check(manifest, allowed)})
    print("advisories were not looked for: run `cargo deny check advisories` where GitHub can be reached")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
