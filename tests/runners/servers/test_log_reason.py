"""What is said of a server that did not start: lines that real servers logged (vLLM 0.32, LMCache 0.5.6), and what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.runners.servers.log_reason import LINES, TAIL_BYTES, WIDTH, explain, find_trouble

ENGINE = "(EngineCore pid=30264) ERROR 11-29 21:03:23 [core.py:1234] "
NOISE = """(APIServer pid=7) WARNING 11-29 21:02:28 [system_utils.py:255] failed to increase: `OSError: [Errno 24] Too many open files`.
INFO:     Waiting for application startup.
"""
FAILED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}\n"


def said(tmp_path: Path, text: str) -> str:
    log = tmp_path / "server.log"
    log.write_text(text)
    words = str(explain("it ended", log))
    assert words.startswith("it ended: ")
    assert words.endswith(f" (log: {log})")
    assert "\n" not in words
    return words.removeprefix("it ended: ").removesuffix(f" (log: {log})")


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("ValueError: No common block size for 16 (CPU_ATTN: [MultipleOf(32)]).", "--block-size 32"),
        (
            "ValueError: To serve at least one request with the model's max seq len (8192), (0.03 GiB KV cache is needed, which is larger "
            "than the available KV cache memory (0.01 GiB).",
            "raise --kv-tokens",
        ),
        (
            "ValueError: Available memory on node 0 (10.18/13.46 GiB) on kv cache allocation is less than requested memory for kv "
            "(4000.0 GiB). Decrease --kv-cache-memory-bytes, VLLM_CPU_KVCACHE_SPACE, or reduce CPU memory used by other processes.",
            "--env VLLM_CPU_KVCACHE_SPACE=1",
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
            "9663676420096 bytes. Error code 12 (Cannot allocate memory)",
            "lower --host-gib or --kv-tokens",
        ),
        ("OSError: [Errno 98] Address already in use", "another process took the port"),
        ("api_server.py: error: unrecognized arguments: --no-such-flag", "correct --vllm-arg"),
        (
            "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision "
            "on the local disk and outgoing traffic has been disabled.",
            "--env HF_HUB_OFFLINE=0",
        ),
        (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/nowhere'.",
            "--model names a folder",
        ),
        (
            "python: Error while finding module specification for 'vllm.entrypoints.openai.api_server' "
            "(ModuleNotFoundError: No module named 'vllm')",
            "--vllm-python PATH",
        ),
        ("ModuleNotFoundError: No module named 'lmcache'", "install lmcache there"),
        ("LMCache ERROR: No handler registered for operation register_kv_cache_engine_driven_context", "--supported-transfer-mode auto"),
        ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.", "--gpu-memory-utilization"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "lower --host-gib or --kv-tokens"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
    ],
)
def test_known_causes_show_their_line_and_what_to_change(tmp_path: Path, line: str, remedy: str) -> None:
    words = said(tmp_path, f"{NOISE}{line}\nTraceback (most recent call last):\n  File x\n{FAILED}")
    assert words.startswith(line[:WIDTH].removeprefix("LMCache ERROR: "))
    assert remedy in words


def test_a_cause_is_found_behind_prefixes_and_colours(tmp_path: Path) -> None:
    words = said(tmp_path, f"{NOISE}\x1b[31m{ENGINE}\x1b[0mValueError: No common block size for 16\n{FAILED}")
    assert words.startswith("ValueError: No common block size for 16; on the CPU")


def test_unknown_causes_show_the_last_errors(tmp_path: Path) -> None:
    errors = "".join(f"{ENGINE}ValueError: odd {number}\n{ENGINE}  File x\n" for number in range(6))
    assert said(tmp_path, NOISE + errors + errors + FAILED) == " | ".join(f"ValueError: odd {number}" for number in range(6)[-LINES:])


def test_without_errors_the_last_lines_are_shown(tmp_path: Path) -> None:
    assert said(tmp_path, "one\ntwo\n\nthree\n  frame\nfour\n") == "two | three | four"
    assert said(tmp_path, "") == "its log says nothing"
    assert len(said(tmp_path, "x" * 10_000)) == WIDTH


def test_only_the_end_of_a_large_log_is_read(tmp_path: Path) -> None:
    assert said(tmp_path, "ValueError: old\n" + "x\n" * (TAIL_BYTES // 2) + "last\n") == "x | x | last"


def test_the_companion_may_hold_the_reason(tmp_path: Path) -> None:
    log, companion = tmp_path / "server.log", tmp_path / "lmcache.log"
    log.write_text("waiting\n")
    companion.write_text("[2026-11-29 21:03:23,001] LMCache ERROR: No handler registered for operation register_kv_cache_x\n")
    words = str(explain("it hangs", log, (companion, tmp_path / "missing")))
    assert words.startswith("it hangs: No handler registered for operation register_kv_cache_x; this LMCache needs")
    assert words.endswith(f"(log: {log}, {companion}, {tmp_path / 'missing'})")


def test_a_healthy_server_may_say_why_its_tier_fails(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "[2026-11-30 00:12:55,237] LMCache ERROR: Failed to initialize LMCacheManager components: Traceback (most recent call last):\n"
        '    raise RuntimeError(f"No supported {torch_device_type} connector found.")\n'
        "RuntimeError: No supported cpu connector found.\n"
        ". System will operate in degraded mode (recompute).\n"
    )
    assert find_trouble(tmp_path / "missing", log) == "RuntimeError: No supported cpu connector found."
    log.write_text("INFO:     Application startup complete.\n")
    assert find_trouble(log) is None
