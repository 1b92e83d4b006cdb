"""The package's page on a package index, made from README.md.

A package index shows the README alone, so links to other files of the repository lead nowhere
there. ``PYG_BATCHGNN_URL`` is the address under which the repository's files can be seen. With it
such links become absolute. Without it their text stays, and pictures are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

VARIABLE = "PYG_BATCHGNN_URL"
BATCHGNN = "https://arxiv.org/abs/2306.13814"

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_COMMENT = re.compile(r"^<!--.*?-->\n\n?", re.MULTILINE | re.DOTALL)


def package_page(readme: str, url: str | None) -> str:
    """Returns the README with links that work on a package index.

    Args:
        readme: the text of README.md.
        url: the address of the repository's root, or None.
    """

    def link(match: re.Match[str]) -> str:
        picture, text, target = match.group("picture", "text", "target")
        if re.match(r"https?://|#|mailto:", target):
            return match.group()
        if url is not None:
            return f"{picture}[{text}]({url.rstrip('/')}/{target})"
        return "" if picture else text

    return _LINK.sub(link, _COMMENT.sub("", readme))


def metadata(root: Path) -> dict[str, object]:
    """Returns the arguments of ``setup`` that depend on the address: the page and the links."""
    url = os.environ.get(VARIABLE) or None
    urls = {"BatchGNN": BATCHGNN} | ({"Source": url} if url else {})
    return {
        "long_description": package_page((root / "README.md").read_text(encoding="utf-8"), url),
        "long_description_content_type": "text/markdown",
        "project_urls": urls,
    }
