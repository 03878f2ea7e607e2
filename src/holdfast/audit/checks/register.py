"""The decorator that turns a function into a check."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.audit.context import Context
from holdfast.audit.findings import Check, Tally

Run = Callable[[Context, Tally], None]


class Register(list[Check]):
    """The checks of one module. A check's name is its function's name, its promise the docstring."""

    def __call__(
        self,
        *,
        cost: str,
        fix: str,
        look_at: str = "step",
        excused_by: tuple[str, ...] = (),
        quick: bool = False,
        root: int = 0,
    ) -> Callable[[Run], Run]:
        def add(run: Run) -> Run:
            promise = (run.__doc__ or "").strip()
            self.append(Check(run.__name__, promise, cost, fix, look_at, run, excused_by, quick, root))
            return run

        return add
