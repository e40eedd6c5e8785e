"""Names of parts as typed, ``self.heads["b"].weight``: spelled and taken apart here alone."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from lightning_devcheck._source.statements import spell

# .weight; ["b"] or [0]; (weight), which a function has captured; any other text
Kind = Literal["attribute", "item", "variable", "code"]
_SPELLED = {"attribute": ".{}", "item": "[{}]", "variable": "({})", "code": "{}"}
_ESCAPE = r"\\(?:[^xuUN]|x[\da-f]{2}|u[\da-f]{4}|U[\da-f]{8})"
_TEXT = rf"""(?:"(?:[^"\\\n]|{_ESCAPE})*"|'(?:[^'\\\n]|{_ESCAPE})*')"""
_LINK = re.compile(
    rf"\.(?P<attribute>[^.\[(]+)|\[(?P<item>0|[1-9]\d*|{_TEXT})\]|\((?P<variable>\w+)\)"
    r"|(?P<code>\[(?:[^\[\]]|\[[^\[\]]*\])*\]|.+)",
    re.DOTALL,
)


class Link(NamedTuple):
    """One step from an object to a part of it.

    Attributes:
        kind: How it is written.
        key: The attribute, the key or index, or the text.
    """

    kind: Kind
    key: Any

    def __str__(self) -> str:
        key = self.key
        if self.kind == "item":
            key = quoted(key)
        return _SPELLED[self.kind].format(key)


@dataclass(frozen=True, slots=True)
class Path:
    """The name of a part.

    Attributes:
        base: The variable that it starts with.
        links: What leads from there to the part.
    """

    base: str
    links: tuple[Link, ...] = ()

    @staticmethod
    def parse(text: str) -> Path:
        """Take a name apart; of another text the base ends before the first dot or bracket."""
        base = base_of(text)
        links: list[Link] = []
        for found in _LINK.finditer(text, len(base)):
            kind: Any = found.lastgroup
            key = found[kind]
            if kind == "item":
                key = ast.literal_eval(key)
            links.append(Link(kind, key))
        return Path(base, tuple(links))

    @staticmethod
    def of(node: ast.AST | None) -> Path | None:
        """Name a variable, or a part of one; None for every other expression."""
        links = []
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            if isinstance(node, ast.Attribute):
                links.append(Link("attribute", node.attr))
            else:
                text = spell(node.slice)
                links += Path.parse(f"[{text}]").links
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        links.reverse()
        return Path(node.id, tuple(links))

    def __str__(self) -> str:
        links = map(str, self.links)
        return self.base + "".join(links)

    def __add__(self, link: Link) -> Path:
        return Path(self.base, (*self.links, link))

    @property
    def attribute(self) -> str:
        """The attribute that follows the base; empty where none does."""
        first = self.links[:1]
        attributes = [link.key for link in first if link.kind == "attribute"]
        return "".join(attributes)

    @property
    def keys(self) -> list[str]:
        """What the links are called, as texts."""
        return [str(link.key) for link in self.links]

    @property
    def word(self) -> str:
        """The last of its names, where that can be the name of an attribute."""
        last = [self.base, *self.keys][-1]
        return last * last.isidentifier()

    @property
    def parent(self) -> Path:
        """What holds the part."""
        return Path(self.base, self.links[:-1])

    @property
    def container(self) -> Path:
        """What holds the first item on the way; the whole where there is none."""
        before = takewhile(_is_plain, self.links)
        return Path(self.base, tuple(before))

    def is_in(self, other: Path) -> bool:
        """Whether it is the other, or a part of that."""
        length = len(other.links)
        return other == Path(self.base, self.links[:length])

    def ends_like(self, other: Path | None) -> bool:
        """Whether it is the other, or that as an object sees it which holds the other's base."""
        if other is None or not other.links:
            return self == other
        length = len(other.links)
        return self.links[-length:] == other.links


def base_of(name: str) -> str:
    """The variable that a name starts with."""
    return re.split(r"[.\[(]", name)[0]


def _is_plain(link: Link) -> bool:
    return link.kind not in ("item", "code")


def quoted(key: object) -> str:
    """Write a text or number as Python has it, a text in double quotes where it can be."""
    text = str(key)
    plain = text.isprintable() and set(text).isdisjoint('"\\')
    if plain and text == key:
        return f'"{text}"'
    return repr(key)
