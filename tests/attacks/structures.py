"""Random changes to the structure of JSON, XML and YAML files, which usually remain well-formed.

Values get other types, are missing, duplicated, huge, or deeply nested, or refer to something that doesn't exist. The
functions get a random generator `drawn`, and `root`, a list with the document as its only item.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

SUFFIXES = (".json", ".emd", ".yaml", ".xml")


class Raw(str):
    """Text that is written to a JSON document without quotation marks and escapes."""


class Pairs(list[tuple[str, Any]]):
    """JSON object as a list of pairs (key, value), in which a key may occur twice."""


Place = tuple[Any, int]
"""Position in a document: a list or Pairs, and an index into it."""

NUMBERS = (
    0, -1, 1.5, -0.0, 1e-320, 255, 256, 65_536, 178_956_971, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1,
    Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e400"), Raw("-1e400"), Raw("9" * 400), Raw("9" * 5000), Raw("1e-400"),
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "\x1b[2J\n\r\t", "a\nb", "\u202egpj", Raw('"\\ud800"'), "x" * 300, "x" * 50_000, "../../../../etc/passwd",
    "/dev/zero", "..", ".", "a/b/c", "0", "-1", "nan", "inf", "1e999", "0x10", "1_000", "\u0663", "9" * 5000, "null", "<b>", "%s%n",
)  # fmt: skip
SHAPES: tuple[Any, ...] = (
    None, True, False, [], Pairs(), [[]], [None], [[None]], Pairs([("a", Pairs())]), Pairs([("", [])]), [0] * 1000, ["a", 1, None],
    [1, 2], [1, 2, 3, 4], [-1] * 4, [Raw("NaN")] * 4, [[1, 1, 9, 1, 9, 9]], Pairs([("size", [16, 20]), ("counts", [320])]),
    *(Raw("[" * deep + "]" * deep) for deep in (50, 500, 3000, 100_000)), *(Raw('{"a":' * deep + "1" + "}" * deep) for deep in (900, 3000)),
)  # fmt: skip
_XML = (
    *("<a>" * deep + "</a>" * deep for deep in (50, 3000, 200_000)), "&#27;[2J", "&lol;", "<![CDATA[" + "x" * 5000 + "]]>", "<b/>" * 2000,
    "<!-- x -->", "<?php x?>", "1<b/>2", "\ufffe", "]]>", "&", "<object/>", "<bndbox/>" * 3,
)  # fmt: skip
_PROLOGUES = (
    '<!DOCTYPE a [<!ENTITY lol "' + "lol" * 100 + '">]>', '<?xml version="1.0" encoding="utf-7"?>', '<?xml version="1.0" encoding="x"?>',
    '<!DOCTYPE a [<!ENTITY lol SYSTEM "file:///etc/passwd">]>', '<?xml version="9.9"?>', "\ufeff", "\0", "<!DOCTYPE a SYSTEM 'http://127.0.0.1:9/'>",
    '<!DOCTYPE a [<!ENTITY l0 "lol">' + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10)) + '<!ENTITY lol "&l9;">]>',
)  # fmt: skip


def damage_structure(path: Path, drawn: random.Random) -> None:
    """Make one to eight random changes to a JSON, XML or YAML file."""
    times = drawn.choice((1, 1, 1, 1, 2, 3, 8))
    if path.suffix == ".xml":
        _damage_xml(path, drawn, times)
        return
    text = path.read_text()
    path.write_text(
        damage_text(text if path.suffix != ".yaml" else _as_json(text), drawn, times), errors="surrogatepass"
    )


def damage_text(text: str, drawn: random.Random, times: int) -> str:
    """Return the JSON document `text` with `times` random changes."""
    root = [json.loads(text, object_pairs_hook=Pairs)]
    for _ in range(times):
        drawn.choice(_OF_JSON)(drawn, root)
    return _write_node(root[0])


# JSON, a subset of YAML


def _as_json(text: str) -> str:
    import yaml

    return json.dumps(yaml.safe_load(text))


def _write_node(node: Any) -> str:
    match node:
        case Raw():
            return str(node)
        case Pairs():
            return "{" + ",".join(f"{json.dumps(key)}:{_write_node(value)}" for key, value in node) + "}"
        case list():
            return "[" + ",".join(map(_write_node, node)) + "]"
    return json.dumps(node)


def _iterate_positions(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Place]]:
    """Yield (path of keys, position) of each value below `node`. The key of a list's item is ""."""
    if isinstance(node, list):
        for number, item in enumerate(node):
            key, value = item if isinstance(node, Pairs) else ("", item)
            yield (*path, key), (node, number)
            yield from _iterate_positions(value, (*path, key))


def _draw_positions(drawn: random.Random, root: list[Any]) -> list[Place]:
    """Draw a random position, or sometimes all positions with the same path of keys.

    All key paths are equally likely, however many positions they have. Otherwise, coordinates would be a hundred times
    as likely as names.
    """
    by_path: dict[tuple[str, ...], list[Place]] = {}
    for path, place in _iterate_positions(root):
        by_path.setdefault(path, []).append(place)
    alike = drawn.choice(list(by_path.values()))
    return alike if drawn.random() < 0.2 else [drawn.choice(alike)]


