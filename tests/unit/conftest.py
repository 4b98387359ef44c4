"""Property tests are judged by what they find, not by how busy the machine is, and find the same in every run:
a commit that is good today is good tomorrow. `--hypothesis-profile=explore` looks further, as scripts/nightly does."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ottla", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("ottla")
