"""What one run says of pools of other sizes, as a server would."""

from __future__ import annotations

from collections.abc import Sequence

from minisgl.core import CAPACITY_FACTORS
from minisgl.kvcache.capacity_curve import AT_ONE, CapacityCurve, default_stride
from minisgl.simulate.counts import HitCounts
from minisgl.simulate.workload import Workload


def make_curve(workload: Workload, num_pages: int) -> CapacityCurve:
    """Of units. It looks at as many of the pages as in a server, where the tokens of a page are known."""
    return CapacityCurve(num_pages, workload.units_per_page, stride=default_stride(workload.page_size))


def estimates(hits: Sequence[float], workload: Workload, counts: HitCounts) -> list[dict[str, float]]:
    """The hit rates of pools of other sizes, in tokens. hits: the curve's, in units; none: nobody counted them."""
    if not hits:
        return []
    tokens = [counts.hit_tokens + (each - hits[AT_ONE]) * workload.unit for each in hits]
    rates = [min(1.0, max(0.0, each / max(1, counts.prompt_tokens))) for each in tokens]
    return [{"factor": factor, "hit_rate": rate} for factor, rate in zip(CAPACITY_FACTORS, rates, strict=True)]
