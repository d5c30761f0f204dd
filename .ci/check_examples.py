"""Each public item of the library shows an example, or names the item, module or file that uses it.

Reads the documentation that `cargo doc` wrote: one page for each public item.
"""

import pathlib
import re
import sys

SHOWN = re.compile(r"rust-example-rendered|Example: |<code>examples/\w+\.rs</code>")
ITEM = re.compile(r"(struct|enum|trait|fn|type|constant|macro)\.\w+\.html")

pages = [p for p in pathlib.Path(sys.argv[1]).rglob("*.html") if ITEM.fullmatch(p.name)]
pages = [p for p in pages if 'http-equiv="refresh"' not in p.read_text()]
missing = [str(p) for p in pages if not SHOWN.search(p.read_text())]
print(f"{len(pages)} public items, {len(missing)} without an example", *missing, sep="\n")
sys.exit(1 if missing or not pages else 0)
