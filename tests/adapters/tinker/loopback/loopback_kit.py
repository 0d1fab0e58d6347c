"""The SDK in whichever version is installed, called the way all of 0.25 to 0.38 understand."""

import importlib.util
import json
import threading
import urllib.error
import urllib.request

import numpy as np

PROMPT = [24, 7, 18, 7, 25, 7, 36]
KEY = "tml-a-key-that-nobody-may-see"


def missing():
    """What keeps these tests from running, if anything."""
    for name in ("tinker", "aiohttp", "focus_adapter_local"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    return None


def settle(outcome):
    """The value of a future, or the value that came at once."""
    return outcome.result() if hasattr(outcome, "result") else outcome


class Client:
    """A session with the SDK."""

    def __init__(self, base_url):
        import tinker

        self.service = tinker.ServiceClient(base_url=base_url, api_key=KEY)

    def train(self, rank=4, seed=7):
        return settle(
            self.service.create_lora_training_client(base_model="tiny", rank=rank, seed=seed)
        )

    def resume(self, path):
        return settle(self.service.create_training_client_from_state_with_optimizer(path))

    def sampler(self, path):
        return settle(self.service.create_sampling_client(model_path=path))

    def close(self, status):
        if hasattr(self.service, "close"):  # since 0.27
            settle(self.service.close(status))


def snapshot(training):
    return settle(training.save_weights_and_get_sampling_client())


def sample(sampler, n=1, prompt=PROMPT, **params):
    from tinker import types

    params = types.SamplingParams(**({"max_tokens": 6} | params))
    return settle(sampler.sample(types.ModelInput.from_ints(prompt), n, params)).sequences


def score(sampler, tokens):
    from tinker import types

    return settle(sampler.compute_logprobs(types.ModelInput.from_ints(list(tokens))))


def datum(loss="ppo", prompt=PROMPT, tokens=(3, 4, 5), logprobs=None, advantage=1.0, **more):
    """One sequence to train on: a prompt, and tokens with one advantage."""
    from tinker import types

    whole = [*prompt, *tokens]
    before = len(prompt) - 1
    logprobs = [-1.0] * len(tokens) if logprobs is None else list(logprobs)
    weights = np.array([0.0] * before + [advantage] * len(tokens), np.float32)
    inputs = {"target_tokens": np.array(whole[1:], np.int64)}
    if loss == "cross_entropy":
        inputs |= {"weights": weights}
    else:
        inputs |= {
            "logprobs": np.array([0.0] * before + logprobs, np.float32),
            "advantages": weights,
        }
    return types.Datum(
        model_input=types.ModelInput.from_ints(whole[:-1]),
        loss_fn_inputs={
            name: types.TensorData.from_numpy(array) for name, array in (inputs | more).items()
        },
    )


def learned(training, data, loss="ppo", config=None):
    """The result of a gradient: loss and log probabilities by datum."""
    output = settle(training.forward_backward(data, loss, config))
    return output.metrics["loss:sum"], [
        np.array(each["logprobs"].data) for each in output.loss_fn_outputs
    ]


def forwarded(training, data, loss="ppo"):
    output = settle(training.forward(data, loss))
    return [np.array(each["logprobs"].data) for each in output.loss_fn_outputs]


def step(training, **adam):
    from tinker import types

    adam = {"learning_rate": 1e-2, "eps": 1e-6} | adam
    return settle(training.optim_step(types.AdamParams(**adam)))


def call(server, path, body=None, *, method="POST", timeout=10):
    """One HTTP request without the SDK, so without its retries: status and JSON."""
    request = urllib.request.Request(
        server.base_url + path,
        data=None if body is None else json.dumps(body).encode(),
        method=method,
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=timeout) as response:
            text = response.read()
            return response.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def raw_model(server):
    """A model created without the SDK: its session and its id."""
    session = call(server, "/api/v1/create_session", {"tags": []})[1]["session_id"]
    body = {
        "session_id": session,
        "model_seq_id": 0,
        "base_model": "tiny",
        "lora_config": {"rank": 2},
    }
    promise = call(server, "/api/v1/create_model", body)[1]
    call(server, "/api/v1/retrieve_future", {"request_id": promise["request_id"]})
    return session, promise["model_id"]


def in_thread(work):
    """Start something that blocks."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
