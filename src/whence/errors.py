"""Every error whence raises on purpose, under one root, so that callers can catch one type.

An error message is written for the person who meets it: what was being done, on which operator of
*their* model, what was found, what to try next. It is one line.
"""


class WhenceError(Exception):
    """The root of all whence errors. `str(error)` is one line, fit to print to a user: names out of
    a file are quoted in it, and may be anything.
    """

    def __str__(self) -> str:
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class ModelError(WhenceError):
    """The user's model or input file is malformed, truncated, inconsistent or hostile."""


class TextError(ModelError):
    """The text of a graph cannot be read. The message begins with the line and the column."""


class UnsupportedError(WhenceError):
    """The model is well-formed, but asks for something whence does not implement."""


class InputError(WhenceError):
    """The values given to a model do not fit what the model declares."""


class GraphError(WhenceError):
    """A graph invariant is broken. `check_graph` raises it; seeing it means a pass has a bug."""


class RewriteError(GraphError):
    """A rewrite cannot be applied. The graph is exactly as it was before the attempt."""


class ProvenanceError(GraphError):
    """A source operator would be lost: it is neither live in the graph nor has a tombstone."""


class CompileError(WhenceError):
    """The C compiler is missing, or refused code that whence made. The message says where the code
    was kept.
    """


class CacheError(WhenceError):
    """The folder of compiled code cannot be used: no space, or not safe to load code from."""
