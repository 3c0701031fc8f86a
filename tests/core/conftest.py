from __future__ import annotations

from hypothesis import HealthCheck, settings

# A machine that is busy with other tests is no reason to fail.
settings.register_profile("amcast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("amcast")
