"""All targets, registered by importing this."""

from __future__ import annotations

import fuzz.targets_data
import fuzz.targets_models
import fuzz.targets_plots
import fuzz.targets_pools
import fuzz.targets_predictive
import fuzz.targets_scores  # noqa: F401
