"""Property tests are judged by what they find, not by how busy the machine is, and find the same in every run:
a commit that is good today is good tomorrow. `--hypothesis-profile=default` looks further."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("ottla", deadline=None, derandomize=True)
settings.load_profile("ottla")
