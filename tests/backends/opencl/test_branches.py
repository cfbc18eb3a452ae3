"""What the side of a choice needs that is not taken does not run on a device either."""

from __future__ import annotations

import numpy as np

from tests.runtime.models import assert_same, outputs, parsed
from tests.runtime.test_branches import CAPTURES, X
from whence.api import compile_model
from whence.runtime.engine import Engine


def test_both_branches(engine: Engine) -> None:
    graph = parsed(CAPTURES)
    model = compile_model(graph, engine=engine)
    for taken in (True, False, True):
        assert_same(outputs(model(X, np.array(taken))), graph.run([X, np.array(taken)]))
