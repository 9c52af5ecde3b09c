"""Which commands does a launch script run, and with which words?

A script is parsed by tree-sitter and evaluated as if it were started without arguments. Some values
are unknown: values of the environment, of a program's output or of an undecided branch. Such a
value becomes a placeholder with its text and line (`$Z:line-1`), which readers of the value refuse.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from fnmatch import fnmatchcase
from operator import eq, ge, gt, le, lt, ne

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from sim.config.dataclass import dataclass
from sim.config.errors import InputError

_MOST = 1 << 24  # characters of all values that a script makes
_DEEP = 8  # nested calls of functions and of scripts in quotes
_BREAK = "\0"  # separates words within a value
_UNSURE = re.compile(r":line-\d+")
_LARGEST = 2**63  # the shell's numbers are smaller
_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": eq, "-ne": ne, "-lt": lt, "-le": le, "-gt": gt, "-ge": ge,
    "==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip
_COMPUTED = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}

Value = str | list[str]  # the value of a variable, or of an array


@dataclass(frozen=True, slots=True)
class Command:
    """A command's words and the line in which it begins."""

    line: int
    words: tuple[str, ...]


def unsure(text: str) -> bool:
    """Whether a text holds a placeholder for an unknown value."""
    return _UNSURE.search(text) is not None


def commands(text: str) -> list[Command]:
    """Return, in order, the commands that a script runs or may run.

    Raises `InputError` with the line if the text is not a shell script, or cannot be evaluated.

    >>> commands("TP=8; A=(--x 1); A+=(--y); torchrun p.py ${A[@]} --tp $((TP * 2)) $Z")[0].words
    ('torchrun', 'p.py', '--x', '1', '--y', '--tp', '16', '$Z:line-1')
    """
    script = _Script()
    try:
        script.run_text(text)
    except RecursionError:
        raise InputError("script", "is nested too deep", "write it flatter") from None
    return script.commands


