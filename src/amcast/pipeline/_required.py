"""Says what is missing where amcast is installed without Spark."""

from .._extras import require

require("spark", "amcast.pipeline")
