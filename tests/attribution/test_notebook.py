"""Profiles in a notebook."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

import whence
from tests.attribution.harness import conv_bn_relu, profile_of
from whence.errors import UnsupportedError

HOSTILE = "</table><script>x</script>"


def test_a_profile_prints_in_a_line() -> None:
    found = profile_of(conv_bn_relu(), 1_000_000)
    assert len(repr(found)) < 200
    assert repr(found).startswith("<Profile of 'made/up.onnx' on cpu, 2 threads: ")
    assert "most in '/net/layer1/conv'" in repr(found)


def test_a_profile_is_a_table_in_which_names_are_text() -> None:
    text = profile_of(conv_bn_relu(HOSTILE), 1_000_000)._repr_html_()
    assert text.count("<tr>") == 5
    assert "<script" not in text
    assert html.escape(HOSTILE) in text


def test_the_whole_report_is_shown_in_a_frame(tmp_path: Path) -> None:
    found = whence.profile(conv_bn_relu(), runs=1, warmup=0)
    report = found.report(height=500)
    (inside,) = re.findall(r'srcdoc="([^"]*)"', report._repr_html_())
    found.save(tmp_path)
    assert html.unescape(inside) == (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'height="500"' in report._repr_html_()
    assert len(repr(report)) < 60


def test_a_profile_without_a_report_says_so() -> None:
    with pytest.raises(UnsupportedError, match="save"):
        profile_of(conv_bn_relu()).report()
