"""A logged value that Lightning reduces over processes when no line of the user's runs any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.scene import Scene
from lightning_devcheck._judge.culprit import Culprit
from lightning_devcheck._observe.inert import MISSING, attribute
from lightning_devcheck._source.assignments import Statement, find_binding
from lightning_devcheck._source.files import is_host, start_of
from lightning_devcheck._source.path import quoted
from lightning_devcheck._source.queries import statements_of
from lightning_devcheck._source.statements import calls_in, spell, text_in, word_of


def logged_value(scene: Scene) -> Culprit | None:
    """The value that ``self.log`` was given, by the name and the method that Lightning keeps with it."""
    for frame in reversed(scene.frames) if not scene.user_frames else ():
        kept = attribute(frame.lookup("self"), "meta") if is_host(frame.filename) else MISSING
        name, method = attribute(kept, "name"), attribute(kept, "fx")
        if type(name) is str and type(method) is str:
            return _culprit(scene, name, method)
    return None


def _culprit(scene: Scene, name: str, method: str) -> Culprit:
    for statement in statements_of(type(scene.root)):
        if statement.function != method or hasattr(statement.node, "body"):
            continue
        for value in _logged(statement, name):
            binding = find_binding(statement.filename, spell(value), start_of(statement.node))
            line = statement.origin
            if binding is not None and binding.kind == "value":
                line = binding.origin
            named = Named(spell(value), line, "local")
            return scene.culprit(named, None, device=scene.wrong, used=statement.origin)
    return scene.culprit(Named(f"self.log({quoted(name)})", None, "local"), None, device=scene.wrong)


def _logged(statement: Statement, name: str) -> Iterator[ast.expr]:
    """What a statement hands to ``self.log`` or ``self.log_dict`` under a name."""
    for call in calls_in(statement.node):
        given = [*call.args, *(word.value for word in call.keywords)]
        match word_of(call.func), given:
            case "log", [key, value, *_] if text_in(key) == name:
                yield value
            case "log_dict", [ast.Dict(keys, values), *_]:
                pairs = zip(keys, values, strict=True)
                yield from (value for key, value in pairs if text_in(key) == name)
