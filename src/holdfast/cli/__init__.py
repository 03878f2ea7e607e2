"""The command line: parse, call one function, print."""

from holdfast.cli.app import main
