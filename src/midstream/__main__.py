"""`python -m midstream` is the command line."""

from midstream.interface.cli import main

if __name__ == "__main__":
    main()
