"""`python -m minisgl`: the same as the `minisgl` script."""

from minisgl.cli import main

if __name__ == "__main__":
    main()
