"""Mutations of Python source: small changes that tests should notice, found in the syntax tree."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
NEGATED_ELSEWHERE = (ast.Compare, ast.UnaryOp)  # as a condition, by a mutation of its own
SYMMETRIC = {"min", "max", "minimum", "maximum", "array_equal"}  # in their arguments
MAX_SHOWN = 70


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes
    ----------
    key : str
        Describes the change without line numbers, so that it stays the same under edits elsewhere.
    path : str
        File, relative to the root of the repository.
    function : str
        Qualified name of the outermost function around it, empty where a module is imported.
    place : Place
        Where it is in the syntax tree of the file.
    changed : AST
        What stands there instead.
    """

    key: str
    path: str
    function: str
    place: Place
    changed: ast.AST

    @property
    def line(self) -> int:
        """Line of the change."""
        return int(getattr(self.place.node, "lineno", 1))

    def source(self) -> str:
        """The whole changed file."""
        self.place.put(self.changed)
        try:
            return ast.unparse(ast.fix_missing_locations(self.place.tree))
        finally:
            self.place.put(self.place.node)


@dataclass(frozen=True)
class Place:
    """A node and where it hangs in its tree."""

    tree: ast.Module
    parent: ast.AST
    field: str
    index: int | None
    node: ast.AST

    def put(self, node: ast.AST) -> None:
        """Hang another node in its place."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def mutants_of(root: Path, path: str) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    seen: Counter[str] = Counter()
    found = []
    for place, name, function in _sites(ast.parse((root / path).read_text())):
        for changed in _changes(place.node):
            key = f"{path} {name or 'module'}: {_shown(place.node)} → {_shown(changed)}"
            if isinstance(place.node, ast.Constant):
                key += f" in {_shown(place.parent)}"
            seen[key] += 1
            key += f" #{seen[key]}" if seen[key] > 1 else ""
            found.append(Mutant(key, path, function, place, changed))
    return found


def _sites(tree: ast.Module) -> Iterator[tuple[Place, str, str]]:
    """Nodes whose change matters when the program runs, with the names of what is around them.

    The first name is that of the innermost class or function, the second the outermost function.
    """

    def walk(node: ast.AST, names: tuple[str, ...], outer: str) -> Iterator[tuple[Place, str, str]]:
        for field, index, child in _children(node):
            inside = names
            if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
                inside = (*names, child.name)
            is_run = isinstance(node, FUNCTIONS) and field == "body"  # and not a default value
            function = outer or (".".join(names) if is_run else "")
            yield Place(tree, node, field, index, child), ".".join(inside), function
            yield from walk(child, inside, function)

    yield from walk(tree, (), "")


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    """Field, position and child, without annotations, messages of errors, and decorators."""
    skipped = {"annotation", "returns", "decorator_list", "type_params"}
    if isinstance(node, ast.Raise):
        return
    for field, value in ast.iter_fields(node):
        if field in skipped:
            continue
        listed = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        for index, child in listed:
            is_check = isinstance(child, ast.keyword) and child.arg == "strict"  # of zip
            if isinstance(child, ast.AST) and not (is_check or _is_for_types(child)):
                yield field, index, child


def _is_for_types(node: ast.AST) -> bool:
    is_guard = isinstance(node, ast.If) and isinstance(node.test, ast.Name)
    if is_guard and node.test.id == "TYPE_CHECKING":
        return True
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Subscript)
        and (
            isinstance(node.value.value, ast.Name) and node.value.value.id in ("Literal", "NDArray")
        )
    )


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[i] = COMPARISONS[type(operator)]()
            yield changed
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        yield _with(node, op=ARITHMETIC[type(node.op)]())
        if isinstance(node, ast.AugAssign):
            yield ast.copy_location(ast.Pass(), node)
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield copy.deepcopy(node.operand)
    elif isinstance(node, (ast.If, ast.IfExp)) and not isinstance(node.test, NEGATED_ELSEWHERE):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node)
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield _with(node, value=ast.Constant(None))
    elif isinstance(node, ast.Call) and _can_swap(node):
        yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
    elif _may_be_removed(node):
        yield ast.copy_location(ast.Pass(), node)


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(changed, name, copy.deepcopy(value))
    return changed


def _other_constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.copy_location(ast.Constant(not value), node)
    elif isinstance(value, int):
        yield ast.copy_location(ast.Constant(value + 1), node)
    elif isinstance(value, float):
        yield ast.copy_location(ast.Constant(2 * value if value else 1.0), node)


def _can_swap(call: ast.Call) -> bool:
    both = call.args[:2]
    if len(both) < 2 or any(isinstance(arg, ast.Starred) for arg in both):
        return False
    name = ast.unparse(call.func).rpartition(".")[2]
    return name not in SYMMETRIC and ast.dump(both[0]) != ast.dump(both[1])


def _may_be_removed(node: ast.AST) -> bool:
    """Statements whose effect is elsewhere: calls, and assignments into something."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    places = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(place, (ast.Subscript, ast.Attribute)) for place in places)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _shown(node: ast.AST) -> str:
    text = (
        " ".join(ast.unparse(node).split())
        if not isinstance(node, ast.If)
        else (f"if {ast.unparse(node.test)}")
    )
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
