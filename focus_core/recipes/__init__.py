"""What an edge is worth to the policy: recipes turn a tree into advantages."""

from focus_core.recipes.base import Credit, Recipe
from focus_core.recipes.direct_branch import DirectBranchTd
from focus_core.recipes.group import GroupCentered
from focus_core.recipes.refined_td import RefinedTd

__all__ = ["Credit", "DirectBranchTd", "GroupCentered", "Recipe", "RefinedTd"]