@dataclass(slots=True)
class _Script:
    variables: dict[str, Value] = field(default_factory=dict)
    functions: dict[str, Node] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    above: int = 0  # lines above a text in quotes
    deep: int = 0
    spent: int = 0

    def run_text(self, text: str) -> None:
        if _BREAK in text:
            raise InputError("script", "holds a NUL", "take it out")
        root = Parser(Language(tree_sitter_bash.language())).parse(text.encode()).root_node
        if root.has_error:
            fault = next(node for node in _nodes(root) if node.is_error or node.is_missing)
            remedy = "correct it, or put the arguments alone into quotes"
            raise InputError(self.place(fault), "is no shell script that can be read", remedy)
        self.block(root.named_children)

    def place(self, node: Node) -> str:
        return f"line {self.line(node)}"

    def line(self, node: Node) -> int:
        return int(node.start_point[0]) + 1 + self.above

    def unknown(self, node: Node, text: str = "") -> str:
        """Return the placeholder for an unknown value."""
        shown = re.sub(r"\s+", "_", text or _text(node))[:60]
        return f"{shown}:line-{self.line(node)}"

    # Statements: a method returns whether the statements after it still run.

    def block(self, nodes: Iterable[Node]) -> bool:
        return all(self.statement(node) for node in nodes)

    def statement(self, node: Node) -> bool:
        self.spend(node, 16)
        run = _STATEMENTS.get(node.type)
        return run is None or run(self, node) is not False

    def inside(self, node: Node) -> bool:
        return self.block(node.named_children)

    def declare(self, node: Node) -> None:
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(child)

    def unset(self, node: Node) -> None:
        for child in node.named_children:
            self.variables.pop(_text(child), None)

    def define(self, node: Node) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name and body:
            self.functions[_text(name)] = body

    def subshell(self, node: Node) -> None:
        known = dict(self.variables)
        self.block(node.named_children)
        self.variables = known

    def redirected(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        return body is None or self.statement(body)

    def assign(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type == "subscript":
            self.forget(node)
            return
        new: Value = "" if value is None else self.assigned(value)
        if any(child.type == "+=" for child in node.children):
            old = self.variables.get(_text(name), type(new)())
            if isinstance(new, list):
                new = (old if isinstance(old, list) else [old]) + new
            elif isinstance(old, list):
                new = [(old or [""])[0] + new, *old[1:]]
            else:
                new = old + new
        self.spend(node, len(new) if isinstance(new, str) else sum(map(len, new)))
        self.variables[_text(name)] = new

    def assigned(self, node: Node) -> Value:
        if node.type == "array":
            return [word for child in node.named_children for word in self.words(child)]
        return self.value(node, quoted=True).replace(_BREAK, " ")

    def forget(self, node: Node) -> None:
        """Make all variables that are assigned anywhere below a node unknown."""
        for child in _nodes(node):
            name = child.child_by_field_name("name")
            if child.type == "variable_assignment" and name is not None:
                variable = _text(name).partition("[")[0]
                self.variables[variable] = self.unknown(child, f"${variable}")

    def command(self, node: Node) -> bool:
        children = [child for child in node.named_children if child.type != "variable_assignment"]
        words = [word for child in children for word in self.words(child)]
        if not words:
            return True
        self.spend(node, sum(map(len, words)))
        name, *rest = words
        if name in ("exit", "return"):
            return False
        if name in ("read", "mapfile", "readarray"):
            for word in rest:
                self.variables[word] = self.unknown(node, f"${word}")
        if name in self.functions:
            self.within(node, lambda: self.block(self.functions[name].named_children))
            self.forget(self.functions[name])
        elif (inner := _inner(words)) is not None:
            above, self.above = self.above, self.line(node) - 1
            self.within(node, lambda: self.run_text(inner))
            self.above = above
        else:
            self.commands.append(Command(self.line(node), tuple(words)))
        return name != "exec"

    def within(self, node: Node, run: Callable[[], object]) -> None:
        if self.deep == _DEEP:
            raise InputError(self.place(node), "calls itself", "write the command out")
        self.deep += 1
        run()
        self.deep -= 1

    def chain(self, node: Node) -> bool:
        left, right = node.named_children[0], node.named_children[-1]
        operator = next((child.type for child in node.children if not child.is_named), "&&")
        holds = self.holds(left) if left.type == "test_command" else None
        if left.type != "test_command" and not self.statement(left):
            return False
        if holds is None and operator == "&&" and left.type != "test_command":
            return self.statement(right)  # the left command is taken to succeed
        return self.branches(node, [(holds if operator == "&&" or holds is None else not holds,
                                     [right])])  # fmt: skip

    def loop(self, node: Node) -> None:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        until = node.children[0].type == "until"
        if condition is not None and ("$#" in _text(condition) or self.holds(condition) is until):
            return  # the script has no arguments, so the loop has no turns
        variable = node.child_by_field_name("variable")
        if variable is not None:
            self.variables[_text(variable)] = self.unknown(variable, f"${_text(variable)}")
        self.forget(node)
        if body is not None:
            self.block(body.named_children)
        self.forget(node)

    def branches(self, node: Node, branches: list[tuple[bool | None, list[Node]]]) -> bool:
        """Run the branch whose condition holds. If that is uncertain, run all branches whose
        condition may hold; values that then differ become unknown."""
        before, ends = dict(self.variables), list[dict[str, Value]]()
        self.spend(node, 16 * len(before))
        for holds, body in branches:
            if holds is False:
                continue
            self.variables = dict(before)
            if self.block(body):
                ends.append(self.variables)
            if holds:
                break
        else:
            ends.append(before)
        self.variables = self.merged(node, ends) if ends else before
        return bool(ends)

    def merged(self, node: Node, ends: list[dict[str, Value]]) -> dict[str, Value]:
        names = dict.fromkeys(name for end in ends for name in end)
        return {
            name: ends[0][name]
            if all(end.get(name) == ends[0].get(name) for end in ends)
            else self.unknown(node, f"${name}")
            for name in names
        }

    def conditions(self, node: Node) -> list[tuple[bool | None, list[Node]]]:
        condition = node.child_by_field_name("condition")
        found: list[tuple[bool | None, list[Node]]] = []
        later = ("elif_clause", "else_clause")
        inner = [child for child in node.named_children if child.type not in later]
        body = [child for child in inner if child != condition]
        for child in node.named_children:
            if child.type == "elif_clause":
                test, *rest = child.named_children
                found.append((self.holds(test), rest))
            elif child.type == "else_clause":
                found.append((True, child.named_children))
        return [(self.holds(condition) if condition else None, body), *found]

    def cases(self, node: Node) -> list[tuple[bool | None, list[Node]]]:
        subject = node.child_by_field_name("value")
        word = "" if subject is None else self.value(subject, quoted=True)
        found: list[tuple[bool | None, list[Node]]] = []
        for item in node.named_children:
            if item.type == "case_item":
                patterns = item.children_by_field_name("value")
                texts = [self.value(pattern, quoted=True) for pattern in patterns]
                sure = not unsure("".join([word, *texts])) or texts == ["*"]
                holds = any(fnmatchcase(word, text) for text in texts) if sure else None
                body = [child for child in item.named_children if child not in patterns]
                found.append((holds, body))
        return found

    def holds(self, node: Node) -> bool | None:
        """Whether a condition holds; None if that is uncertain."""
        if node.type in ("test_command", "parenthesized_expression", "compound_statement"):
            inner = node.named_children
            return self.holds(inner[0]) if len(inner) == 1 else None
        if node.type in ("string", "word", "number", "raw_string"):
            text = self.value(node, quoted=True)
            return None if unsure(text) else bool(text)
        if node.type == "negated_command" or (
            node.type == "unary_expression" and node.children[0].type == "!"
        ):
            inside = self.holds(node.named_children[-1])
            return None if inside is None else not inside
        operator = next((_text(c) for c in node.children if c.type == "test_operator"), "")
        if node.type == "unary_expression" and operator in ("-z", "-n"):
            text = self.value(node.named_children[-1], quoted=True)
            return None if unsure(text) else bool(text) == (operator == "-n")
        if node.type != "binary_expression":
            return None
        left, right = node.named_children[0], node.named_children[-1]
        operator = operator or node.children[1].type
        if operator in ("&&", "||"):
            return _both(self.holds(left), self.holds(right), operator == "||")
        return self.compared(left, operator, right)

    def compared(self, left: Node, operator: str, right: Node) -> bool | None:
        """Whether a comparison of texts or numbers holds; None if that is uncertain."""
        first, second = (self.value(side, quoted=True) for side in (left, right))
        if unsure(first + second):
            return None
        if operator in ("=", "==", "!="):
            plain = right.type in ("string", "raw_string", "word", "number")
            sure = plain and not re.search(r"[*?[]", second)
            return (first == second) == (operator != "!=") if sure else None
        numbers = all(re.fullmatch(r"-?\d{1,18}", text) for text in (first, second))
        compare = _NUMBERS.get(operator)
        return compare(int(first), int(second)) if compare and numbers else None

    # Words

    def words(self, node: Node) -> list[str]:
        """Return the words into which the shell splits a node."""
        if node.type in ("comment", "heredoc_redirect", "file_redirect", "herestring_redirect"):
            return []
        if _text(node) == '"$@"':
            return []
        text = self.value(node)
        if not text and node.type not in ("string", "raw_string"):
            return []
        found = text.split(_BREAK)
        return found if len(found) == 1 else [word for word in found if word]

    def value(self, node: Node, *, quoted: bool = False) -> str:
        """Return the text of a node. Unless it is `quoted`, blanks in variables separate words."""
        match node.type:
            case "raw_string":
                return _text(node)[1:-1]
            case "string":
                return self.pieces(node, 1, r"\\([\"\\$`])", quoted=True)
            case "simple_expansion" | "expansion":
                # The parser includes blanks before an expansion in quotes.
                blanks = re.match(r"\s*", _text(node))
                return (blanks[0] if blanks else "") + self.expanded(node, quoted)
            case "arithmetic_expansion":
                inner = node.named_children
                number = self.number(inner[0]) if len(inner) == 1 else None
                return self.unknown(node) if number is None else str(number)
            case "command_substitution" | "process_substitution" | "ansi_c_string":
                return self.unknown(node)
            case "variable_name" if node.parent and node.parent.type == "binary_expression":
                return self.scalar(node, _text(node))
            case _ if node.named_children:
                return self.pieces(node, 0, r"\\(.)", quoted=quoted)
        return re.sub(r"\\(.)", r"\1", _text(node).replace("\\\n", ""))

    def pieces(self, node: Node, quotes: int, escape: str, *, quoted: bool) -> str:
        """Return the text of a node's children and the text between them."""
        data, at, found = node.text or b"", quotes, list[str]()
        for child in [*node.named_children, None]:
            begin = child.start_byte - node.start_byte if child else len(data) - quotes
            between = data[at:begin].decode().replace("\\\n", "")
            found.append(re.sub(escape, r"\1", between))
            if child is not None and child.type == "string_content":
                found.append(re.sub(escape, r"\1", _text(child).replace("\\\n", "")))
            elif child is not None:
                found.append(self.value(child, quoted=quoted))
            at = child.end_byte - node.start_byte if child else 0
            self.spend(node, len(found[-1]))
        return "".join(found)

    def expanded(self, node: Node, quoted: bool) -> str:
        """Return the value of $NAME, ${NAME}, ${NAME[@]} or ${NAME:-other}; other forms are
        unknown."""
        text = _text(node).lstrip()
        if text in ("$@", "$*", "${@}", "${*}"):
            return ""  # the script is started without arguments
        match = re.fullmatch(r"\$\{?(\w+)(\[[@*]\]|\[\d{1,6}\])?(?:(:?[-=+])(.*))?\}?", text, re.S)
        if match is None:
            return self.unknown(node)
        name, place, operator, _ = match.groups()
        value = self.variables.get(name)
        if operator:
            value = self.replaced(node, value, operator)
        elif value is None and place in ("[@]", "[*]") and not quoted:
            return self.unknown(node)
        if value is None:
            return self.unknown(node, f"${name}")
        if isinstance(value, list):
            if place in ("[@]", "[*]"):
                return _BREAK.join(value if quoted else [_parted(word) for word in value])
            number = int(place[1:-1]) if place else 0
            value = value[number] if number < len(value) else ""
        return value if quoted else _parted(value)

    def replaced(self, node: Node, value: Value | None, operator: str) -> Value | None:
        """Return a variable's value or its alternative, as in ${NAME:-other} and ${NAME+other}."""
        given = bool(value) if operator.startswith(":") else value is not None
        if operator.endswith("+"):
            return self.other(node) if given else ("" if value is not None else None)
        return value if given else self.other(node)

    def other(self, node: Node) -> str:
        children = [child for child in node.named_children if child.type not in _NAMES]
        return "".join(self.value(child, quoted=True) for child in children)

    def scalar(self, node: Node, name: str) -> str:
        value = self.variables.get(name)
        if value is None:
            return self.unknown(node, f"${name}")
        return value if isinstance(value, str) else (value or [""])[0]

    def number(self, node: Node) -> int | None:
        """Return the value of an arithmetic expression of whole numbers; None for other nodes."""
        if node.type == "parenthesized_expression":
            return self.number(node.named_children[0])
        if node.type == "binary_expression":
            left, right = (self.number(node.named_children[place]) for place in (0, -1))
            operator = node.children[1].type
            if left is None or right is None:
                return None
            if operator in ("/", "%") and right and left >= 0 and right > 0:
                return left // right if operator == "/" else left % right
            compute = _COMPUTED.get(operator)
            found = None if compute is None else compute(left, right)
            return found if found is not None and abs(found) < _LARGEST else None
        text = self.scalar(node, _text(node)) if node.type == "variable_name" else self.value(node)
        return int(text) if re.fullmatch(r"-?(0|[1-9]\d{0,17})", text) else None

    def spend(self, node: Node, characters: int) -> None:
        """Count the characters that a script makes. Raises `InputError` above `_MOST`."""
        self.spent += characters
        if self.spent > _MOST:
            fault = f"its values grow beyond {_MOST} characters"
            raise InputError(self.place(node), fault, "put the arguments alone into quotes")


_STATEMENTS: dict[str, Callable[[_Script, Node], bool | None]] = {
    "variable_assignment": _Script.assign,
    "variable_assignments": _Script.declare,
    "declaration_command": _Script.declare,
    "unset_command": _Script.unset,
    "function_definition": _Script.define,
    "command": _Script.command,
    "if_statement": lambda script, node: script.branches(node, script.conditions(node)),
    "case_statement": lambda script, node: script.branches(node, script.cases(node)),
    "list": _Script.chain,
    "for_statement": _Script.loop,
    "c_style_for_statement": _Script.loop,
    "while_statement": _Script.loop,
    "subshell": _Script.subshell,
    "redirected_statement": _Script.redirected,
    "pipeline": _Script.inside,
    "compound_statement": _Script.inside,
    "negated_command": _Script.inside,
}
_NAMES = ("variable_name", "subscript", "special_variable_name")


def _both(left: bool | None, right: bool | None, either: bool) -> bool | None:
    """Whether one of two conditions holds (with `either`), or whether both hold (without it). None
    if that is uncertain."""
    if either in (left, right):
        return either
    return None if None in (left, right) else not either


def _parted(text: str) -> str:
    return re.sub("[ \t\n]+", _BREAK, text)


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _nodes(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        yield (last := waiting.pop())
        waiting += reversed(last.children)


def _inner(words: list[str]) -> str | None:
    """Return the script in quotes that a command runs, as in `eval ...` or `srun bash -c "..."`.
    None if the command runs no such script."""
    if words[0] == "eval":
        return " ".join(words[1:])
    for shell, option, *text in zip(words, words[1:], words[2:], strict=False):
        if re.fullmatch(r"(.*/)?(ba|z)?sh", shell) and re.fullmatch(r"-\w*c", option):
            return text[0]
    return None
