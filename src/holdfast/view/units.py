"""The order in which units of a layer are drawn: those that do the same beside each other."""

from __future__ import annotations

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage

MAX_SAMPLES = 2_000  # steps that are compared


def order_of_units(activity: np.ndarray, most: int) -> np.ndarray:
    """Return the units of `activity` [samples, units] in the order to draw them: at most `most`, those that vary most.

    Units are clustered by the correlation of their activity; which of them has which sign does not matter.
    """
    activity = activity[:: max(1, len(activity) // MAX_SAMPLES)].astype(np.float64)
    spread = activity.std(0)
    kept = np.sort(np.argsort(-spread, kind="stable")[:most])
    moving = kept[spread[kept] > 1e-6]
    still = np.setdiff1d(kept, moving)
    if len(moving) < 3:
        return np.concatenate([moving, still])
    distance = 1 - np.abs(np.corrcoef(activity[:, moving].T))
    pairs = np.clip(distance[np.triu_indices(len(moving), 1)], 0, 2)
    return np.concatenate([moving[leaves_list(linkage(pairs, "average", optimal_ordering=True))], still])
