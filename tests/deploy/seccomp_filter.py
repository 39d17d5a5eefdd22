"""A Docker seccomp profile as the filter that a container runtime makes of it, for x86-64.

seccomp_filter.py COMMAND runs a command under deploy/seccomp.json, strictly: its first call that
the profile does not list ends it with SIGSYS.
"""

import ctypes
import errno
import json
import os
import pathlib
import platform
import re
import struct
import sys

PROFILE = (pathlib.Path(__file__).resolve().parents[2] / "deploy/seccomp.json").read_text()
# Not listed, and answered so that the C library goes another way: clone3 becomes clone, and rseq or
# another newer call is done without.
ANSWERED = {"clone3": errno.ENOSYS}
HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h")
ARCHITECTURE = 0xC000003E  # AUDIT_ARCH_X86_64
X32 = 0x40000000  # numbers from here on are of the x32 calls
# Of struct seccomp_data.
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER_MODE = 38, 22, 2


def numbers():
    """The number of each system call, by its name; None without the kernel's headers."""
    for header in HEADERS:
        if pathlib.Path(header).exists():
            text = pathlib.Path(header).read_text()
            return {name: int(number)
                    for name, number in re.findall(r"#define __NR_(\w+) (\d+)", text)}
    return None


def _word(index, value, mask):
    """Goes on if these 32 bits of the arguments have the value, else leaves the rule."""
    return [(LOAD, 0, 0, ARGUMENTS_AT + index), (AND, 0, 0, mask), (EQUAL, 0, None, value)]


def _condition(argument):
    """The comparison of an argument; None stands for the jump out of the rule."""
    mask, value = 0xFFFFFFFFFFFFFFFF, argument["value"]
    if argument["op"] == "SCMP_CMP_MASKED_EQ":
        mask, value = value, argument["valueTwo"]
    else:
        assert argument["op"] == "SCMP_CMP_EQ", argument
    at = 8 * argument["index"]
    low = _word(at, value & 0xFFFFFFFF, mask & 0xFFFFFFFF)
    return low + _word(at + 4, value >> 32, mask >> 32)


def _rule(number, arguments, action):
    body = [step for argument in arguments for step in _condition(argument)]
    body += [(RETURN, 0, 0, action)]
    steps = [(LOAD, 0, 0, NUMBER_AT), (EQUAL, 0, None, number), *body]
    # A jump counts from the instruction behind it to the end of the rule.
    return [(code, yes, len(steps) - 1 - at if no is None else no, value)
            for at, (code, yes, no, value) in enumerate(steps)]


def program(profile, refuse=None):
    """The instructions of the profile's text; `refuse` is done instead of its own refusal."""
    table, parsed = numbers(), json.loads(profile)
    assert parsed["defaultAction"] == "SCMP_ACT_ERRNO", "another default than a refusal"
    default = REFUSE | parsed["defaultErrnoRet"] if refuse is None else refuse
    steps = [(LOAD, 0, 0, ARCHITECTURE_AT), (EQUAL, 1, 0, ARCHITECTURE), (RETURN, 0, 0, KILL),
             (LOAD, 0, 0, NUMBER_AT), (AT_LEAST, 0, 1, X32), (RETURN, 0, 0, default)]
    for rule in parsed["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW", rule
        for name in rule["names"]:
            if name in table:  # newer than this kernel's headers: it has no number here
                steps += _rule(table[name], rule.get("args", []), ALLOW)
    steps.append((RETURN, 0, 0, default))
    assert len(steps) <= 4096, "more than the kernel takes"
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in steps)


def strict():
    """The filter that ends the process instead of a refusal, with a line in the kernel's log."""
    with_clone3 = json.loads(PROFILE)
    with_clone3["syscalls"].append({"names": list(ANSWERED), "action": "SCMP_ACT_ALLOW"})
    return program(json.dumps(with_clone3), refuse=KILL)


def is_possible():
    """Whether this machine's calls have the numbers of x86-64, and headers that tell them."""
    return platform.machine() == "x86_64" and numbers() is not None


def install(instructions):
    """Puts the filter on this process and all that it starts: a preexec_fn."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(instructions)
    head = struct.pack("=HxxxxxxQ", len(instructions) // 8, ctypes.addressof(buffer))
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, FILTER_MODE, ctypes.c_char_p(head)) == 0


if __name__ == "__main__":
    install(strict())
    os.execv(sys.argv[1], sys.argv[1:])
