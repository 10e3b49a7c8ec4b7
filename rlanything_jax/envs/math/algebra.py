"""The child process of `answer`: reads [answer, reference, seconds] a line, writes [equal, reason] a line."""

from __future__ import annotations

import json
import logging
import math
import os
import resource
import signal
import sys

MEMORY_BYTES = 2 << 30


def main() -> None:
    # Whatever the libraries print goes elsewhere.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from math_verify import parse, verify

    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        answer, reference, seconds = json.loads(line)
        signal.alarm(math.ceil(2 * seconds))  # kills this process where the parent no longer can
        # The library's own limits are off: the parent's holds for all that happens here.
        given, wanted = (parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (answer, reference))
        if not given or not wanted:
            outcome = (False, "cannot be read")
        else:
            outcome = (bool(verify(wanted, given, timeout_seconds=None)), "algebra")
        signal.alarm(0)
        print(json.dumps(outcome), file=answers, flush=True)


if __name__ == "__main__":
    main()
