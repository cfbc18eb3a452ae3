"""The documentation is true: commands and snippets run, links lead somewhere, lists are
complete.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Whence
from tests.docs.models import write_models
from tools.reference_pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RUN = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.parent.name == "tutorials" or path.stem in {"quickstart", "how_to", "index"}
)
_BLOCK = re.compile(r"(<!-- not run: (?P<why>.+?) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.S)


def in_nav(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry.values() if isinstance(entry, dict) else entry
    assert isinstance(values, list | type({}.values()))
    return [name for value in values for name in in_nav(value)]


def navigation() -> list[str]:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return in_nav(yaml.safe_load(text)["nav"])


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_snippets_run(
    path: Path, whence: Whence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, in one folder; the Python of a page shares its names."""
    write_models(tmp_path)
    monkeypatch.chdir(tmp_path)
    page = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    ran = 0
    for block in _BLOCK.finditer(path.read_text(encoding="utf-8")):
        if block["why"] or block["kind"] in {"toml", "text"}:
            continue
        if block["kind"] == "python":
            exec(compile(block["text"], str(path), "exec"), page.__dict__)
            ran += 1
            continue
        assert block["kind"] == "sh", f"{path.name} has a block of {block['kind']}"
        for line in block["text"].splitlines():
            words = shlex.split(line, comments=True)
            assert words[0] == "whence", f"{path.name}: mark what is not run: {line}"
            done = whence(*words[1:])
            assert done.code == 0, f"{line}\n{done.err}"
            ran += 1
    assert ran or path.stem == "index"


def test_every_page_is_in_the_navigation() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    listed = navigation()
    assert len(listed) == len(set(listed))
    decisions = {page for page in pages if page.startswith("decisions/")}
    assert pages - decisions == set(listed)


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://", "#")):
            continue
        assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_lists_are_complete(name: str) -> None:
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), "python -m tools.reference_pages brings it up to date"


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        check=False, cwd=ROOT, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in navigation():
        place = page.removesuffix(".md").removesuffix("index")
        assert (tmp_path / "site" / place / "index.html").is_file()
