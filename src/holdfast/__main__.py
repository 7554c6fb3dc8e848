"""`python -m holdfast` is the command line."""

from holdfast.cli import main

raise SystemExit(main())
