"""Profiles of the property tests: `ci` for every run, `deep` for `make deep`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

COMMON = settings(
    deadline=None,  # the first example of a law compiles, the others do not
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.register_profile("ci", COMMON, max_examples=25, derandomize=True)
settings.register_profile("dev", COMMON, max_examples=25)
settings.register_profile("deep", COMMON, max_examples=2000)
settings.load_profile(os.environ.get("FXAD_PROFILE", "ci" if os.environ.get("CI") else "dev"))
