"""Members of packages, in every form that the manifest knows."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from zoo.archives import FetchError, onnx_folder, read_member


def zip_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tar_bytes(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_a_plain_member_of_a_wheel_and_of_a_tarball(tmp_path: Path) -> None:
    wheel, tarball = tmp_path / "p.whl", tmp_path / "p.tgz"
    wheel.write_bytes(zip_bytes({"p/m.onnx": b"in a wheel"}))
    tarball.write_bytes(tar_bytes({"package/m.onnx": b"in a tarball"}))
    assert read_member(wheel, "p/m.onnx") == b"in a wheel"
    assert read_member(tarball, "package/m.onnx") == b"in a tarball"


def test_a_member_of_an_archive_inside_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "p.whl"
    wheel.write_bytes(zip_bytes({"p/models.zip": zip_bytes({"m.tflite": b"deep"})}))
    assert read_member(wheel, "p/models.zip!m.tflite") == b"deep"
    with pytest.raises(FetchError, match=r"p\.whl holds no p/models\.zip!other"):
        read_member(wheel, "p/models.zip!other")


def test_a_file_in_pieces_is_joined_in_the_order_of_its_list(tmp_path: Path) -> None:
    index = {
        "/m": {"chunks": [{"hash": "b2"}, {"hash": "a1"}, {"name": "c3"}]},
        "/other": {"chunks": []},
    }
    tarball = tmp_path / "p.tgz"
    tarball.write_bytes(
        tar_bytes(
            {
                "package/d/i.json": json.dumps(index).encode(),
                "package/d/a1": b"two",
                "package/d/b2": b"one",
                "package/d/c3": b"!",
            }
        )
    )
    assert read_member(tarball, "package/d/i.json#/m") == b"onetwo!"


def test_a_folder_stands_for_an_installed_package() -> None:
    light = read_member(onnx_folder(), "backend/test/data/light/light_squeezenet.onnx")
    assert len(light) > 10_000


@pytest.mark.parametrize("make", [zip_bytes, tar_bytes])
def test_a_missing_member_is_named(tmp_path: Path, make) -> None:
    archive = tmp_path / "p.archive"
    archive.write_bytes(make({"a": b""}))
    with pytest.raises(FetchError, match=r"p\.archive holds no b\.onnx"):
        read_member(archive, "b.onnx")


def test_a_folder_without_the_member_is_named(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"holds no b\.onnx"):
        read_member(tmp_path, "b.onnx")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "p.whl"
    archive.write_bytes(b"<html>not found</html>")
    with pytest.raises(FetchError, match=r"p\.whl is not a readable package"):
        read_member(archive, "m.onnx")
