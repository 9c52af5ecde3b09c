"""Published comparisons: who is faster than whom."""

from benchmarks.sharing import SLOWMO, byteps, slowmo


def test_slowmos_table_2a_has_our_order() -> None:
    """Wang et al. 2020, table 2a: all-reduce, then SGP, then local SGD, then overlapped SGP."""
    rows = list(slowmo())
    assert {method: measured for method, measured, _ in rows} == SLOWMO
    by_measured = sorted(rows, key=lambda row: -row[1])
    by_simulated = sorted(rows, key=lambda row: -row[2])
    assert by_measured == by_simulated


def test_byteps_gains_over_all_reduce_and_more_for_vgg() -> None:
    """BytePS docs/performance.md, NVLink + TCP: 44 % for ResNet-50, 100 % for VGG-16."""
    gains = {model: simulated for model, _, simulated in byteps()}
    assert gains["vgg16"] > gains["resnet50"] > 0.0
