"""One table says which operators are special to the simulation, and torch knows every one."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch

from lightning_devcheck import _simulate, simulate_cuda
from lightning_devcheck._simulate.kernels.autocast import policies
from lightning_devcheck._simulate.kernels.install import KERNELS
from lightning_devcheck._simulate.ops.plan import INSTEAD
from lightning_devcheck._simulate.ops.table import TABLE, Instead, Kernel, Shape, row
from lightning_devcheck._simulate.shapes.data_dependent import SHAPES

FILES = sorted(Path(_simulate.__file__).parent.rglob("*.py"))
CODE = {"shape": (SHAPES, Shape), "instead": (INSTEAD, Instead), "kernel": (KERNELS, Kernel)}
# containers that hold the name of an operator and are no table of operators: where → why not
EXEMPT = {
    "PROPERTIES": "properties of a tensor, which a function mode is asked for",
    "METHODS": "methods of a tensor, likewise",
    "COLLECTIVES": "functions of torch.distributed",
    "MODULES": "functions of torch's modules that are refused",
    "NESTING": "functions of torch.nested",
    "PARTS": "names of the parts of a sparse tensor",
    "_nvtx": "functions of torch.cuda.nvtx",
    "_index": "an argument's name",
    "names": "names of the arguments of Tensor.to",
    "options": "an argument's name",
}


def schema_of(name: str) -> torch.FunctionSchema:
    """The schema of the operator that a row is about."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    assert hasattr(found, overload or "default"), f"torch {torch.__version__} has no {name}"
    return getattr(found, overload or "default")._schema


def known_names() -> set[str]:
    """Every operator's name, with and without its overload and its namespace."""
    found = set()
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        if namespace in ("aten", "c10d"):
            packet = name.partition(".")[0]
            found |= {full, f"{namespace}::{packet}", name, packet}
    return found


def containers(node: ast.AST, owner: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """What each literal of a container holds, of a dictionary its keys, and what it is called.

    That is the name it is assigned to, else the function it is in. A change of an attribute, which
    is yielded with its owner, is none, and neither is a type.
    """
    if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple):
        return
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal":
        return
    if isinstance(node, ast.FunctionDef):
        owner = node.name
    elif isinstance(node, ast.Assign):
        owner = ast.unparse(node.targets[0])
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        owner = ast.unparse(node.target)
    if isinstance(node, ast.Dict):
        yield owner, [key for key in node.keys if key is not None]
    elif isinstance(node, (ast.Set, ast.List, ast.Tuple)):
        yield owner, node.elts
    for child in ast.iter_child_nodes(node):
        yield from containers(child, owner)


def tables_in(text: str) -> dict[str, set[str]]:
    """The containers of a file that hold operators, by their names, and those operators."""
    known = known_names()
    found: dict[str, set[str]] = {}
    for owner, keys in containers(ast.parse(text), ""):
        constants = {key.value for key in keys if isinstance(key, ast.Constant)}
        operators = {value for value in constants if isinstance(value, str)} & known
        operators |= {ast.unparse(key) for key in keys if "torch.ops." in ast.unparse(key)}
        if operators:
            found.setdefault(owner, set()).update(operators)
    return found


@pytest.mark.parametrize("name", TABLE)
def test_a_row_is_about_an_operator_of_torch(name):
    """The installed torch has the operator, with the arguments and results that its row names."""
    cells, schema = TABLE[name], schema_of(name)
    arguments = [argument.name for argument in schema.arguments]
    assert {*cells.get("host", ()), *cells.get("read", ())} <= set(arguments)
    assert all(position < len(schema.returns) for position in cells.get("host_results", ()))
    assert all(position < len(arguments) for position in cells.get("whole", ()))
    if "with_dtype" in cells:
        schema_of(f"aten::{cells['with_dtype']}")


@pytest.mark.parametrize("column", CODE)
def test_a_cell_names_code_that_is_there(column):
    """Each name that a cell may hold has its code, and is used by a row."""
    implemented, names = CODE[column]
    assert set(implemented) == set(get_args(names))
    assert {cells[column] for cells in TABLE.values() if column in cells} == set(implemented)


def test_an_operator_has_one_row():
    """A second row for an operator is refused."""
    with pytest.raises(ValueError, match="aten::copy_ has a row"):
        row("copy_", devices="one")


def test_an_operator_of_another_library_has_no_row():
    """One that is called as one of torch's is judged by its own name."""
    with torch.library._scoped_library("devcheck_test", "DEF") as library:
        library.define("is_same_size(Tensor a, Tensor b) -> Tensor")
        library.impl("is_same_size", lambda a, b: a + b, "CPU")
        call = torch.ops.devcheck_test.is_same_size
        with simulate_cuda():
            first, second = torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")
            assert call(first, first).device == first.device
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                call(first, second)


def test_no_other_file_keeps_a_table_of_operators():
    """What is special about an operator stands in the table and nowhere else."""
    found = {}
    for path in FILES:
        if path != Path(inspect.getfile(row)):
            found |= {(path.stem, owner): held for owner, held in tables_in(path.read_text()).items()}
    assert {where: held for where, held in found.items() if where[1] not in EXEMPT} == {}
    assert {owner for _, owner in found} == set(EXEMPT)


@pytest.mark.parametrize(
    "text",
    [
        'READS = {"aten::nonzero", "aten::equal"}',
        'READS |= {f"aten::{name}" for name in ("nonzero", "equal")}',
        'def f(name):\n    return name in ("mish_backward",)',
        'RULES = {"masked_fill_.Tensor": 1}',
        "RULES = {torch.ops.aten.mm.default: 1}",
        'SIZES: dict[str, int] = {"c10d::alltoall_base_": 0}',
    ],
)
def test_a_table_of_operators_is_found(text):
    """The test above sees a table however it is spelled."""
    assert tables_in(text)


def test_torchs_own_list_and_the_table_do_not_both_say_how_to_cast():
    """Casts that stand in torch's header are not said again."""
    said = {name.removeprefix("aten::") for name, cells in TABLE.items() if "cast" in cells}
    assert said & set(policies()) == set()
