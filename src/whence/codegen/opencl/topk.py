"""TopK in OpenCL C: a work item for each row."""

from __future__ import annotations

from whence.codegen.micro_topk import write_row
from whence.codegen.opencl.render_cl import ClWriter, Geometry
from whence.kernels.ir import TASK, Micro
from whence.kernels.topk import TopK


def write_topk(writer: ClWriter, micro: Micro) -> None:
    assert isinstance(micro, TopK)
    writer.geometry = Geometry((writer.kernel.tasks,), (1,))
    writer.line(f"const {writer.counter} {TASK} = get_global_id(0);")
    write_row(writer, micro)
