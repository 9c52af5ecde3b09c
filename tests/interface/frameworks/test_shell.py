"""Launch scripts: what they run, and what cannot be known of that."""

import pytest

from sim.config.errors import InputError
from sim.interface.frameworks.command_line import at_line, parsed
from sim.interface.frameworks.jobs import imported

RUN = "\npython p.py $ARGS"


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ('ARGS="--a 1"\nARGS+=" --experts 8 --bf16"' + RUN, {"experts": "8", "bf16": ""}),
        ('ARGS="--a 1"\nARGS="$ARGS --experts 8"' + RUN, {"a": "1", "experts": "8"}),
        ("A=(--first 1 --b 'x y'); A+=(--c)\np ${A[@]}", {"first": "1", "b": "x y", "c": ""}),
        ("A=(1 2)\np --x $A --y ${A[1]}", {"x": "1", "y": "2"}),
        ('if [ 1 -gt 2 ]; then ARGS="--a 1"; else ARGS="--a 2"; fi' + RUN, {"a": "2"}),
        ('X=1\n[[ $X == 1 && -n $X ]] && ARGS="--a 3"' + RUN, {"a": "3"}),
        ("[ $# -lt 2 ] && exit 1\np --a 4", {"a": "4"}),
        ("case ${SIZE:-8B} in\n8B) L=32;;\n*) L=80;;\nesac\np --a $L", {"a": "32"}),
        ('while [ $# -gt 0 ]; do TP=$2; shift; done\np --a ${TP:-5} "$@"', {"a": "5"}),
        ('TP=3; X=$((TP * (2 + 5) / 2))\np --a $X --b "$TP $X"', {"a": "10", "b": "3 10"}),
        ('A=7\nCMD="torchrun p.py --a $A"\neval $CMD', {"a": "7"}),
        ('srun --ntasks 8 bash -c "\npython p.py --a 8 --b \\$(hostname)"', {"a": "8"}),
        ("cat <<EOF\n--a 1\nEOF\np --a 2 |& tee log", {"a": "2"}),
        ("pip install --upgrade pip\npython p.py --a 2", {"a": "2"}),
        ("p \\\n --a 1 \\\n --b 'it''s' # c\n", {"a": "1", "b": "its"}),
    ],
)
def test_a_script_is_evaluated_as_the_shell_does(script: str, given: dict[str, str]) -> None:
    found = {name: " ".join(words) for name, words in parsed(script).items()}
    assert found | given == found


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('ARGS="--a 1"\nif $MORE; then\nARGS="--a 2"; fi' + RUN, "ARGS.*line.2.* is not known"),
        ("python p.py --a 1 $EXTRA", "EXTRA.*line.1.* is not known"),
        ("python p.py --a 1 $THESE", "THESE.*line.1.* is not known"),
        ("python p.py --a 1\n\npython q.py --a 2", "lines 1 and 3 both start a program"),
        ("python p.py --a 1\nif [ 1 ]; then", "line 2: is no shell script that can be read"),
        ("f() {\nf; }\nf", "line 2: calls itself"),
        ("A=xxxx\n" + 'A="$A$A$A$A"\n' * 30, "line 1.: its values grow beyond"),
    ],
)
def test_what_a_script_does_not_say_surely_is_refused(script: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parsed(script)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "for TP in 1 2; do\npython p.py --num-layers $TP; done",
            "num-layers: '.TP.*line.1.* is no",
        ),
        ("torchrun --nproc_per_node 8 --nnodes $N p.py --num-layers 8", "nnodes: .N.*--gpus says"),
        ("python p.py --num-layers 8 --swiglu $MOE", "swiglu: .MOE.*is not known"),
    ],
)
def test_a_value_that_nobody_knows_is_no_number_and_no_flag(script: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        imported("megatron", script)


def test_a_line_chooses_among_the_commands_of_a_script() -> None:
    script = "python p.py --a 'x y'\n\npython q.py --a 2"
    assert [parsed(at_line(script, line))["a"] for line in (1, 3)] == [("x y",), ("2",)]
    with pytest.raises(InputError, match="no program starts in line 2; programs start in 1, 3"):
        at_line(script, 2)
