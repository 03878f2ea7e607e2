"""Messages as they are printed: no codes for the terminal, no endless lines."""

import pytest

from holdfast.errors import MAX_LINE, MAX_LINES, for_terminal, printable


@pytest.mark.parametrize("code", ["\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u2028", "\u2066", "\ud800", "\r", "\t"])
def test_what_controls_a_terminal_is_escaped(code):
    for shown in (for_terminal(f"a{code}b"), printable(f"a{code}b")):
        assert shown.isprintable()
        assert shown[0] == "a"
        assert shown[-1] == "b"


def test_other_languages_and_our_line_ends_stay():
    assert for_terminal("é 日本 🙂\nline two\n") == "é 日本 🙂\nline two"


def test_the_colors_of_other_libraries_are_removed():
    assert for_terminal("\x1b[33mWARN: old\x1b[0m") == "WARN: old"


def test_a_long_line_keeps_both_ends():
    shown = for_terminal("begin" + "x" * 10**7 + "\nend" + "y" * 1000 + "end")
    assert [len(line) <= MAX_LINE for line in shown.split("\n")] == [True, True]
    assert shown.startswith("begin")
    assert shown.endswith("end")


@pytest.mark.parametrize("count", [1, MAX_LINES, MAX_LINES + 1, 1000])
def test_a_long_message_keeps_its_first_and_last_lines(count):
    lines = for_terminal("\n".join(map(str, range(count)))).split("\n")
    assert len(lines) == min(count, MAX_LINES)
    assert (lines[0], lines[-1]) == ("0", str(count - 1))
    left_out = count - sum(line.isdigit() for line in lines)
    assert f"{left_out} more lines" in " ".join(lines) or not left_out
