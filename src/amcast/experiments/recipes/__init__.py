"""One file a recipe; `ALL` has them in the order of the report."""

from ..recipe import Recipe
from . import (
    byzcast_latency,
    byzcast_mixed,
    byzcast_scale,
    byzcast_trees,
    delays,
    fastcast_lan_latency,
    fastcast_lan_load,
    fastcast_local,
    fastcast_wan_latency,
    fastcast_wan_load,
    oam_groups,
    oam_lan,
    oam_reconfigure,
    oam_wan,
    oam_window,
    oto_benefit,
    oto_order,
    oto_window,
)

ALL: tuple[Recipe, ...] = (
    delays.RECIPE,
    oam_lan.RECIPE,
    oam_groups.RECIPE,
    oam_window.RECIPE,
    oam_wan.RECIPE,
    oam_reconfigure.RECIPE,
    fastcast_local.RECIPE,
    fastcast_lan_latency.RECIPE,
    fastcast_lan_load.RECIPE,
    fastcast_wan_latency.RECIPE,
    fastcast_wan_load.RECIPE,
    byzcast_trees.RECIPE,
    byzcast_scale.RECIPE,
    byzcast_latency.RECIPE,
    byzcast_mixed.RECIPE,
    oto_order.RECIPE,
    oto_window.RECIPE,
    oto_benefit.RECIPE,
)
