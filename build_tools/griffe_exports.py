"""The names that API pages show of rooms whose names stand once: those that they import as
themselves. Griffe knows ``__all__`` alone."""

from __future__ import annotations

from typing import Any

import griffe


class Exports(griffe.Extension):
    def on_module_members(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        """Exports what a room imports from files of the package."""
        del kwargs
        if mod.exports is None and mod.is_init_module:
            homes = {name: one.target_path for name, one in mod.members.items() if one.is_alias}
            own = (name for name, home in homes.items() if home.startswith("pyg_batchgnn."))
            mod.exports = [name for name in own if name != "late_names"]
