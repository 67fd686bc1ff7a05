"""`python -m onejob`: the same as the `onejob` command."""

from onejob.cli.main import main

main()
