"""The double's interface over Slime's own code, from a checkout that ``SLIME_SRC`` names.

Slime imports much that its data path does not use: Megatron, SGLang, Ray, trackers. What is not
installed is replaced by empty modules; Megatron always is, by one that says that this is the only
rank but for data parallelism, whose size is ``args.dp_size``. Ray's object store is a copy.
"""

import contextlib
import copy
import importlib
import importlib.abc
import importlib.util
import pickle
import sys
import types
import warnings

import attrs
import torch

ALWAYS = ("megatron",)
IF_MISSING = (
    *("megatron", "pybase64", "pylatexenc", "ray", "sglang", "sglang_router"),
    *("tensorboard", "wandb"),
)


class _Anything(type):
    """A class of which every attribute is a class: what an empty module offers."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _thing(name)


def _thing(name):
    return _Anything(name, (), {})


class _Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        below = f"{self.__name__}.{name}"
        return importlib.import_module(below) if below in _filling() else _thing(name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds an empty module under every name below the given ones."""

    def __init__(self, roots):
        self.roots = roots

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.roots:
            return importlib.util.spec_from_loader(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Empty(spec.name)

    def exec_module(self, module):
        _filling().get(module.__name__, lambda module: None)(module)


def _filling():
    """What an empty module needs nevertheless."""
    return {
        "ray": _fill_ray,
        "sglang_router": _fill_router,
        "megatron.core.mpu": _fill_groups,
        "megatron.core.fusions.fused_cross_entropy": _fill_fused,
    }


def _fill_ray(ray):
    def remote(*args, **options):
        return args[0] if args else lambda decorated: decorated

    ray.remote = remote


def _fill_router(router):
    router.__version__ = "0.3.0"


def _fill_groups(mpu):
    mpu.dp_size = 1
    for name in ("context", "tensor_model", "pipeline_model", "expert_model"):
        setattr(mpu, f"get_{name}_parallel_world_size", lambda: 1)
        setattr(mpu, f"get_{name}_parallel_rank", lambda: 0)
        setattr(mpu, f"get_{name}_parallel_group", lambda *a, **k: None)
    mpu.get_data_parallel_world_size = lambda *a, **k: mpu.dp_size
    mpu.get_data_parallel_rank = lambda *a, **k: 0
    mpu.get_data_parallel_group = lambda *a, **k: None
    mpu.get_data_parallel_group_gloo = lambda *a, **k: None
    mpu.get_data_parallel_src_rank = lambda *a, **k: 0
    mpu.get_virtual_pipeline_model_parallel_world_size = lambda: None
    mpu.is_pipeline_last_stage = lambda *a, **k: True


def _fill_fused(module):
    """What Megatron's kernel computes on one rank: (T, 1, V) logits and (T, 1) targets."""

    def fused_vocab_parallel_cross_entropy(logits, targets, group):
        picked = torch.log_softmax(logits, -1).gather(-1, targets.unsqueeze(-1))
        return -picked.squeeze(-1)

    module.fused_vocab_parallel_cross_entropy = fused_vocab_parallel_cross_entropy


def _missing(name):
    return name not in sys.modules and importlib.util.find_spec(name) is None


@contextlib.contextmanager
def empty_modules():
    """Import what is missing as empty modules; their names."""
    roots = {*ALWAYS, *filter(_missing, IF_MISSING)}
    finder = _Finder(roots)
    sys.meta_path.insert(0, finder)
    try:
        yield roots
    finally:
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def real_slime(source):
    """``RealSlime`` over a checkout; what it imported is forgotten afterwards."""
    import torch.distributed as dist

    before = set(sys.modules)
    with contextlib.ExitStack() as stack:
        roots = stack.enter_context(empty_modules())
        sys.path.insert(0, str(source))
        stack.callback(sys.path.remove, str(source))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            stack.callback(dist.destroy_process_group)
        stack.callback(_stop_loop)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what Slime imports
            loaded = RealSlime.load()
        yield loaded
    for name in set(sys.modules) - before:
        if name.split(".")[0] in (*roots, "slime"):
            del sys.modules[name]


def _stop_loop():
    """End the thread in which Slime's rollouts run, which it never ends itself."""
    module = sys.modules.get("slime.utils.async_utils")
    started = getattr(module, "async_loop", None)
    if started is None:
        return
    http = sys.modules["slime.utils.http_utils"]
    if http._http_client is not None:
        started.run(http._http_client.aclose())
    started.loop.call_soon_threadsafe(started.loop.stop)
    started._thread.join()
    started.loop.close()


@attrs.define(eq=False)
class RealSlime:
    """Slime's functions under the double's names."""

    manager: type
    rollout: object
    loss_module: object
    data: object
    Sample: type
    sibling: str
    ids: str
    mask_sums: str
    put: object = pickle.dumps
    get: object = pickle.loads

    @classmethod
    def load(cls):
        """Import them."""

        def module(name):
            return importlib.import_module(f"slime.{name}")

        manager = module("ray.rollout").RolloutManager
        if hasattr(manager, "__ray_metadata__"):
            manager = manager.__ray_metadata__.modified_class
        sample_type = module("utils.types").Sample
        new = "rollout_id" in sample_type.__dataclass_fields__
        return cls(
            manager=manager,
            rollout=module("rollout.sglang_rollout"),
            loss_module=module("backends.megatron_utils.loss"),
            data=module("utils.data"),
            Sample=sample_type,
            sibling="rollout_id" if new else "group_id",
            ids="rollout_ids" if new else "group_ids",
            mask_sums="rollout_mask_sums" if new else "group_mask_sums",
        )

    def sample(self, **values):
        return self.Sample(**values)

    def _manager(self, args, **more):
        """Something on which the rollout manager's methods run."""
        post_process = importlib.import_module("slime.utils.misc").load_function(
            args.custom_reward_post_process_path
        )
        made = types.SimpleNamespace(
            args=args,
            custom_reward_post_process_func=post_process,
            custom_convert_samples_to_train_data_func=None,
            **more,
        )
        for name in ("_post_process_rewards", "_convert_samples_to_train_data"):
            setattr(made, name, types.MethodType(getattr(self.manager, name), made))
        return made

    # Rollout

    def generate_rollout(self, args, prompts):
        """Slime's own loop, its semaphore, its abort at the end, and its nested form."""
        http = importlib.import_module("slime.utils.http_utils")
        http.init_http_client(args)
        type(self.rollout.GenerateState).clear_instances(self.rollout.GenerateState)
        output = self.rollout.generate_rollout(args, 0, _Source(args, prompts))
        return output.samples

    def evaluate(self, args, **dataset):
        """Slime's evaluation of one data set, and what its logger makes of it."""
        config = importlib.import_module("slime.utils.eval_config").EvalDatasetConfig(**dataset)
        args.eval_datasets = [config]
        type(self.rollout.GenerateState).clear_instances(self.rollout.GenerateState)
        output = self.rollout.generate_rollout(args, 0, None, evaluation=True)
        logged = self._logger("log_eval_rollout_data")(0, args, output.data, {})
        return output.data[config.name], logged

    def flatten(self, groups):
        made = self._manager(
            types.SimpleNamespace(
                load_debug_rollout_data=None,
                custom_reward_post_process_path="focus_adapter_slime.preserve_advantages",
            ),
            generate_rollout=lambda *args, evaluation: groups,
            data_source=None,
        )
        return self.manager._get_rollout_data(made, rollout_id=0)[0]

    def log_samples(self, args, samples):
        """The rollout's logger."""
        self._logger("log_rollout_data")(0, args, samples, {}, 1.0)

    def _logger(self, name):
        try:
            return getattr(importlib.import_module("slime.observability.rollout_metrics"), name)
        except ImportError:
            return getattr(importlib.import_module("slime.ray.rollout"), f"_{name}")

    # From samples to the trainer's batch

    def convert(self, args, samples):
        return self._manager(args)._convert_samples_to_train_data(samples)

    def split(self, args, data, dp_size):
        config = {
            "dp_size": dp_size,
            "cp_size": 1,
            "vpp_size": 1,
            "microbatch_group_size_per_vp_stage": 1,
        }
        store = types.SimpleNamespace(put=self.put, get=self.get)
        made = self._manager(args, train_parallel_config=config)
        module = importlib.import_module("slime.ray.rollout")
        with _replaced(module, "ray", store), _replaced(self.data, "ray", store):
            boxes = self.manager._split_train_data_by_dp(made, data)
            return [
                self._tensors(self.data.process_rollout_data(args, boxes, rank, dp_size))
                for rank in range(dp_size)
            ]

    def _tensors(self, rank):
        """What ``_get_rollout_data`` of the trainer's actor does, on the CPU instead of a GPU."""
        kinds = {"tokens": torch.long, "loss_masks": torch.int, "rollout_log_probs": torch.float32}
        for key, dtype in kinds.items():
            if key in rank:
                rank[key] = [torch.as_tensor(each, dtype=dtype) for each in rank[key]]
        rank[self.mask_sums] = torch.as_tensor(rank[self.mask_sums], dtype=torch.float32)
        return rank

    # Training

    def advantages(self, args, rank):
        self.loss_module.compute_advantages_and_returns(args, rank)

    def log_rank(self, rank):
        """The trainer's logger, up to its trackers."""
        seen = {}
        args = types.SimpleNamespace(
            ci_test=False,
            log_multi_turn=False,
            log_passrate=False,
            log_correct_samples=False,
            qkv_format="thd",
        )
        try:
            module = importlib.import_module("slime.observability.train_metric_utils")
        except ImportError:
            module = importlib.import_module("slime.backends.megatron_utils.data")

        def gather(name, args, rollout_id, values):
            seen.update(values)

        with _replaced(module, "gather_log_data", gather):
            module.log_rollout_data(0, args, rank)
        return {key: seen[key][0] / seen[key][1] for key in ("rewards", "raw_reward")}

    def loss(self, args, batch, count, size, logits):
        from megatron.core import mpu

        mpu.dp_size = args.dp_size
        batch = {**batch, "unconcat_tokens": batch["tokens"]}
        return self.loss_module.loss_function(args, batch, count, size, logits)[0]


class _Source:
    """Slime's data source for some prompts: it makes the copies and numbers them."""

    def __init__(self, args, prompts):
        self.args, self.prompts, self.index = args, list(prompts), 0

    def get_samples(self, count):
        groups = []
        for _ in range(count):
            group = []
            for _ in range(self.args.n_samples_per_prompt):
                sample = copy.deepcopy(self.prompts[len(groups)])
                sample.group_index = self.index // self.args.n_samples_per_prompt
                sample.index = self.index
                self.index += 1
                group.append(sample)
            groups.append(group)
        return groups

    def add_samples(self, samples):
        raise AssertionError("no sample should come back")


@contextlib.contextmanager
def _replaced(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
