"""The contract of recipes: an advantage for each edge of any tree, which is only read."""

from __future__ import annotations

from typing import Any

import numpy as np

from focus_core.collect import Collection
from focus_core.errors import UsageError
from focus_core.recipes import Credit, Recipe
from focus_core.testing._looking import form
from focus_core.testing.base import Contract, contract, require
from focus_core.testing.lane_contract import example_collections
from focus_core.tree.returns import Values, backup
from focus_core.tree.tree import ROOT

__all__ = ["RecipeContract"]


class RecipeContract(Contract):
    """What every recipe keeps; ``subject()`` gives a fresh one."""

    @contract()
    def test_has_the_methods(self) -> None:
        """A recipe has credit() and needs_critic."""
        made = self.subject()
        require(isinstance(made, Recipe), f"{type(made).__name__} lacks one of them")
        require(isinstance(made.needs_critic, bool), "needs_critic is no bool")

    @contract()
    def test_credits_every_shape_of_tree(self) -> None:
        """credit() gives each node a finite advantage, or NaN where no edge is trained."""
        for name, collection in self._trees():
            credit = self._credit(collection)
            require(isinstance(credit, Credit), f"{name}: credit() returned no Credit")
            size = len(collection.tree)
            for column in ("advantages", "values"):
                if getattr(credit, column) is None and column == "values":
                    continue
                array = np.asarray(getattr(credit, column), np.float64)
                shaped = array.shape == (size,)
                require(shaped, f"{name}: {column} of shape {array.shape} for {size} nodes")
                require(not np.isinf(array).any(), f"{name}: {column} hold an infinity")
            require(
                np.isnan(np.asarray(credit.advantages)[ROOT]),
                f"{name}: the root has an advantage, and no edge leads to it",
            )
            whole = all(isinstance(count, int | np.integer) for count in credit.counts.values())
            require(whole, f"{name}: counts are no integers: {dict(credit.counts)}")

    @contract()
    def test_changes_nothing(self) -> None:
        """The tree and its values are only read."""
        for name, collection in self._trees():
            read = [collection.tree, _values(collection)]
            before = form(read)
            self.subject().credit(*read, gamma=1.0)
            require(form(read) == before, f"{name}: credit() changed the tree or its values")

    @contract()
    def test_same_tree_same_credit(self) -> None:
        """Crediting again gives the same numbers."""
        for name, collection in self._trees():
            one, other = (np.asarray(self._credit(collection).advantages) for _ in range(2))
            require(np.array_equal(one, other, equal_nan=True), f"{name}: the advantages differ")

    @contract()
    def test_something_is_trained(self) -> None:
        """Some edge of some tree has an advantage that is not zero."""
        columns = [np.asarray(self._credit(tree).advantages) for _, tree in self._trees()]
        require(
            any(np.nan_to_num(column).any() for column in columns),
            "no edge of any tree has an advantage: nothing would ever be trained",
        )

    @contract()
    def test_discount_is_the_collectors(self) -> None:
        """Gamma may be anything from 0 to 1."""
        for name, collection in self._trees():
            for gamma in (0.0, 0.5):
                column = np.asarray(self._credit(collection, gamma).advantages)
                require(not np.isinf(column).any(), f"{name}: an infinity at gamma {gamma}")

    def _trees(self) -> list[tuple[str, Collection]]:
        """Those that it credits; a recipe of whole rollouts refuses trees that branch."""
        whole = getattr(self.subject(), "needs_rollouts", False)
        found = []
        for name, collection in example_collections().items():
            try:
                self._credit(collection)
            except UsageError as refusal:
                require(
                    whole,
                    f"{name}: credit() refused the tree ({refusal}); with needs_rollouts = True "
                    "no search would branch it",
                )
            else:
                found.append((name, collection))
        require(found, "credit() refused every tree")
        return found

    def _credit(self, collection: Collection, gamma: float = 1.0) -> Any:
        values = _values(collection, gamma)
        return self.subject().credit(collection.tree, values, gamma=gamma)


def _values(collection: Collection, gamma: float = 1.0) -> Values:
    return backup(collection.tree, gamma=gamma, kappa=1.0)
