"""`python -m holdfast` runs the `holdfast` command."""

from holdfast.cli import main

main()
