"""`python -m coordinator` is acccocoa-coordinator."""

from coordinator.cli import main

main()
