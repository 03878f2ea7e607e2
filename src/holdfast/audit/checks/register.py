"""How a check is written down: a function, and what there is to say about it."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.audit.examination import Examination
from holdfast.audit.findings import Check, Tally


class Register(list[Check]):
    """The checks of one file, in order."""

    def __call__(
        self,
        *,
        cost: str,
        mend: str,
        look_at: str = "step",
        excused_by: tuple[str, ...] = (),
        quick: bool = False,
        root: int = 0,
    ) -> Callable[[Callable[[Examination, Tally], None]], Callable[[Examination, Tally], None]]:
        def add(run: Callable[[Examination, Tally], None]) -> Callable[[Examination, Tally], None]:
            promise = (run.__doc__ or "").strip()
            self.append(Check(run.__name__, promise, cost, mend, look_at, run, excused_by, quick, root))
            return run

        return add
