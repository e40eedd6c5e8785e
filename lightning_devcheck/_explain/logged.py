"""A logged value that Lightning reduces over processes when no line of the user's runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.scene import Scene
from lightning_devcheck._judge.culprit import Culprit
from lightning_devcheck._observe.inert import attribute
from lightning_devcheck._source.assignments import Statement, find_binding
from lightning_devcheck._source.files import is_host, start_of
from lightning_devcheck._source.path import quoted
from lightning_devcheck._source.queries import statements_of
from lightning_devcheck._source.statements import calls_in, spell, text_in, word_of


def logged_value(scene: Scene) -> Culprit | None:
    """The value that ``self.log`` was given, by the name and method that Lightning keeps."""
    if scene.user_frames:
        return None
    for frame in reversed(scene.frames):
        if not is_host(frame.filename):
            continue
        kept = attribute(frame.lookup("self"), "meta")
        name = attribute(kept, "name")
        method = attribute(kept, "fx")
        if type(name) is str and type(method) is str:
            return _culprit(scene, name, method)
    return None


def _culprit(scene: Scene, name: str, method: str) -> Culprit:
    named = Named(f"self.log({quoted(name)})", None, "local")
    used = None
    for statement in statements_of(type(scene.root)):
        value = next(_logged(statement, name), None)
        if value is None or statement.function != method:
            continue
        used = statement.origin
        here = start_of(statement.node)
        binding = find_binding(statement.filename, spell(value), here)
        is_assigned = binding is not None and binding.kind == "value"
        line = binding.origin if is_assigned else used  # type: ignore[union-attr]
        named = Named(spell(value), line, "local")
        break
    return scene.culprit(named, None, device=scene.wrong, used=used)


def _logged(statement: Statement, name: str) -> Iterator[ast.expr]:
    """What a simple statement hands to ``self.log`` or ``self.log_dict`` under a name."""
    node = statement.node
    if hasattr(node, "body"):
        return
    for call in calls_in(node):
        words = [word.value for word in call.keywords]
        match word_of(call.func), [*call.args, *words]:
            case "log", [key, value, *_] if text_in(key) == name:
                yield value
            case "log_dict", [ast.Dict(keys, values), *_]:
                pairs = zip(keys, values, strict=True)
                yield from (value for key, value in pairs if text_in(key) == name)
