"""Run the command `sim` as `python -m sim`."""

from sim.interface.cli.main import main

if __name__ == "__main__":
    main(prog_name="sim")
