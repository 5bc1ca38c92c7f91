"""The shape of the package: imports point down, every module says what it is, names resolve."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import attnknn
from attnknn import errors

PACKAGE = Path(attnknn.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# A room may import from the rooms above it in this list; rooms of one line not from each other.
ROOMS = [
    ["errors"],
    ["registry"],
    ["_atomic", "_cache", "_escape", "_limits", "_optional", "_output_files", "_validation"],
    ["_display"],
    ["records"],
    ["_stored"],
    ["vote"],
    ["metrics"],
    ["training"],
    ["encoders", "memory", "vit"],
    ["attention"],
    ["calibration"],
    ["value_head"],
    ["leave_one_out"],
    ["model"],
    ["conformal", "editing", "evidence"],
    ["fitting"],
    ["storage"],
    ["classifier"],
    ["insight", "storage.editor", "storage.verification"],
    ["research"],
    ["cli.rows"],
    ["serving"],
    ["cli"],
    ["testing"],
    ["__main__"],
]
EXTRAS = {
    "faiss",
    "psycopg",
    "psycopg_pool",
    "matplotlib",
    "PIL",
    "timm",
    "torchvision",
    "sentence_transformers",
}
EXTRAS |= {"huggingface_hub", "transformers", "torchmetrics", "lightgbm", "catboost"}
# These read all vectors, or some of them with their columns, when they fit, follow edits or store.
READ_ALL_VECTORS = {
    *("attention.boosting", "attention.forest", "attention.mlp", "attention.projection"),
    *("attention.space", "classifier", "insight.duplicates"),
    *("insight.entry_layout", "insight.forgetting"),
    *("storage.packing", "storage.store.changes"),
}
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def room_of(module: str) -> str:
    """'attnknn.memory.base' is in the room 'memory'; the face itself is in ''."""
    parts = module.split(".")
    if ".".join(parts[1:3]) in RANK:
        return ".".join(parts[1:3])
    return parts[1] if len(parts) > 1 else ""


def imports_of(tree: ast.AST, *, for_types_too: bool) -> set[str]:
    """Modules of the package that a module imports, anywhere in it."""
    found = set()
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped |= {child for part in node.body for child in ast.walk(part)}
    for node in ast.walk(tree):
        if node in skipped and not for_types_too:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            found |= (
                {f"{node.module}.{a.name}" for a in node.names}
                if node.module == "attnknn"
                else {node.module or ""}
            )
    return {name for name in found if name.split(".")[0] == "attnknn"}


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_point_down(path):
    here = room_of(dotted(path))
    if here == "":
        return  # the face names what is public
    assert here in RANK, f"the room `{here}` must stand in the list"
    for name in imports_of(tree_of(path), for_types_too=False):
        there = room_of(name)
        if there == here:
            continue
        public = getattr(attnknn, "_HOMES", {}).get(there)
        there = room_of(public) if public else there
        if there in ("", "__version__"):
            continue
        assert RANK[there] < RANK[here], f"{dotted(path)} imports {name}, which stands below it"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_no_module_needs_an_extra_to_be_imported(path):
    """Inside functions they are asked for when they are needed."""
    at_import = [node for node in tree_of(path).body if isinstance(node, ast.Import)]
    names = {alias.name for node in at_import for alias in node.names}
    names |= {node.module for node in tree_of(path).body if isinstance(node, ast.ImportFrom)}
    assert not EXTRAS & {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_every_module_says_what_it_is(path):
    docstring = ast.get_docstring(tree_of(path))
    assert docstring
    assert docstring.splitlines()[0].rstrip().endswith((".", ":", "?"))


def test_every_public_name_resolves_and_has_a_docstring():
    assert sorted(attnknn.__all__) == attnknn.__all__
    for name in attnknn.__all__:
        assert getattr(attnknn, name).__doc__, name
    assert set(attnknn.__all__) <= set(dir(attnknn))
    with pytest.raises(AttributeError, match="no attribute 'AttnKNNClasifier'"):
        attnknn.AttnKNNClasifier  # noqa: B018


def test_the_family_tree_of_errors_is_the_true_one():
    tree = dict(re.findall(r"[├└]── (\w+) \((\w+)\)", errors.__doc__))
    classes = {
        name: thing
        for name, thing in vars(errors).items()
        if isinstance(thing, type) and issubclass(thing, errors.AttnKNNError)
    }
    assert set(tree) == set(classes) - {"AttnKNNError"}
    for name, parent in tree.items():
        parents = [base.__name__ for base in classes[name].__bases__]
        assert parents == ([parent] if parent in classes else ["AttnKNNError", parent])


def test_no_module_is_a_drawer_for_leftovers():
    leftovers = {"utils", "helpers", "common", "misc"}
    assert not [dotted(path) for path in MODULES if path.stem in leftovers]


def test_no_module_prints_or_sets_the_number_of_threads():
    for path in MODULES:
        calls = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.Call)]
        names = {ast.unparse(call.func) for call in calls}
        assert "torch.set_num_threads" not in names, path
        assert "torch.manual_seed" not in names, path
        assert "np.random.seed" not in names, path


def private_reaches(path: Path) -> list[str]:
    """Uses of a private attribute of another object, or of a private name of another module."""
    tree = tree_of(path)
    own = {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls"))
        or isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    own |= {n.target.id for n in ast.walk(tree) if is_field(n)}
    found = [
        f"{dotted(path)}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and ast.unparse(node.value) not in ("self", "cls", "super()")
        and node.attr not in own
    ]
    found += [
        f"{dotted(path)}: from {node.module} import {alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnknn.")
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    return found


def is_field(node: ast.AST) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def test_few_private_names_are_reached_across_modules():
    found = [reach for path in MODULES for reach in private_reaches(path)]
    assert len(found) <= 8, "\n".join(found)


def test_nobody_outside_the_memories_touches_an_array_of_all_embeddings():
    """Vectors may be in a database: they are read by position, and all of them only by name."""
    outside = [path for path in MODULES if room_of(dotted(path)) not in ("memory", "testing")]
    touched, read_all = [], set()
    for path in outside:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                if re.search(r"\bmemory_?\.entries\.embeddings$", text):
                    touched.append(f"{dotted(path)}: {text}")
                if re.search(r"\bvectors\.all$", text) or re.search(r"memory_?\.read$", text):
                    read_all.add(dotted(path))
    assert not touched
    assert read_all <= {f"attnknn.{module}" for module in READ_ALL_VECTORS}


def test_few_places_ask_for_the_class_of_an_attention():
    outside = [p for p in MODULES if room_of(dotted(p)) not in ("attention", "vit")]
    asked = [
        f"{dotted(path)}: {ast.unparse(node)}"
        for path in outside
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and re.search(r"\w*Attention\b", ast.unparse(node.args[1]))
    ]
    assert len(asked) <= 3, asked


def lengths_of_functions() -> list[int]:
    """Lines of each function of the package, without its docstring."""
    lengths = []
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                has_doc = ast.get_docstring(node) is not None
                doc = first.end_lineno - first.lineno + 1 if has_doc else 0
                lengths.append(node.end_lineno - node.lineno + 1 - doc)
    return lengths


def test_functions_are_short():
    lengths = sorted(lengths_of_functions())
    assert lengths[int(0.95 * len(lengths))] < 35


def test_the_package_is_of_few_files_none_of_them_a_fragment():
    assert (
        len(MODULES) <= 340
    )  # with the server, PostgreSQL, suggestions, the map, and new attentions
    importers: dict[str, set[str]] = {dotted(path): set() for path in MODULES}
    for path in MODULES:
        for name in imports_of(tree_of(path), for_types_too=True):
            importers.get(name, set()).add(dotted(path))
    fragments = [
        dotted(path)
        for path in MODULES
        if path.name not in ("__init__.py", "__main__.py")
        and path.read_text().count("\n") < 40
        and len(importers[dotted(path)]) <= 1
    ]
    assert not fragments


def test_public_constructors_take_at_most_twelve_parameters():
    """Except torch modules and settings of the ViT door, which mirror timm and the research."""
    for name in attnknn.__all__:
        thing = getattr(attnknn, name)
        if isinstance(thing, type) and not issubclass(thing, tuple) and "." not in name:
            parameters = [p for p in inspect.signature(thing).parameters if p != "self"]
            is_result = name in ("Audit", "Evidence", "FitReport")  # made by the library
            assert is_result or len(parameters) <= 12, (name, parameters)
