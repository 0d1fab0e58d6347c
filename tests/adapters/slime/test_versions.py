"""Which Slime is there: read from what it has, and named where it is something else."""

import importlib.metadata
import sys
import types
from typing import ClassVar

import pytest
from focus_adapter_slime.versions import contract_of, find_slime, generate_state, is_aborting

from focus_core import UsageError
from tests.adapters.slime.slime_double import OldSample, Sample


@pytest.fixture
def install(monkeypatch, tmp_path):
    """Make packages importable from here, and nothing else called slime."""

    def make(files, distribution=None):
        for name in [name for name in sys.modules if name.partition(".")[0] == "slime"]:
            monkeypatch.delitem(sys.modules, name)
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        if distribution:
            folder = tmp_path / f"slime-{distribution}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: slime\nVersion: {distribution}\n"
            )
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "slime"]:
        del sys.modules[name]


def slime(fields):
    lines = [
        "from dataclasses import dataclass",
        "@dataclass",
        "class Sample:",
        *(f"    {field}: object = None" for field in fields),
    ]
    return {
        "slime/__init__.py": "",
        "slime/utils/__init__.py": "",
        "slime/utils/types.py": "\n".join(lines) + "\n",
    }


def test_the_double_is_read():
    assert contract_of(Sample).sibling_field == "rollout_id"
    assert (contract_of(OldSample).version, contract_of(OldSample).sibling_field) == (
        "v0.3.0",
        "group_id",
    )


def test_a_class_that_says_nothing_is_taken_for_the_newest():
    assert contract_of(type("Own", (), {})).sibling_field == "rollout_id"


@pytest.mark.parametrize(
    ("fields", "more", "version", "sibling"),
    [
        (["index", "group_id"], {}, "v0.3.0", "group_id"),
        (["index", "rollout_id"], {}, "v0.3.1", "rollout_id"),
        (
            ["index", "rollout_id"],
            {"slime/observability/__init__.py": ""},
            "main",
            "rollout_id",
        ),
    ],
)
def test_installed_versions(install, fields, more, version, sibling):
    install(slime(fields) | more)
    found = contract_of(find_slime())
    assert (found.version, found.sibling_field) == (version, sibling)


def test_older_ones_are_refused(install):
    install(slime(["index", "group_index"]))
    with pytest.raises(UsageError, match=r"older than v0\.3\.0.*install v0\.3\.0 or newer"):
        find_slime()


def test_none_is_installed(install):
    install({})
    with pytest.raises(UsageError, match=r"Slime is not installed; git clone https://git"):
        find_slime()


@pytest.mark.parametrize("files", [{"slime/__init__.py": "", "slime/mixed.py": ""}, {}])
def test_the_other_project_of_that_name_is_named(install, files):
    install(files, distribution="0.0.0")
    with pytest.raises(UsageError, match=r"slime 0\.0\.0.*unrelated.*mixed-effects.*uninstall"):
        find_slime()


def test_some_module_of_that_name_is_not_taken_for_it(install):
    install({"slime.py": ""})
    with pytest.raises(UsageError, match=r"a module 'slime'.*is not THUDM's"):
        find_slime()


def test_what_slime_itself_lacks_is_said(install):
    files = slime(["rollout_id"])
    files["slime/utils/types.py"] = "import no_such_module\n"
    install(files)
    with pytest.raises(UsageError, match=r"cannot be imported.*no_such_module"):
        find_slime()


def test_a_slime_without_samples(install):
    install(slime([]) | {"slime/utils/types.py": ""})
    with pytest.raises(UsageError, match="no Sample"):
        find_slime()


def test_the_state_of_the_rollout_is_read_and_never_made(monkeypatch):
    assert not is_aborting()

    class Single(type):
        _instances: ClassVar[dict] = {}

        def __call__(cls):
            return cls._instances.setdefault(cls, super().__call__())

    class GenerateState(metaclass=Single):
        aborted = False

    module = types.ModuleType("slime.rollout.sglang_rollout")
    module.GenerateState = GenerateState
    monkeypatch.setitem(sys.modules, "slime.rollout.sglang_rollout", module)
    assert generate_state() is None
    assert not is_aborting()
    assert not Single._instances, "looking must not make one"
    GenerateState().aborted = True
    assert is_aborting()
