"""compute-sanitizer over the GPU tests: the tests that cover the most code with the least work."""
import concurrent.futures
import re
import subprocess
import time

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# Program -> tests. Under a sanitizer a kernel is ten to a hundred times slower.
SUITES = {
    "embed_gpu_test": "*",
    "fill_uniform_gpu_test": "*",
    "gather_rows_gpu_test": "*",
    "silu_mul_gpu_test": "*.MatchesDoubleArithmetic",
    "gelu_gpu_test": "*.MatchesDoubleArithmetic",
    "scale_gpu_test": "*.MatchesDoubleArithmetic*",
    "eight_bit_rows_gpu_test": "*.RmsNormMatches*:*.ActivationsMatch*",
    "eight_bit_matmul_gpu_test": ":".join(f"*.MatchesDoubleArithmetic/{i}" for i in (0, 1, 3)),
    "packed_matmul_gpu_test": "Small/*.MatchesDoubleArithmetic/*",
    "tile_matmul_gpu_test": ":".join(f"*.MatchesDoubleArithmetic/{i}" for i in (1, 5, 8, 10)),
    "layer_norm_gpu_test": "*.MatchesDoubleArithmeticOfWholeRows:*.KeepsItsDigitsFarFromZero",
    "rms_norm_gpu_test": "*.MatchesDoubleArithmetic:*.DependentLaunchDoesNotChangeBits",
    "rope_store_kv_gpu_test": "*.MatchesDoubleArithmeticAndTouches*:*.*ForEverySizeOfAHead",
    "step_gpu_test": "*",
    "sample_gpu_test": "*.FlagsNonfiniteRows:*.ResultsDoNotDependOnTheBatch",
    "matmul_gpu_test": "*.AcceptsStridedRows*:*.AcceptsUnalignedRows:"
                       "*.BitsOfFewTokensDoNotDependOnTheSliceOfRows",
    "paged_attention_gpu_test": "*.ServesDecodeAndPrefill*:*.PrefillChunks*:*.BitsDoNotDepend*",
    "model_gpu_test": ":".join(f"*BitsDoNotDependOnTheBatch/{name}" for name in (
        "llama", "qwen3", "gemma2", "stablelm_parallel", "shape_group_24",
        "fp8_channel", "fp8_block_ragged", "int8_tensor_static", "fp8_kv", "int4_awq",
        "int4_gptq_order", "int8_plain")),
    "nonfinite_gpu_test": "*.NonfiniteRowLeaves*",
    "group_gpu_test": "*.RowsAndSamplesArrive/2:*ReplaysStayExactWithLateRanks/2",
}
# The slowest tool by far, and its records of five models take more than 125 GiB of the host's
# memory: fewer of the same tests.
RACE_SUITES = {
    "model_gpu_test": "*BitsDoNotDependOnTheBatch/llama:*BitsDoNotDependOnTheBatch/qwen3",
    "layer_norm_gpu_test": "*.KeepsItsDigitsFarFromZero",
    "rope_store_kv_gpu_test": "*.MatchesDoubleArithmeticAndTouches*",
    "rms_norm_gpu_test": "*.DependentLaunchDoesNotChangeBits",
    "tile_matmul_gpu_test": "*.MatchesDoubleArithmetic/5:*.MatchesDoubleArithmetic/10",
    "sample_gpu_test": "*.FlagsNonfiniteRows",
    "paged_attention_gpu_test": "*.PrefillChunks*:*.HandlesScores*:*.TakesQueriesOfEverySize",
}
# Racecheck's records of this one take more memory than a machine of 128 GB has; its kernels are
# those of the other programs.
TOO_LARGE = {("nonfinite_gpu_test", "racecheck")}
# Readers of a ring (matmul/bands/band_ring.cuh) give a stage back by an arrival of one lane behind
# __syncwarp, which racecheck does not count for the other lanes. With an arrival of every lane it
# finds nothing in these programs, and a step of one sequence with 4-bit weights takes 2 % longer.
UNSEEN = {("packed_matmul_gpu_test", "racecheck"), ("eight_bit_matmul_gpu_test", "racecheck")}
LEFT_OUT = TOO_LARGE | UNSEEN
EXPECTED = {(program, tool) for program in SUITES for tool in TOOLS} - LEFT_OUT
PASSED = re.compile(r"\[  PASSED  \] (\d+) test")
SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard")
AT_ONCE = 8
LIMIT_SECONDS = 150  # for all together: a program that is not done by then is "not finished"


def check(program, tool, environment, until):
    """One program under one tool: its findings, and how long it took."""
    begin = time.monotonic()
    tests = SUITES[program.name]
    if tool == "racecheck":
        tests = RACE_SUITES.get(program.name, tests)
    command = ["compute-sanitizer", "--tool", tool, "--target-processes", "all", "--error-exitcode",
               "9", "--print-limit", "8", program, f"--gtest_filter={tests}", "--gtest_brief=1"]
    # The ranks of a group wait for each other; a sanitizer slows every call down.
    environment = environment | {"GROUP_REPLAYS": "50"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment,
                              timeout=max(until - begin, 0.1))
    except subprocess.TimeoutExpired:
        return {"status": "not finished", "seconds": round(time.monotonic() - begin, 1)}
    said = done.stdout + done.stderr
    found, passed = SUMMARY.search(said), PASSED.search(said)
    entry = {"status": done.returncode, "seconds": round(time.monotonic() - begin, 1),
             "tests": int(passed.group(1)) if passed else 0,
             "findings": int(found.group(1) or found.group(2)) if found else None}
    if done.returncode != 0:
        entry["said"] = [line for line in said.splitlines() if line.startswith("=")][:60]
        entry["said"] += said.splitlines()[-10:] if found is None else []
    return entry


def faults(programs):
    """A sentence for each entry of {program: {tool: entry}} that proves nothing or found something:
    a run must end with status 0, after at least one test, with a summary of no findings."""
    said = []
    for name, tools in programs.items():
        for tool, entry in tools.items():
            if entry["status"] != 0:
                said.append(f"{name} under {tool} ended with status {entry['status']}")
            elif not entry.get("tests"):
                said.append(f"{name} under {tool} ran no test")
            elif entry.get("findings") != 0:
                said.append(f"{name} under {tool} has {entry.get('findings')} findings")
    return said


def run_sanitizers(programs, environment):
    """{program: {tool: entry}} for those that have a suite."""
    until = time.monotonic() + LIMIT_SECONDS
    jobs = [(program, tool) for tool in TOOLS for program in programs
            if program.name in SUITES and (program.name, tool) not in LEFT_OUT]
    results = {}

    def run(job):
        program, tool = job
        entry = check(program, tool, environment, until)
        results.setdefault(program.name, {})[tool] = entry
        print(f"{program.name} {tool}: {entry['status']}, {entry.get('tests', 0)} tests, "
              f"{entry.get('findings')} findings, {entry['seconds']} s", flush=True)
        for line in entry.get("said", [])[:12]:
            print(f"  {line}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(run, jobs))
    return results
