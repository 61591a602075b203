"""`python -m worker` is acccocoa-worker."""

from worker.cli import main

main()
