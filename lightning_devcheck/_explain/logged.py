"""A logged value that Lightning reduces over processes when no line of the user's runs any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lightning_devcheck._explain.calls import frame_inside, method_of
from lightning_devcheck._explain.locate import Named
from lightning_devcheck._explain.result import made_at
from lightning_devcheck._explain.scene import Scene
from lightning_devcheck._judge.culprit import Culprit
from lightning_devcheck._observe.inert import MISSING, attribute
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.files import is_host, origin_at
from lightning_devcheck._source.path import quoted
from lightning_devcheck._source.queries import methods_of
from lightning_devcheck._source.statements import calls_in, spell, word_of


def logged_value(scene: Scene) -> Culprit | None:
    """The value that ``self.log`` was given, by the name and the method that Lightning keeps with it."""
    for frame in reversed(scene.frames) if not scene.user_frames else ():
        kept = attribute(frame.lookup("self"), "meta") if is_host(frame.filename) else MISSING
        name, method = attribute(kept, "name"), attribute(kept, "fx")
        if type(name) is str and type(method) is str:
            return _culprit(scene, name, method)
    return None


def _culprit(scene: Scene, name: str, method: str) -> Culprit:
    function = method_of(scene.root, method)
    for line, value in _logs(scene, name, method):
        if function is None:
            break
        inner = frame_inside(function, scene.root, scene.frames[-1], value)
        made = made_at(value, inner) or line
        return scene.culprit(Named(spell(value), made, "local"), None, device=scene.wrong, used=line)
    return scene.culprit(Named(f"self.log({quoted(name)})", None, "local"), None, device=scene.wrong)


def _logs(scene: Scene, name: str, method: str) -> Iterator[tuple[Origin, ast.expr]]:
    """The lines of a method that log a name, with what they log."""
    for filename, node in methods_of(type(scene.root), method):
        for call in calls_in(node):
            for value in _given(call, name):
                yield origin_at(filename, call, method), value


def _given(call: ast.Call, name: str) -> Iterator[ast.expr]:
    """What a call of ``self.log`` or ``self.log_dict`` logs under a name."""
    called = word_of(call.func)
    words = {word.arg: word.value for word in call.keywords}
    args = dict(enumerate(call.args))
    key, value = words.get("name", args.get(0)), words.get("value", args.get(1))
    if called == "log" and value is not None and isinstance(key, ast.Constant) and key.value == name:
        yield value
    table = words.get("dictionary", args.get(0))
    if called == "log_dict" and isinstance(table, ast.Dict):
        pairs = zip(table.keys, table.values, strict=True)
        yield from (held for key, held in pairs if isinstance(key, ast.Constant) and key.value == name)
