"""XML annotation files: encodings that tools write, and attacks on the parser."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.data.decoding.reading import Unfit, read_xml
from engine.system.regular_files import UnusableFile

BODY = "<a><b>é图</b></a>"


def declare_encoding(encoding: str) -> str:
    return f'<?xml version="1.0" encoding="{encoding}"?>\n{BODY}'


@pytest.mark.parametrize(
    "content",
    [
        BODY.encode(),
        BODY.encode("utf-8-sig"),
        BODY.encode("utf-16"),
        declare_encoding("utf-8").encode("utf-8-sig"),
        declare_encoding("utf-16").encode("utf-16"),
        declare_encoding("utf-16").encode("utf-16-le"),
        declare_encoding("utf-16").encode("utf-16-be"),
        declare_encoding("utf-16").encode("utf-8"),
        declare_encoding("UTF-16").encode("utf-8-sig"),
        declare_encoding("ucs-2").encode("utf-8"),
        declare_encoding("UTF-32").encode("utf-8"),
        declare_encoding("utf-8").encode("utf-16"),
        declare_encoding("utf-8").encode("utf-32"),
        declare_encoding("gb18030").encode("gb18030"),
        declare_encoding("gb18030").encode("utf-8-sig"),
        b"\r\n  " + declare_encoding("utf-8").encode(),
        BODY.replace("<a>", '<a xmlns="http://example.org">').encode(),
        BODY.replace("<a>", '<a xmlns="http://example.org">').encode("utf-16"),
        BODY.replace("a>", "n:a>").replace("<n:a>", '<n:a xmlns:n="http://example.org">').encode(),
    ],
)
def test_xml_of_any_encoding_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(content)
    root = read_xml(str(path))
    assert (root.tag, root.findtext("b")) == ("a", "é图")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<a>",
        b"<a>\xff</a>",
        b"\xff\xfe<",
        declare_encoding("klingon").encode(),
        declare_encoding("punycode").encode(),
        b"\0\0",
    ],
)
def test_xml_that_is_broken_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.xml"
    path.write_bytes(content)
    with pytest.raises(Unfit, match="not valid XML"):
        read_xml(str(path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gbk"])
def test_xml_with_an_entity_bomb_is_refused(tmp_path: Path, encoding: str) -> None:
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(12))
    path = tmp_path / "a.xml"
    bomb = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE a [<!ENTITY e0 "x">{entities}]><a>&e12;</a>'
    path.write_text(bomb, encoding)
    with pytest.raises((Unfit, UnusableFile)):
        read_xml(str(path))
