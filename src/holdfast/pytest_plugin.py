"""`pytest --holdfast-audit FILE.py`: audits as tests. pytest loads this file whenever it runs, so it imports little."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError, split_code_name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("holdfast", "audits of recurrent policies").addoption(
        "--holdfast-audit",
        action="append",
        metavar="FILE.py[:NAME]",
        help="Audit the policies in this file, or only NAME, as tests. Settings follow in the same word: "
        "'mine.py env=gym:CartPole-v1'. May be repeated. See docs/audit.md.",
    )


@pytest.hookimpl(tryfirst=True)  # before -k and -m select tests
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    for wanted in config.getoption("--holdfast-audit") or []:
        target, *words = shlex.split(wanted) or [""]
        file, name = split_code_name(target)
        if not file.endswith(".py"):
            raise pytest.UsageError(f"--holdfast-audit {wanted}: give FILE.py or FILE.py:NAME, then settings.")
        path = config.invocation_params.dir / Path(file).expanduser()
        items += session.genitems(AuditFile.from_parent(session, path=path, wanted=name, words=words))


class AuditFile(pytest.File):
    """A file with policies to audit."""

    def __init__(self, *, wanted: str, words: list[str], **kwargs: Any):
        super().__init__(**kwargs)
        self.wanted, self.words = wanted, words

    def collect(self) -> Iterator[AuditItem]:
        from holdfast.audit.target import policies_in

        try:
            lines = policies_in(str(self.path))
        except HoldfastError as error:
            raise self.CollectError(str(error)) from None
        if not (self.wanted or lines):
            raise self.CollectError(
                f"{self.path}: no policy found: no subclass of Policy or Subject, and no function whose name starts with "
                "subject. To audit another function, give FILE.py:NAME."
            )
        for name in [self.wanted] if self.wanted else lines:
            yield AuditItem.from_parent(self, name=name, line=lines.get(name, 1))


class AuditItem(pytest.Item):
    """The audit of one policy."""

    parent: AuditFile

    def __init__(self, *, line: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.line = line

    def runtest(self) -> None:
        from holdfast.audit import assert_sound

        assert_sound(f"{self.path}:{self.name}", *self.parent.words)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the findings without a traceback, which would show only code of the auditor."""
        if isinstance(excinfo.value, AssertionError | HoldfastError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line - 1, f"holdfast audit {self.name}"
