"""Objects by name: one in each module of a folder, found and not listed, and those that were registered."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Mapping
from functools import cached_property
from typing import Generic, Protocol, TypeVar


class Named(Protocol):
    """Has a name."""

    @property
    def name(self) -> str:
        """One word."""


Item = TypeVar("Item", bound=Named)


class Registry(Generic[Item]):
    """The objects of one kind, by name."""

    def __init__(self, package: str, attribute: str, inside: str = "") -> None:
        """Finds nothing yet.

        Args:
            attribute: what a module of the package calls its object; one without it has none.
            inside: the objects are in modules of this name, one in each folder of the package.
        """
        self._package, self._attribute, self._inside = package, attribute, inside
        self._registered: dict[str, Item] = {}

    @cached_property
    def _own(self) -> Mapping[str, Item]:
        found = pkgutil.iter_modules(importlib.import_module(self._package).__path__, f"{self._package}.")
        names = [f"{module.name}.{self._inside}" if self._inside else module.name for module in found if module.ispkg or not self._inside]
        modules = [importlib.import_module(name) for name in names if importlib.util.find_spec(name) is not None]
        items: list[Item] = [getattr(module, self._attribute) for module in modules if hasattr(module, self._attribute)]
        return {item.name: item for item in items}

    def all(self) -> Mapping[str, Item]:
        """Each by its name; a registered one goes before one of the package."""
        return {**self._own, **self._registered}

    def __getitem__(self, name: str) -> Item:
        """The one of this name.

        Raises:
            KeyError: there is none.
        """
        return self.all()[name]

    def register(self, item: Item) -> None:
        """Add one that is no module of the package."""
        self._registered[item.name] = item

    def unregister(self, name: str) -> None:
        """Take one away that was added."""
        self._registered.pop(name, None)
