"""Numbers as a person reads them: three digits, with the unit that a person would choose."""


def human_seconds(seconds: float) -> str:
    """Three significant digits in the unit a person would choose.

    >>> human_seconds(18.04), human_seconds(0.0132), human_seconds(4.2e-6), human_seconds(0.0)
    ('18.0 s', '13.2 ms', '4.20 us', '0 s')
    """
    for scale, symbol in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if abs(seconds) >= scale:
            return f"{_three_digits(seconds / scale)} {symbol}"
    return "0 s"


def human_bytes(count: float) -> str:
    """Three significant digits in binary units, as `nvidia-smi` and torch print memory.

    >>> human_bytes(80 * 2**30), human_bytes(1536.0), human_bytes(2**20 - 1)
    ('80.0 GiB', '1.50 KiB', '1.00 MiB')
    """
    for scale, symbol in ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if abs(count) >= (1.0 - 0.5 / 1024.0) * scale:  # else it is < 1024 of a lower unit
            return f"{_three_digits(count / scale)} {symbol}"
    return f"{count:.0f} B"


def quantity_text(value: float, unit: str) -> str:
    """A number with its unit as files have it: four significant digits, no exponent.

    >>> quantity_text(1460.4, "us"), quantity_text(12345678.0, "GFLOP/s"), quantity_text(3.21, "us")
    ('1460 us', '12350000 GFLOP/s', '3.21 us')
    """
    return f"{float(f'{value:.4g}'):.10g} {unit}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.2f}" if size < 10 else f"{value:.1f}" if size < 100 else f"{value:,.0f}"


def human_rate(rate: float, unit: str = "B/s") -> str:
    """Three significant digits in decimal units, as data sheets print rates.

    >>> human_rate(3.35e12, "B/s"), human_rate(1.65e11, "FLOP/s"), human_rate(12.0, "B/s")
    ('3.35 TB/s', '165 GFLOP/s', '12.0 B/s')
    """
    for scale, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(rate) >= scale:
            return f"{_three_digits(rate / scale)} {prefix}{unit}"
    return f"{_three_digits(rate)} {unit}"
