"""What ``focus_core`` exports, pinned: a name added or lost is a decision, made here."""

import importlib
import inspect
import pickle

import pytest

import focus_core
from focus_core import testing

NAMES = """
    ActorRecord Agent BadCall Batch BatchCollected BatchSource BestFirst BetaBernoulli Calibration
    CollectedBatch Collection CollectionError Collector CollectorFor CommandSpec Context
    ConverterSpec Credit Critic CriticError CriticRecord CriticSink DataError DataWarning
    DeadlineError Decisions Dialect DirectBranchTd Env Execution ExecutionError Explained Failure
    Fifo FocusError FoldError Folding Frontier Gaussian Generation GenerationError GradingError
    GroupCentered Hermes Independent JsonlDirectory Lane LaneSpec LaunchPlan Limits ObserverSpec
    Observers OffPolicyError Order OwnLoop Parsed PluginError Policy PolicyEvaluated
    PolicyPublished Prefix PreparedPrompt Problem ProcessExecution Progress QwenXml Recipe
    RecordError RecordsDelivered RefinedTd Reply ReplyEnv Rollout Row RunFinished RunStarted
    RunStatus SamplingParams Sandbox SandboxResult SandboxSpec Search Segments Selective Sequential
    Shifted Shuffled Span StaleBatchError StepFinished StepReport Task TaskDefaults TaskSpec
    ThreadExecution TokenEntropy Tool ToolCall ToolEnv ToolState Trainer TrainerError TrainerSpec
    Transition Tree TreeRecords Turn Turns UnknownNameError UpdateStarted UsageError VLLMCritic
    Values Workspace check_batch collect_records find_dialect hookimpl read_rows run_batches
    run_schedule shifted OPEN TERMINAL TRUNCATED save_tree CriticSpec
    RecipeSpec SearchSpec Aside SetAside
""".split()  # noqa: SIM905  # a list of 75 strings is not read

FIXED = """
    Agent Collector CollectorFor Critic CriticSink DirectBranchTd JsonlDirectory Problem Segments
    Selective VLLMCritic Workspace collect_records Transition SamplingParams Generation Env Policy
    Trainer Task hookimpl
""".split()  # noqa: SIM905  # a list of 75 strings is not read
"""Names the source documents and the architecture fix."""


def test_the_names_are_these():
    assert sorted(focus_core.__all__) == sorted(NAMES)
    assert len(set(focus_core.__all__)) == len(focus_core.__all__)


def test_the_names_scripts_rely_on_are_among_them():
    assert set(FIXED) <= set(focus_core.__all__)


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_imported_and_is_exported_where_it_lives(name):
    value = getattr(focus_core, name)
    home = importlib.import_module(f"focus_core.{focus_core._HOME[name]}")
    assert getattr(home, name) is value
    assert name in getattr(home, "__all__", [name])


@pytest.mark.parametrize("name", NAMES)
def test_each_is_documented(name):
    value = getattr(focus_core, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert (value.__doc__ or "").strip()
        assert not value.__doc__.startswith(f"{name}("), "a generated docstring is none"


def test_a_wrong_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Colector'"):
        focus_core.Colector  # noqa: B018
    with pytest.raises(ImportError):
        from focus_core import Colector  # noqa: F401


def test_star_and_dir_list_them():
    found = {}
    exec("from focus_core import *", found)
    assert set(NAMES) <= set(found)
    assert set(dir(focus_core)) == set(NAMES)


def test_every_error_is_a_focus_error_and_a_standard_one():
    """As the tree in the module's docstring draws it; and each pickles."""
    errors = importlib.import_module("focus_core.errors")
    for name in errors.__all__:
        error = getattr(errors, name)
        assert error.__name__ in errors.__doc__
        assert issubclass(error, errors.FocusError)
        if error is not errors.FocusError:
            standard = [b for b in error.__mro__ if b.__module__ == "builtins"]
            assert standard[0] not in (Exception, BaseException, object)
        made = error("what happened")
        again = pickle.loads(pickle.dumps(made))
        assert (type(again), str(again)) == (error, str(made))


def test_the_kit_exports_what_it_says():
    """Lazily, and no submodule takes the place of a name."""
    importlib.import_module("focus_core.testing.installed")
    assert sorted(testing._HOME) == testing.__all__ == dir(testing)
    for name in testing.__all__:
        home = importlib.import_module(f"focus_core.testing.{testing._HOME[name]}")
        assert getattr(testing, name) is getattr(home, name)
        assert name in home.__all__
    with pytest.raises(AttributeError, match="TaskContrakt"):
        testing.TaskContrakt  # noqa: B018
