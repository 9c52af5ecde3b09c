"""The error for a mistake of the user: where the mistake is, what is wrong, what to do."""

from collections.abc import Sequence


class InputError(ValueError):
    """A mistake in what the user wrote.

    The command prints it as one line and exits with code 2.

    >>> str(InputError("scenarios/a.toml, plan", "tp = 3 does not divide 8", "set tp = 4"))
    'scenarios/a.toml, plan: tp = 3 does not divide 8; set tp = 4'
    """

    def __init__(self, where: str, what: str, remedy: str = "") -> None:
        self.where, self.what, self.remedy = where, what, remedy
        super().__init__(where, what, remedy)  # pickle and SimPy make a copy from these arguments

    @classmethod
    def of(cls, where: str, error: Exception, before: str = "") -> "InputError":
        """The mistake of an error with the message "fault; remedy"; `before` precedes the fault.

        >>> str(InputError.of("plan", ValueError("is odd; take an even one"), "tp = 3 "))
        'plan: tp = 3 is odd; take an even one'
        """
        fault, _, remedy = str(error).partition("; ")
        return cls(where, f"{before}{fault}", remedy)

    @classmethod
    def unknown(cls, where: str, fault: str, word: str, known: Sequence[str]) -> "InputError":
        """The mistake of an unknown `word`; its remedy names similar known words, or all."""
        from sim.config.near import nearest  # a mistake is rare

        return cls(where, fault, nearest(word, known))

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f"; {self.remedy}" if self.remedy else "")


class UnknownNameError(InputError):
    """A name of a file that no folder has."""


class FitError(InputError):
    """A job needs more memory than there is; the command's exit code is then 3."""
