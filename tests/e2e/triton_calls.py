"""Calls of tritonclient against a server: triton_calls.py ADDRESS PROMPT.

Run by kserve_test.py in the environment of scripts/python-tools. Prints what came back as JSON.
"""

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

MODEL = "demo"
TOKENS = 40
SECONDS = 120


def tensor(name, values, datatype):
    kinds = {"BYTES": np.object_, "INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_}
    array = np.array(values, dtype=kinds[datatype])
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array)
    return made


def ask(prompt, *more):
    return [
        tensor("text_input", [prompt.encode()], "BYTES"),
        tensor("max_tokens", [TOKENS], "INT32"),
        tensor("temperature", [0.0], "FP32"),
        *more,
    ]


def refusal(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except InferenceServerException as error:
        return [error.status(), error.message()]
    return ["accepted", ""]


def text(result, name="text_output"):
    return result.as_numpy(name)[0].decode()


def infer(client, prompt, got):
    more = [tensor(f"return_{name}", [True], "BOOL")
            for name in ("finish_reason", "num_input_tokens", "num_output_tokens")]
    result = client.infer(MODEL, ask(prompt, *more), request_id="one")
    got["answer"] = text(result)
    got["finish_reason"] = text(result, "finish_reason")
    for name in ("num_input_tokens", "num_output_tokens"):
        got[name] = int(result.as_numpy(name)[0])
    settings = json.dumps({"max_tokens": str(TOKENS), "temperature": "0"})
    by_json = [tensor("text_input", [prompt.encode()], "BYTES"),
               tensor("sampling_parameters", [settings.encode()], "BYTES")]
    got["answer_by_json"] = text(client.infer(MODEL, by_json))


def stream(client, prompt, got):
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    streaming = tensor("stream", [True], "BOOL")
    for name in ("first", "second"):
        client.async_stream_infer(MODEL, ask(prompt, streaming), request_id=name,
                                  enable_empty_final_response=True)
    got["streamed"] = {"first": [], "second": []}
    finals = []
    while len(finals) < 2:
        result, error = answers.get(timeout=SECONDS)
        if error is not None:
            raise error
        response = result.get_response()
        got["streamed"][response.id].append(text(result))
        if response.parameters["triton_final_response"].bool_param:
            finals.append(response.id)
    got["finals"] = sorted(finals)
    client.async_stream_infer(MODEL, ask(prompt, tensor("beam_width", [4], "INT32")))
    got["stream_error"] = answers.get(timeout=SECONDS)[1].message()
    client.stop_stream()


def refusals(client, prompt, got):
    got["refused"] = {
        "sequence": refusal(client.infer, MODEL, ask(prompt), sequence_id=7, sequence_start=True),
        "priority": refusal(client.infer, MODEL, ask(prompt), priority=2),
        "tensor": refusal(client.infer, MODEL,
                          ask(prompt, tensor("bad_words", [b"x"], "BYTES"))),
        "model": refusal(client.infer, "another", ask(prompt)),
        "shared_memory": refusal(client.get_system_shared_memory_status),
        "repository": refusal(client.get_model_repository_index),
        "trace": refusal(client.get_trace_settings),
    }


def main(address, prompt):
    got = {}
    with triton.InferenceServerClient(address) as client:
        got["ready"] = [client.is_server_live(), client.is_server_ready(),
                        client.is_model_ready(MODEL), client.is_model_ready("another")]
        got["server"] = client.get_server_metadata(as_json=True)
        got["metadata"] = client.get_model_metadata(MODEL, as_json=True)
        config = client.get_model_config(MODEL).config
        got["decoupled"] = config.model_transaction_policy.decoupled
        client.get_inference_statistics(MODEL)
        infer(client, prompt, got)
        stream(client, prompt, got)
        refusals(client, prompt, got)
    print(json.dumps(got))


if __name__ == "__main__":
    main(*sys.argv[1:])
