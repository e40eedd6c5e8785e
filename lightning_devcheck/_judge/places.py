"""Causes that lie in the place of a tensor or layer: an attribute, a container, a class, a default, a variable."""

from __future__ import annotations

import ast
from dataclasses import replace

import torch

from lightning_devcheck._judge.case import Case, Cure, makes_object
from lightning_devcheck._source.class_edits import as_module, buffer_for, moved_into, plain_class
from lightning_devcheck._source.edits import NONE, Edits
from lightning_devcheck._source.statements import (
    BUILDERS,
    HERE,
    has_factory,
    is_factory,
    pairs_of,
    spell,
    targets_of,
    with_device_argument,
    with_parameter_outside,
    with_text_keys,
)

# what a module's own methods would be hidden by
MODULE_METHODS = frozenset(vars(torch.nn.Module)) - {"__init__", "__call__", "forward"}


def in_plain_class(case: Case) -> Cure | None:
    """A tensor, parameter or module that an object of the user's own class keeps, which is no module."""
    if not case.attribute or case.attribute not in case.path.keys[1:] or case.function != "__init__":
        return None
    owner = plain_class(case.filename, case.made)
    if owner is None or MODULE_METHODS & {getattr(part, "name", "") for part in owner.body}:
        return None
    base = case.in_file("nn.Module")
    edits = as_module(case.filename, owner, base)
    code = f"class {owner.name}({base}), with super().__init__() first in its __init__"
    if not case.rule.endswith(("parameter", "module", "metric")) and case.value is not None:
        buffer = f'self.register_buffer("{case.attribute}", {spell(case.value)}, persistent=False)'
        registered = case.edits_to(case.made, buffer)
        edits = edits + registered if registered else NONE
        code = f"{code},\nand {buffer}"
    return Cure(
        f"{owner.name} is a plain object to Lightning: what it keeps is not moved with the module.", code, edits
    )


def held_outside(case: Case) -> Cure | None:
    """A tensor in a plain attribute, or in something that an attribute holds."""
    attribute, value = case.attribute, case.value
    rules = ("unregistered-tensor", "mixed-devices", "leaf-device")
    keys = case.path.keys
    if not attribute or attribute not in keys or value is None or case.rule not in rules:
        return None
    if case.function not in ("", *BUILDERS) and has_factory(case.made):
        return None
    text = spell(value)
    if keys[-1] == attribute:
        if (outside := with_parameter_outside(value)) is not None:
            return case.instead(
                "What is computed from an nn.Parameter, or moved, is a plain tensor: not registered, not trained.",
                f"self.{attribute} = {spell(outside)}",
            )
        if case.rule == "leaf-device" or "requires_grad=True" in text:
            plain = text.replace(", requires_grad=True", "").removesuffix(".requires_grad_()")
            return case.instead(
                "A tensor that requires a gradient is not a parameter: it is not moved, not trained, not saved.",
                f"self.{attribute} = nn.Parameter({plain})",
            )
        return case.instead(
            "A tensor in a plain attribute is not moved with the module: only parameters and buffers are.",
            f'self.register_buffer("{attribute}", {text}, persistent=False)',
        )
    last = case.path.word or "values"
    part = _part(value, keys[1:])
    return Cure(
        f"self.{attribute} is a plain object to Lightning: the tensor in it is not moved with the module.",
        f'self.register_buffer("{last}", {spell(part) if part else "…"}, persistent=False)  (and read it from there)',
        _made_anew(case),
    )


def _made_anew(case: Case) -> Edits:
    """Make an object with tensors when the device is known; ``setup`` runs before every stage."""
    if case.function != "__init__" or len(pairs_of(case.made)) != 1 or not has_factory(case.made):
        return NONE
    text = with_device_argument(case.made, is_factory)
    return moved_into(case.filename, case.made, "setup(self, stage)", text)


def _part(value: ast.expr, keys: list[str]) -> ast.expr | None:
    """The part of an assigned expression that some keys lead to: items of displays and of their calls, keywords."""
    part: ast.expr | None = value
    for key in keys:
        part = _item(part, key)
    made = part is not None and has_factory(part)
    return part if made and part is not value else None


def _item(value: ast.expr | None, key: str) -> ast.expr | None:
    if isinstance(value, ast.Dict):
        keys = [str(known.value) if isinstance(known, ast.Constant) else "" for known in value.keys]
        return value.values[keys.index(key)] if key in keys else None
    if isinstance(value, (ast.List, ast.Tuple)):
        return value.elts[int(key)] if key.isdigit() and int(key) < len(value.elts) else None
    if isinstance(value, ast.Call):
        return next((word.value for word in value.keywords if word.arg == key), None)
    return None


def put_into(case: Case) -> Cure | None:
    """A tensor that ``__init__`` puts into something: ``self.rows.append(…)``, ``setattr(self, …)``."""
    call = case.value if isinstance(case.made, ast.Expr) else None
    given = call.args[-1] if isinstance(call, ast.Call) and call.args else case.value
    path = case.path
    kept = path.base == "self" and path.links and case.function in ("__init__", "configure_model")
    if not kept or case.attribute or given is None or not has_factory(case.made):
        return None
    name = path.word or "_".join(path.keys)
    return Cure(
        f"self.{path.attribute} is not moved with the module: only parameters and buffers are.",
        f'self.register_buffer("{name}", {spell(given)}, persistent=False)  (and read it from there)',
    )


