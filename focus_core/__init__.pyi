"""Static view of the lazy exports in ``__init__.py``; a test holds the two together."""

from focus_core.agent.agent import Agent as Agent
from focus_core.agent.context import Segments as Segments
from focus_core.agent.env import (
    Env as Env,
)
from focus_core.agent.env import (
    Reply as Reply,
)
from focus_core.agent.env import (
    ReplyEnv as ReplyEnv,
)
from focus_core.agent.env import (
    Transition as Transition,
)
from focus_core.agent.execution import Execution as Execution
from focus_core.agent.execution import ThreadExecution as ThreadExecution
from focus_core.agent.rollout import Rollout as Rollout
from focus_core.agent.rollout import Turn as Turn
from focus_core.agent.workspace import Workspace as Workspace
from focus_core.collect import (
    Collection as Collection,
)
from focus_core.collect import (
    Collector as Collector,
)
from focus_core.collect import (
    Failure as Failure,
)
from focus_core.collect import (
    collect_records as collect_records,
)
from focus_core.critic import Critic as Critic
from focus_core.errors import (
    CollectionError as CollectionError,
)
from focus_core.errors import (
    CriticError as CriticError,
)
from focus_core.errors import (
    DataError as DataError,
)
from focus_core.errors import (
    DeadlineError as DeadlineError,
)
from focus_core.errors import (
    FocusError as FocusError,
)
from focus_core.errors import (
    GenerationError as GenerationError,
)
from focus_core.errors import (
    GradingError as GradingError,
)
from focus_core.errors import (
    OffPolicyError as OffPolicyError,
)
from focus_core.errors import (
    PluginError as PluginError,
)
from focus_core.errors import (
    RecordError as RecordError,
)
from focus_core.errors import (
    StaleBatchError as StaleBatchError,
)
from focus_core.errors import (
    TrainerError as TrainerError,
)
from focus_core.errors import (
    UnknownNameError as UnknownNameError,
)
from focus_core.errors import (
    UsageError as UsageError,
)
from focus_core.events import (
    BatchCollected as BatchCollected,
)
from focus_core.events import (
    PolicyEvaluated as PolicyEvaluated,
)
from focus_core.events import (
    PolicyPublished as PolicyPublished,
)
from focus_core.events import (
    RecordsDelivered as RecordsDelivered,
)
from focus_core.events import (
    RunFinished as RunFinished,
)
from focus_core.events import (
    RunStarted as RunStarted,
)
from focus_core.events import (
    StepFinished as StepFinished,
)
from focus_core.events import (
    UpdateStarted as UpdateStarted,
)
from focus_core.hookspecs import hookimpl as hookimpl
from focus_core.lanes import Lane as Lane
from focus_core.policy import (
    Generation as Generation,
)
from focus_core.policy import (
    Policy as Policy,
)
from focus_core.policy import (
    PreparedPrompt as PreparedPrompt,
)
from focus_core.policy import (
    SamplingParams as SamplingParams,
)
from focus_core.recipes import (
    DirectBranchTd as DirectBranchTd,
)
from focus_core.recipes import (
    GroupCentered as GroupCentered,
)
from focus_core.recipes import (
    Recipe as Recipe,
)
from focus_core.records import (
    ActorRecord as ActorRecord,
)
from focus_core.records import (
    Batch as Batch,
)
from focus_core.records import (
    CriticRecord as CriticRecord,
)
from focus_core.records import (
    Problem as Problem,
)
from focus_core.records import (
    Span as Span,
)
from focus_core.records import (
    StepReport as StepReport,
)
from focus_core.schedule import Limits as Limits
from focus_core.schedule import run_schedule as run_schedule
from focus_core.search import (
    BetaBernoulli as BetaBernoulli,
)
from focus_core.search import (
    Gaussian as Gaussian,
)
from focus_core.search import (
    Independent as Independent,
)
from focus_core.search import (
    Search as Search,
)
from focus_core.search import (
    Selective as Selective,
)
from focus_core.sinks import CriticSink as CriticSink
from focus_core.sinks import JsonlDirectory as JsonlDirectory
from focus_core.specs import (
    ConverterSpec as ConverterSpec,
)
from focus_core.specs import (
    LaneSpec as LaneSpec,
)
from focus_core.specs import (
    ObserverSpec as ObserverSpec,
)
from focus_core.specs import (
    TaskSpec as TaskSpec,
)
from focus_core.specs import (
    TrainerSpec as TrainerSpec,
)
from focus_core.task import CollectorFor as CollectorFor
from focus_core.task import Task as Task
from focus_core.task import TaskDefaults as TaskDefaults
from focus_core.trainer import Trainer as Trainer
from focus_core.tree import Tree as Tree

__version__: str
