"""What API pages show beside docstrings: the names of rooms whose names stand once, which are those
that they import as themselves (griffe knows ``__all__`` alone), comments at fields, examples as
code, and arguments that share a line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
_NAMES = re.compile(r"^ +[*\w]+(?:, [*\w]+)+(?=: )", re.MULTILINE)


class Exports(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Fences examples, which Markdown would take for quotations of quotations, and joins the
        names of "a, b: text", of which griffe would take all but the first for a type."""
        del kwargs
        if obj.docstring is not None:
            text = _EXAMPLE.sub("```pycon\n\\g<0>\n```", obj.docstring.value)
            obj.docstring.value = _NAMES.sub(lambda names: names[0].replace(", ", ","), text)

    def on_module_members(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Exports what a room imports from files of the package."""
        del kwargs
        if mod.exports is None and mod.is_init_module:
            homes = {name: one.target_path for name, one in mod.members.items() if one.is_alias}
            own = (name for name, home in homes.items() if home.startswith("pyg_batchgnn."))
            mod.exports = [name for name in own if name != "late_names"]

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Takes the comment at a field, or the lines ``#:`` above it, as its docstring."""
        del kwargs
        if attr.docstring is not None or attr.lineno is None or attr.endlineno is None:
            return
        if attr.parent is None or not attr.parent.is_class or not isinstance(attr.filepath, Path):
            return
        lines = attr.lines_collection[attr.filepath]
        above, at = list[str](), attr.lineno - 2
        while at >= 0 and lines[at].strip().startswith("#:"):
            above.insert(0, lines[at].strip().removeprefix("#:").strip())
            at -= 1
        behind = re.search(r"  # (.+)$", lines[attr.endlineno - 1])
        text = " ".join(above) or (behind.group(1) if behind is not None else "")
        if text:
            attr.docstring = griffe.Docstring(text[0].upper() + text[1:], parent=attr)
