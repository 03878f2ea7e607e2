"""`holdfast bench`: speed on this machine, as ratios measured in one run."""

from holdfast.bench.run import PARTS, run_bench

__all__ = ["PARTS", "run_bench"]
