"""Finds prose that breaks the rules a tool can see: long lines, odd openings, riddling phrases.

``python tests/support/prose.py FILES...`` prints one violation per line and exits with 1 if there
are any. It reads the docstrings, comments and texts of Python, the comments of C++ and Markdown's
text.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS = 100


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


#: Words that no docstring starts with: they open half a sentence.
BAD_OPENINGS = frozenset(
    _words("""
        After Among As At Before Between By For From How If In Into Is Not Of On Only Over Per
        Since So Than That Then There To Under Until Upon What When Where Whether Which While
        Who Whom Whose Why With Within Without
    """)
)
#: The docstring of a function or a class starts with one of these, with a verb in the third person
#: or with a noun in the plural.
ARTICLES = frozenset(
    _words("""
        A All An Another Both Each Either Every Everything Five Four Many Neither No Nobody
        Nothing One Several Some The These This Those Three True False Two
    """)
)

_UNITS = _words("""
    block byte column destination edge element epoch example exchange file group hop host id
    item layer line link list loader macrobatch message minibatch node page part process
    processor rank relation request round row run second seed source step table thread token
    type value word worker
""")
_ONE = "|".join([*_UNITS, "batch", "entry"])
_MANY = "|".join(
    [*(f"{unit}s?" for unit in _UNITS), "batch(?:es)?", "entr(?:y|ies)", "ms", "[KMG]i?B"]
).replace("runs?", "run")  # "runs" is a verb


#: Turns of phrase, with what is said instead.
PHRASES = {
    r"\bfore(?:tell|told|see|saw|seen)\w*": "predict or prefetch",
    r"\bof no meaning\b": "ignored unless ...",
    r"\bso (?:many|much)\b(?! (?:that|as)\b)": "give the number: 'N rows', 'at most N threads'",
    rf"(?<!whose )(?<!per )\b(?:{_MANY}) an? (?:{_ONE})\b": "'one row per node'",
    r"\bwhose \w+ (?:an?|the|each|every) (?:rank|node|user|loader|process|minibatch)\b": "'which ...'",
    r"\bwatchm[ae]n\b": "watchdog",
    r"\brehears\w+": "simulate",
    r"\b(?:RanksNeighborLoader|RelaySampler)\b": "a former name",
}
_PHRASES = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in PHRASES.items()]


@dataclass(frozen=True)
class Text:
    """A passage of prose.

    Attributes:
        lines: the number of each line and what stands in it, without quotes and comment signs.
        widths: the columns of each line in its file; 0 for lines that share theirs with code.
        kind: "module", "class", "function", "comment", "string" or "page".
    """

    lines: list[tuple[int, str]]
    widths: list[int]
    kind: str


def violations(path: Path) -> list[str]:
    """Returns what breaks the rules in a file, each as ``file:line: text``."""
    readers = {".py": python_texts, ".md": markdown_texts}
    source = path.read_text()
    found: set[tuple[int, str]] = set()
    for text in readers.get(path.suffix, cpp_texts)(source):
        found.update(check(text))
    return [f"{path}:{line}: {message}" for line, message in sorted(found)]


def check(text: Text) -> Iterator[tuple[int, str]]:
    """Yields the line and the fault of each violation in a passage."""
    for (line, words), width in zip(text.lines, text.widths, strict=True):
        if width > COLUMNS and "://" not in words:
            yield line, f"{width} columns of prose; at most {COLUMNS}"
    if text.kind in ("module", "class", "function"):
        yield from _check_opening(text)
    joined, starts = _join(text)
    for pattern, instead in _PHRASES:
        for match in pattern.finditer(joined):
            line = max(line for start, line in starts if start <= match.start())
            yield line, f"{match[0]!r}: {instead}"


def _check_opening(text: Text) -> Iterator[tuple[int, str]]:
    line, words = next(((line, words) for line, words in text.lines if words.strip()), (0, ""))
    first = re.match(r"[A-Za-z][a-z]*(?=[\s,])", words.strip())
    if first is None:
        return
    if first[0] in BAD_OPENINGS:
        yield (
            line,
            f"a docstring that starts with {first[0]!r}: start with a verb or with a noun and its article",
        )
    elif text.kind != "module" and first[0] not in ARTICLES and not first[0].endswith("s"):
        yield line, f"a docstring that starts with {first[0]!r}: 'Returns the ...', 'The ...'"


def _join(text: Text) -> tuple[str, list[tuple[int, int]]]:
    """The passage in one line, without code in back quotes, and where each line starts in it."""
    joined, starts = "", []
    for line, words in text.lines:
        starts.append((len(joined), line))
        joined += words.strip() + (" " if words.strip() else " \n ")
    return re.sub(r"(`+)[^`\n]*?\1", lambda match: "`" * len(match[0]), joined), starts


# Python ###########################################################################################


def python_texts(source: str) -> Iterator[Text]:
    """Yields docstrings, comments and other strings of several words."""
    nodes, lines = list(ast.walk(ast.parse(source))), source.splitlines()
    docstrings = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings.add(first.value)
                yield _docstring(first.value, lines, _kind(node))
    for node in nodes:
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in docstrings
            and " " in node.value
        ):
            yield Text([(node.lineno, node.value)], [0], "string")
    yield from _python_comments(source)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Module):
        return "module"
    if isinstance(node, ast.ClassDef):
        return "class"
    # A test states what holds.
    return "comment" if getattr(node, "name", "").startswith("test_") else "function"


def _docstring(node: ast.Constant, lines: list[str], kind: str) -> Text:
    numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    text = [(number, re.sub(r'^\s*r?"""|"""\s*$', "", lines[number - 1])) for number in numbers]
    return Text(text, [len(lines[number - 1]) for number in numbers], kind)


def _python_comments(source: str) -> Iterator[Text]:
    block: list[tuple[int, str, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, alone = token.start[0], not token.line[: token.start[1]].strip()
        if block and (line != block[-1][0] + 1 or not alone):
            yield _comment(block)
            block = []
        block.append((line, token.string.lstrip("#: "), len(token.line.rstrip()) if alone else 0))
    if block:
        yield _comment(block)


def _comment(block: list[tuple[int, str, int]]) -> Text:
    return Text([(line, words) for line, words, _ in block], [width for *_, width in block], "comment")


# C++ and Markdown #################################################################################


def cpp_texts(source: str) -> Iterator[Text]:
    """Yields comments; those in consecutive lines are one passage."""
    block: list[tuple[int, str, int]] = []
    inside = False  # of /* ... */
    for line, words in enumerate(source.splitlines(), 1):
        match = re.search(r'^(?:[^"]|"[^"]*")*?(//+|/\*)(.*)', words)
        if inside or match:
            comment = words if match is None else match[2]
            alone = inside or (match is not None and not words[: match.start(1)].strip())
            inside = (inside or (match is not None and match[1] == "/*")) and "*/" not in comment
            block.append((line, re.sub(r"^\s*[*/!<]+|\*/", "", comment).strip(), len(words) if alone else 0))
        elif block:
            yield _comment(block)
            block = []
    if block:
        yield _comment(block)


def markdown_texts(source: str) -> Iterator[Text]:
    """Yields a page without its code; tables, headings and lines of one link may be long."""
    lines, widths, fence = [], [], ""
    for number, line in enumerate(source.splitlines(), 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        elif not fence:
            free = line.lstrip().startswith(("|", "#", "<img", "[![", "![")) or re.match(
                r"^\s*[-*]? ?\[[^\]]*\]\S*$", line
            )
            lines.append((number, line))
            widths.append(0 if free else len(line))
    yield Text(lines, widths, "page")


def main(paths: list[str]) -> int:
    """Prints the violations in some files; returns 1 where there are any."""
    found = [violation for path in paths for violation in violations(Path(path))]
    print("\n".join(found), end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
