"""`python -m sim` is the command `sim`."""

from sim.interface.cli.main import main

if __name__ == "__main__":
    main(prog_name="sim")
