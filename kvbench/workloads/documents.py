"""Documents: what is read. Made ones, the same on every machine, or the user's own text files."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kvbench.errors import UsageError
from kvbench.workloads.draws import Draws
from kvbench.workloads.prompt_text import PromptText


class Documents(Protocol):
    """Documents by their number."""

    names: list[str] | None
    """File names by document, ``None`` for synthetic documents."""

    def tokens(self, doc_id: int) -> list[int]:
        """The token ids of one document, the same at every call."""

    def length(self, doc_id: int) -> int:
        """How many tokens that is, known without making them."""


class MadeDocuments:
    """Documents of random token ids, as many as are asked for.

    The first ``round(overlap · length)`` tokens are common to all. The token after them differs between documents (the two after them,
    once there are more documents than token ids), so two documents never have more of a head in common than was asked for.
    """

    names: list[str] | None = None

    def __init__(self, seed: int, length: int, vocab: int, overlap: float = 0.0) -> None:
        """``length`` in tokens; ids are drawn from ``0 .. vocab - 1``."""
        self._seed, self._length, self._vocab = seed, length, vocab
        self._head = Draws(seed, "head").integers(round(overlap * length), 0, vocab)
        self._offset = Draws(seed, "offset").integers(1, 0, vocab)[0]

    def tokens(self, doc_id: int) -> list[int]:
        """The shared head, the tokens that tell this document from the others, then its own random tokens."""
        high, low = divmod(doc_id, self._vocab)
        own = [(low + self._offset) % self._vocab, (high + self._offset) % self._vocab]
        rest = self._length - len(self._head)
        return self._head + (own + Draws(self._seed, "document", doc_id).integers(rest, 0, self._vocab))[:rest]

    def length(self, doc_id: int) -> int:
        """The same for every document."""
        return self._length


class TextDocuments:
    """The text files of a folder and of the folders in it, by name, each with its own length."""

    def __init__(self, folder: Path, tokenizer: Path, vocab: int) -> None:
        """Read and tokenise every file; hidden files are left out, and no special tokens are added.

        ``folder``: holds UTF-8 text files. ``tokenizer``: the model's ``tokenizer.json``. ``vocab``: the model knows the ids below it.
        Raises ``UsageError``: no such folder, no file in it, a file that is not text or is empty, no tokenizer, or one of another model.
        """
        files = _text_files(folder)
        text = PromptText(tokenizer, "--documents")
        self.names: list[str] | None = [file.relative_to(folder).as_posix() for file in files]
        self._tokens: list[list[int]] = [text.plain(_read_text(file)) for file in files]
        for file, tokens in zip(files, self._tokens, strict=True):
            if not tokens:
                raise UsageError(f"--documents: {file} holds no text; remove it or fill it")
            if max(tokens) >= vocab:
                raise UsageError(f"{tokenizer}: gives token {max(tokens):,}, and the model's vocabulary ends at {vocab - 1:,}: not its own")

    def __len__(self) -> int:
        return len(self._tokens)

    def tokens(self, doc_id: int) -> list[int]:
        """The token ids of the file with this number, in the order of the names."""
        return self._tokens[doc_id]

    def length(self, doc_id: int) -> int:
        """Tokens of that file."""
        return len(self._tokens[doc_id])


def make_question(seed: int, length: int, vocab: int, pass_index: int | None) -> list[int]:
    """The question of a pass; ``pass_index`` ``None`` gives the one that every pass asks."""
    return Draws(seed, "question", "same" if pass_index is None else pass_index).integers(length, 0, vocab)


def _text_files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UsageError(f"--documents {folder}: no such folder; name a folder of text files")
    inside = (path for path in folder.rglob("*") if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    files = sorted((path for path in inside if path.is_file()), key=lambda path: path.relative_to(folder).as_posix())
    if not files:
        raise UsageError(f"--documents {folder}: the folder holds no file; put text files there")
    return files


def _read_text(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"--documents: {file} is not UTF-8 text (byte {error.start}); remove it from the folder") from None
    except OSError as error:
        raise UsageError(f"--documents: {file} cannot be read ({error.strerror})") from None
    if "\0" in text:
        raise UsageError(f"--documents: {file} is not text (it has NUL bytes); remove it from the folder")
    return text