def constant(case: Case) -> Cure | None:
    """A tensor of the source file or of a class itself."""
    base = case.path.base
    of_class = base in ("self", "cls") or (base[:1].isupper() and not base.isupper())
    if case.function or case.attribute or not (base.isupper() or of_class):
        return None
    if not isinstance(case.made, (ast.Assign, ast.AnnAssign)) or case.value is None:
        return None
    name = (case.path.word or base).lower()
    value = spell(case.value) if of_class else case.name
    if spell(case.value).startswith(("nn.", "torch.nn.", "torchmetrics.")):
        return _shared_module(case.made, case.value)
    return Cure(
        f"A tensor of the {'class' if of_class else 'source file'} itself belongs to no module: nothing moves it.",
        f'self.register_buffer("{name}", {value}, persistent=False)  (in __init__; then use self.{name})',
        _as_buffer(case, name),
    )


def _as_buffer(case: Case, name: str) -> Edits:
    """Register what the source file keeps in the class that uses it."""
    if case.used is None or case.used_filename != case.filename or case.path.base in ("self", "cls"):
        return NONE
    return buffer_for(case.filename, case.used, case.name, name)


def _shared_module(made: ast.Assign | ast.AnnAssign, value: ast.expr) -> Cure:
    name = spell(made.targets[0] if isinstance(made, ast.Assign) else made.target).lower()
    return Cure(
        "No module holds it: it belongs to the class or to the source file, and nothing moves it.",
        f"self.{name} = {spell(value)}  (in __init__; then use self.{name})",
    )


def default_value(case: Case) -> Cure | None:
    """A tensor that is a default value."""
    if not isinstance(case.made, ast.FunctionDef) or not case.name.isidentifier():
        return None
    made = case.made.args
    pairs: list[tuple[ast.arg, ast.expr | None]] = [*zip(made.args[::-1], made.defaults[::-1], strict=False)]
    pairs += zip(made.kwonlyargs, made.kw_defaults, strict=True)
    value = next((value for argument, value in pairs if argument.arg == case.name and value is not None), None)
    if value is None or not has_factory(value):
        return None
    new = with_device_argument(ast.Expr(value), is_factory)
    return Cure(
        "A default value is made once, on the CPU, when the function is defined.",
        f"{case.name}=None, and in the function: if {case.name} is None: {case.name} = {new}",
    )


def taken_from_loader(case: Case) -> Cure | None:
    """What a loop takes out of something that was not followed further, as a loader is."""
    if not isinstance(case.made, ast.For) or case.device != "cpu" or not case.name.isidentifier():
        return None
    if case.rule != "mixed-devices" or not any(spell(n) == case.name for n in ast.walk(case.made.target)):
        return None
    return Cure(
        "A loader gives batches on the CPU; where no Trainer moves them, the loop has to.",
        f"{case.name} = {case.name}.to({HERE})  (first in the loop)",
    )


def late_layer(case: Case) -> Cure | None:
    if not case.attribute or case.function in ("", *BUILDERS):
        return None
    made = makes_object(case.value)
    if case.rule == "unregistered-metric" and made:
        return Cure(
            "A metric made here comes after Lightning has moved the module.",
            f"make self.{case.attribute} in __init__, and here: self.{case.attribute}.reset()",
        )
    if case.rule != "parameter-device" or (not made and has_factory(case.made)):
        return None
    return Cure(
        "A layer made here comes after Lightning has moved the module, and after the optimizer was made.",
        f"make self.{case.attribute} in __init__ or configure_model (nn.LazyLinear where its size is not known yet)",
    )


def local_layer(case: Case) -> Cure | None:
    """A layer in a variable."""
    base = case.path.base
    call = case.value
    if not case.path.attribute or base == "self" or not makes_object(call):
        return None
    if base not in map(spell, targets_of(case.made)) or has_factory(call):
        return None
    why = "A layer starts on the CPU, and Lightning moves only what the module holds."
    return Cure(why, f"{base} = {spell(call)}.to({HERE})  (or in __init__: self.{base} = {spell(call)})")


def container(case: Case) -> Cure | None:
    """Modules, metrics or parameters in a plain list or dict."""
    value, attribute = case.value, case.attribute
    if isinstance(value, ast.Call) and spell(value.func) in ("list", "tuple") and value.args:
        value = value.args[0]
    kinds = (ast.List, ast.ListComp, ast.Tuple, ast.Dict, ast.DictComp, ast.GeneratorExp)
    if not attribute or not isinstance(value, kinds):
        return None
    if any(isinstance(part, ast.Constant) for part in getattr(value, "values", getattr(value, "elts", ()))):
        return None  # it holds other things too
    mapping = isinstance(value, (ast.Dict, ast.DictComp))
    numbered = mapping and any(type(link.key) is int for link in case.path.links[1:2])
    value = with_text_keys(value) if numbered else value
    metric = case.rule.endswith("metric") or case.rule == "metric-device"
    if not metric and not case.rule.endswith(("module", "parameter")):
        return None
    bare = case.rule.endswith("parameter") and "Parameter(" in spell(value)
    kind = ("Parameter" if bare else "Module") + ("Dict" if mapping else "List")
    what = "A metric" if metric else "A parameter" if bare else "A module"
    plain = "dict" if mapping else "tuple" if isinstance(value, ast.Tuple) else "list"
    lost = "is not moved with the module" if metric else "is not moved, not trained, not saved, not synchronised"
    keys = "  (its keys are texts)" if numbered else ""
    new = ast.Call(ast.Attribute(ast.Name("nn"), kind), [value], [])
    cure = case.instead(f"{what} in a plain {plain} {lost}.", f"self.{attribute} = {spell(new)}", keys)
    return replace(cure, edits=()) if numbered else cure  # its uses have numbers
