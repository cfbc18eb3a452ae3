"""report.html: one file that anybody can open, without a network. The page's own parts lie beside
this file and are put into it.
"""

from whence.report.html.page import write_html

__all__ = ["write_html"]
