"""`make audit-unusual`: audit every correct policy of an unusual kind with several seeds. Prints the false alarms.

The tests audit each with one seed.
"""

import argparse

from holdfast.audit import audit
from support import unusual_policies as with_table
from support.unusual_heads import UNUSUAL_WITHOUT_TABLE

KINDS = [
    with_table.HasFewReluUnits,
    with_table.RemembersTheLargest,
    with_table.ObservesCodes,
    with_table.PutsOutProbabilities,
    with_table.RemembersAWindow,
    with_table.MasksWithInfinity,
    with_table.DrawsFromItsOwnGenerator,
    with_table.ActsWithoutGradients,
    with_table.TakesOnlyBooleans,
    with_table.LearnsItsStart,
    with_table.CountsSteps,
    with_table.CountsInABuffer,
    with_table.RemembersTheLargestOfAll,
    with_table.DrawsRealNumbers,
    with_table.DrawsByRejection,
    with_table.Squashes,
    with_table.RemembersWhatItDid,
    with_table.ChoosesHard,
    with_table.WaitsForACue,
    with_table.HandsBackNoState,
    *UNUSUAL_WITHOUT_TABLE,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    alarms = 0
    for kind in KINDS:
        reports = [audit(kind(seed), seed=seed) for seed in seeds]
        found = [(seed, f.check.name, f.evidence) for seed in seeds for f in reports[seed].failures]
        alarms += len(found)
        print(f"{kind.__name__}: {len(seeds)} audits, {sum(report.sound for report in reports)} sound", flush=True)
        for seed, check, evidence in found:
            print(f"  FALSE ALARM seed {seed}: {check}: {evidence}")
    print(f"{len(KINDS)} kinds, {len(KINDS) * len(seeds)} audits, {alarms} false alarms")
    raise SystemExit(bool(alarms))


if __name__ == "__main__":
    main()
