"""`python -m sim` is the command `sim`."""

from sim.cli.main import main

if __name__ == "__main__":
    main(prog_name="sim")
