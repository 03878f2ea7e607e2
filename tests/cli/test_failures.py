"""What a command prints on standard error: log messages as plain lines, while it runs and not afterwards."""

import logging
import subprocess
import sys
import warnings

from holdfast.cli.failures import log_to_stderr

logger = logging.getLogger("holdfast.somewhere")


def test_messages_are_plain_lines_on_stderr(capsys):
    with log_to_stderr():
        logger.debug("hidden")
        logger.info("resuming after %d steps", 3)
        logger.warning("a warning\nof two lines")
    logger.info("after the command")
    assert capsys.readouterr() == ("", "resuming after 3 steps\na warning\nof two lines\n")


def test_a_user_who_set_up_logging_sees_each_message_once(capsys):
    with log_to_stderr():
        handler = logging.StreamHandler(sys.stderr)
        logging.getLogger().addHandler(handler)
        try:
            logger.warning("once")
        finally:
            logging.getLogger().removeHandler(handler)
    assert capsys.readouterr().err == "once\n"


def test_a_broken_stderr_does_not_end_the_program():
    code = (
        "import logging; from holdfast.cli.failures import log_to_stderr\n"
        "with log_to_stderr():\n    logging.getLogger('holdfast').warning('unheard')\n"
        "print('done')"
    )
    for redirect in ("2>&-", "2>/dev/full"):
        shell = f'{sys.executable} -c "$0" {redirect}'
        done = subprocess.run(["bash", "-c", shell, code], capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.returncode) == ("done\n", 0)


def test_in_library_use_warnings_are_visible_and_the_rest_is_silent():
    code = (
        "import logging, holdfast.runs\n"
        "logging.getLogger('holdfast.x').info('quiet'); logging.getLogger('holdfast.x').warning('visible')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "visible\n"


def test_ctrl_c_while_a_command_is_imported_is_one_line():
    code = (
        "import sys\n"
        "class Stop:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stop())\n"
        "from holdfast.cli import main\n"
        "main(['--version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_codes_in_names_do_not_reach_the_terminal(capsys):
    with log_to_stderr():
        logger.warning("%s: damaged", "\x1b[2J\u202ea")
        of_a_library = warnings.formatwarning("old\x1b]0;pwned\x07", UserWarning, "theirs.py", 1, "call()")
    err = capsys.readouterr().err
    assert "a: damaged" in err
    assert "UserWarning: old" in of_a_library
    assert all(line.isprintable() for line in (err + of_a_library).split("\n"))