def _draw_position(drawn: random.Random, root: list[Any]) -> Place:
    return _draw_positions(drawn, root)[0]


def _replace_value(place: Place, value: Any) -> None:
    """Replace the value at a position by a copy of `value`, so that no value can contain itself."""
    within, number = place
    value = deepcopy(value)
    within[number] = (within[number][0], value) if isinstance(within, Pairs) else value


def _get_value(place: Place) -> Any:
    within, number = place
    return within[number][1] if isinstance(within, Pairs) else within[number]


def _replace(drawn: random.Random, root: list[Any]) -> None:
    value = drawn.choice(drawn.choice((NUMBERS, TEXTS, SHAPES)))
    for place in _draw_positions(drawn, root):
        _replace_value(place, value)


def _replace_alike(drawn: random.Random, root: list[Any]) -> None:
    """Replace a random value, or all values with the same path of keys, by random values of the same type."""
    for place in _draw_positions(drawn, root):
        was = _get_value(place)
        _replace_value(
            place, drawn.choice(TEXTS if isinstance(was, str) else NUMBERS if isinstance(was, int | float) else SHAPES)
        )


def _remove(drawn: random.Random, root: list[Any]) -> None:
    for within, number in reversed(_draw_positions(drawn, root)):
        if within is not root:
            del within[number]


def _duplicate(drawn: random.Random, root: list[Any]) -> None:
    """Insert up to 1,000 copies of a random element of the document `root` after the element, in place.

    If the element is a pair (key, value) of a JSON object, the copies may have another value.
    """
    within, number = _draw_position(drawn, root)
    if within is root:
        return
    again = within[number]
    if isinstance(within, Pairs) and drawn.random() < 0.5:
        again = again[0], drawn.choice(SHAPES)
    within[number + 1 : number + 1] = [deepcopy(again) for _ in range(drawn.choice((1, 1, 3, 1000)))]


def _rename(drawn: random.Random, root: list[Any]) -> None:
    within, number = _draw_position(drawn, root)
    if isinstance(within, Pairs):
        name = within[number][0]
        other = drawn.choice((name.upper(), f"{name} ", f"{name}s", "", "\0", drawn.choice(within)[0], "x" * 5000))
        within[number] = (other, within[number][1])


def _replace_by_copy(drawn: random.Random, root: list[Any]) -> None:
    """Replace a random value by a copy of another value, or of the entire document."""
    _replace_value(
        _draw_position(drawn, root), _get_value(_draw_position(drawn, root)) if drawn.random() < 0.9 else [root[0]]
    )


def _wrap(drawn: random.Random, root: list[Any]) -> None:
    place = _draw_position(drawn, root)
    _replace_value(
        place,
        drawn.choice(
            (
                [_get_value(place)],
                Pairs([("a", _get_value(place))]),
                [[[_get_value(place)]]],
                str(_get_value(place))[:1000],
            )
        ),
    )


_OF_JSON: tuple[Callable[[random.Random, list[Any]], None], ...] = (
    _replace, _replace, _replace, _replace_alike, _replace_alike, _replace_alike, _remove, _remove, _duplicate, _rename, _replace_by_copy, _wrap,
)  # fmt: skip


# XML


def _damage_xml(path: Path, drawn: random.Random, times: int) -> None:
    root = ElementTree.fromstring(path.read_text())
    raw: dict[str, str] = {}
    for _ in range(times):
        _damage_element(drawn, root, raw)
    text = ElementTree.tostring(root, encoding="unicode")
    for name, content in raw.items():
        text = text.replace(name, content)
    path.write_text((drawn.choice(_PROLOGUES) if drawn.random() < 0.1 else "") + text, errors="surrogatepass")


def _damage_element(drawn: random.Random, root: ElementTree.Element, raw: dict[str, str]) -> None:
    elements = list(root.iter())
    tag = drawn.choice(sorted({element.tag for element in elements}))
    chosen = drawn.choice([element for element in elements if element.tag == tag])
    match drawn.choice(("text", "text", "text", "number", "number", "raw", "raw", "take", "twice", "rename", "empty")):
        case "text" | "number" as kind:
            value = drawn.choice(NUMBERS if kind == "number" else TEXTS)
            chosen.text = _make_placeholder(raw, escape(str(value)))
        case "raw":
            chosen.text = _make_placeholder(raw, drawn.choice(_XML))
        case "take":
            for child in list(chosen)[: drawn.choice((1, 100))]:
                chosen.remove(child)
        case "twice":
            for child in list(chosen):
                chosen.extend([child] * drawn.choice((1, 1, 3, 500)))
        case "rename":
            chosen.tag = drawn.choice((chosen.tag.upper(), f"{chosen.tag}s", "a", drawn.choice(elements).tag))
        case "empty":
            chosen.clear()


def _make_placeholder(raw: dict[str, str], content: str) -> str:
    """Add `content` to `raw`, and return a placeholder that ElementTree can write in its place.

    `raw` maps placeholders to contents.
    """
    name = f"RAW{len(raw)}WAR"
    raw[name] = content
    return name
