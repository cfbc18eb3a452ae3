"""Every error whence raises on purpose, under one root, so that callers can catch one type.

An error message is written for the person who meets it: what was being done, on which operator of
*their* model, what was found, what to try next. It is one line.
"""


class WhenceError(Exception):
    """The root of all whence errors. `str(error)` is one line, fit to print to a user: names out of
    a file are quoted in it, and may be anything.

        >>> try:
        ...     whence.load("missing.onnx")
        ... except whence.WhenceError as error:
        ...     print(error)
        'missing.onnx': no such file
    """

    def __str__(self) -> str:
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class ModelError(WhenceError):
    """The user's model or input file is malformed, truncated, inconsistent or hostile.

    Example:

        >>> _ = pathlib.Path("cut.onnx").write_bytes(pathlib.Path("model.onnx").read_bytes()[:-9])
        >>> whence.load("cut.onnx")
        Traceback (most recent call last):
        whence.errors.ModelError: ...
    """


class TextError(ModelError):
    """The text of a graph cannot be read. The message begins with the line and the column.

    Example:

        >>> from whence.graph.parse import parse_graph
        >>> parse_graph("graph(")
        Traceback (most recent call last):
        whence.errors.TextError: 1:...
    """


class UnsupportedError(WhenceError):
    """The model is well-formed, but asks for something whence does not implement.

    Example:

        >>> whence.save(whence.load("model.onnx"), "model.pb")
        Traceback (most recent call last):
        whence.errors.UnsupportedError: 'model.pb': whence writes .onnx, .tflite and .circle files
    """


class InputError(WhenceError):
    """The values given to a model do not fit what the model declares.

    Example:

        >>> model = whence.compile("model.onnx")
        >>> model(np.zeros((1, 3, 32, 33), np.float32))
        Traceback (most recent call last):
        whence.errors.InputError: ...
    """


class GraphError(WhenceError):
    """A graph invariant is broken. `check_graph` raises it; seeing it means a pass has a bug.

    Example:

        >>> from whence.graph.check import check_graph
        >>> graph = whence.load("model.onnx")
        >>> check_graph(graph)
        >>> graph[999]
        Traceback (most recent call last):
        whence.errors.GraphError: graph 'images' has no node %999
    """


class RewriteError(GraphError):
    """A rewrite cannot be applied. The graph is exactly as it was before the attempt.

    Example:

        >>> from whence.graph import Rewriter
        >>> graph = whence.load("relus.onnx")
        >>> first, second = [node for node in graph if node.op == "Relu"]
        >>> edit = Rewriter(graph, "mine").edit(second, rule="forgets why it may go")
        >>> edit.replace(second, first)
        >>> edit.apply()
        Traceback (most recent call last):
        whence.errors.RewriteError: ...
    """


class ProvenanceError(GraphError):
    """A source operator would be lost: it is neither live in the graph nor has a tombstone.

    Example:

        >>> from whence.graph.check import Check, check_graph
        >>> graph = whence.load("relus.onnx")
        >>> first, second = [node for node in graph if node.op == "Relu"]
        >>> graph.set_inputs(graph.outputs[0], first.inputs)
        >>> graph.remove(second)
        >>> check_graph(graph, Check.ORIGIN)
        Traceback (most recent call last):
        whence.errors.ProvenanceError: something lost source operator 2 ...
    """


class CompileError(WhenceError):
    """The C compiler is missing, or refused code that whence made: the message says where the code
    was kept. Or a backend gave something else than code for the kernels that it was given.

        >>> from whence.errors import CompileError
        >>> try:
        ...     model = whence.compile("model.onnx")
        ... except CompileError as error:
        ...     print(error, "- `whence doctor` says which compiler is used")
    """


class CacheError(WhenceError):
    """The folder of compiled code cannot be used: no space, or not safe to load code from.

    Example:

        >>> from whence.errors import CacheError
        >>> try:
        ...     model = whence.compile("model.onnx")
        ... except CacheError as error:
        ...     print(error, "- WHENCE_CACHE names another folder")
    """
