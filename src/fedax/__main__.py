"""`python -m fedax` is the `fedax` command."""

from fedax.cli import main

if __name__ == "__main__":
    main()
