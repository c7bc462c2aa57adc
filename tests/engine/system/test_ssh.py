"""Validation of host names, and explanations of ssh errors."""

from __future__ import annotations

import pytest

from engine.system.ssh import explain_ssh_exit, host_name_problem


@pytest.mark.parametrize(
    "name",
    [
        "ws2",
        "anna@ws2",
        "gpu-07.lab.example.org",
        "10.0.0.7",
        "my_alias",
        "fe80::1",
        "anna@2001:db8::7",
        "a.b@c",
        "x" * 253,
    ],
)
def test_host_name_problem_accepts_ssh_hosts(name: str) -> None:
    assert host_name_problem(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Enter a host name"),
        ("-oProxyCommand=touch /tmp/x", "start with a dash"),
        ("anna@-oProxyCommand=x", "letters, digits"),
        ("ws2:2222", "port"),
        ("ws2 rm", "only letters"),
        ("ws2\n", "only letters"),
        ("ws2;reboot", "letters, digits"),
        ("$(reboot)", "letters, digits"),
        ("ws2/x", "letters, digits"),
        ("a@b@c", "letters, digits"),
        ("fe80::1%eth0;x", "port"),
        ("a b@fe80::1", "port"),
        ("x" * 254, "letters, digits"),
        ("wörk", "letters, digits"),
    ],
)
def test_host_name_problem_rejects_unsafe_names(name: str, why: str) -> None:
    assert why in host_name_problem(name)


@pytest.mark.parametrize(
    ("code", "stderr", "message"),
    [
        (255, "ssh: Could not resolve hostname ws2: Name or service not known", "ws2 can't be resolved"),
        (255, "ssh: connect to host ws2 port 22: Connection refused", "No ssh server is running"),
        (255, "ssh: connect to host ws2 port 22: Connection timed out", "does not respond"),
        (255, "ssh: connect to host ws2 port 22: No route to host", "no route"),
        (255, "anna@ws2: Permission denied (publickey,password).", "ssh-copy-id ws2"),
        (255, "@@@@\nsome banner\nHost key verification failed.", "`ssh ws2` once"),
        (255, "Timeout, server ws2 not responding.", "has stopped responding"),
        (255, "anna@ws2: Permission denied (publickey).\nscp: failed", "ssh-copy-id ws2"),
        (255, "Connection to ws2 closed by remote host.", "closed the connection"),
        (255, "client_loop: send disconnect: Broken pipe", "the connection was lost"),
        (255, "something new", "The connection to ws2 was lost: something new."),
        (255, "", "The connection to ws2 was lost."),
        (127, "bash: line 1: footplate: command not found", "Footplate was not found on ws2"),
        (127, "sh: 1: footplate: not found", "ssh ws2 footplate --version"),
        (1, "ksh: footplate: not found", "Footplate was not found on ws2"),
        (2, "footplate: error: unrecognized arguments: --watch", "too old"),
        (1, "Traceback\nValueError: a fault", "has exited: ValueError: a fault."),
        (0, "", "Footplate on ws2 has exited."),
    ],
)
def test_ssh_exit_reason(code: int, stderr: str, message: str) -> None:
    assert message in explain_ssh_exit("ws2", code, stderr)
