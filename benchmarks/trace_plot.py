"""The hit rates of bench_traces.py as a picture: a panel a trace, a line a policy, over the size of the pool."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt
from trace_tables import Records, by_pool

STRONG = {"lru": "black", "optimum": "tab:green", "look-ahead 64": "tab:orange", "look-ahead 256": "tab:red"}


def plot_hits(records: Records, path: Path) -> None:
    """Write the picture to `path`."""
    mpl.use("Agg")
    pools = by_pool(records)
    traces = list(dict.fromkeys(trace for trace, _ in pools))
    figure, axes = plt.subplots(1, len(traces), figsize=(4.2 * len(traces), 3.8), squeeze=False)
    for axis, trace in zip(axes[0], traces, strict=True):
        divisors = [divisor for name, divisor in pools if name == trace]
        for policy in pools[trace, divisors[0]]:
            rates = [100 * pools[trace, divisor][policy] for divisor in divisors]
            style = {"color": STRONG[policy], "linewidth": 2} if policy in STRONG else {"linewidth": 1, "alpha": 0.5}
            axis.plot(range(len(divisors)), rates, marker=".", label=policy, **style)
        axis.set_xticks(range(len(divisors)), [f"1/{divisor}" for divisor in divisors])
        axis.set_title(trace)
        axis.set_xlabel("pool, share of the different pages")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("token hit rate, %")
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
