"""Settings that must be there before scipy is imported."""

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")
