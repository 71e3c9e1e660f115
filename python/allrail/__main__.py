"""`python -m allrail` is `allrail`."""

from allrail.cli.main import main

main()
